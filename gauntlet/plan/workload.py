"""A catalog workload -> the content that a cell carries: prompts, sampling, lengths."""

from pathlib import Path

from gauntlet.catalog.reading import read_prompts, read_text
from gauntlet.errors import GauntletError
from gauntlet.identity import digest

# characters of text for each token of a context: more than any tokenizer packs into one, in prose
CHARACTERS_PER_TOKEN = 6


def content(entry: dict) -> dict:
    """{"kind", "prompts": [{"id", "text" | "messages" | "conversation"}], "output_tokens", "context_tokens",
    "sampling": {"temperature", "top_p", "seed"}, "ignore_eos", "chat", "prompts_sha256"}; GauntletError when the
    prompts do not suit the kind."""
    prompts = _cut(entry) if entry["kind"] == "context" else _read(entry)
    return {
        "kind": entry["kind"],
        "prompts": prompts,
        "output_tokens": entry["output_tokens"],
        "context_tokens": entry["context_tokens"],
        "sampling": {key: entry[key] for key in ("temperature", "top_p", "seed")},
        "ignore_eos": entry["ignore_eos"],
        "chat": entry["chat"],
        "prompts_sha256": digest(prompts),
    }


def specification(content: dict) -> dict:
    """The content as it stands in a cell's specification: the prompts as their hash, the rest in words."""
    return {
        key: content[key] for key in ("kind", "output_tokens", "context_tokens", "ignore_eos", "chat", "prompts_sha256")
    }


def requests(entry: dict, prompts: int, concurrency: int) -> int:
    """Requests (conversations, for multi_turn) of one attempt: what the workload asks, enough for every stream, and
    whole passes over the prompts so that each weighs the same."""
    wanted = max(entry["requests"] or prompts, entry["requests_per_stream"] * concurrency)
    return -(-wanted // prompts) * prompts


def turns(content: dict) -> int:
    """Requests that one pass over the prompts makes."""
    if content["kind"] != "multi_turn":
        return len(content["prompts"])
    roles = [message["role"] for prompt in content["prompts"] for message in prompt["conversation"]]
    return sum(role not in ("system", "assistant") for role in roles)


def _read(entry: dict) -> list[dict]:
    source, where = entry["prompts"], f"workload '{entry['name']}'"
    if isinstance(source, list):
        prompts = source
    elif isinstance(source, str):
        prompts = read_prompts(_found(entry, f"prompts/{source}"))
    else:
        fields = {key: str(value) for key, value in source.items() if key != "path"}
        if "path" not in source or not fields.keys() <= {"id", "text", "messages", "conversation"}:
            raise GauntletError(
                f"{where}: prompts takes path and, as its fields, id and one of text, messages, conversation; "
                f"given: {', '.join(map(str, source))}"
            )
        prompts = read_prompts(_found(entry, source["path"]), tuple(sorted(fields.items())))
    parts = ("conversation",) if entry["kind"] == "multi_turn" else ("text", "messages")
    for prompt in prompts:
        if not isinstance(prompt, dict) or "id" not in prompt or not any(part in prompt for part in parts):
            raise GauntletError(f"{where}: a prompt of kind {entry['kind']} needs an id and {' or '.join(parts)}")
    return prompts


def _cut(entry: dict) -> list[dict]:
    """Prompts cut from a text read as a ring, at evenly spaced beginnings of lines."""
    text = read_text(_found(entry, f"prompts/{entry['text']}"))
    wanted = entry["context_tokens"] * CHARACTERS_PER_TOKEN
    ring = text * (1 + -(-wanted // len(text)))
    prompts = []
    for number in range(entry["prompts"]):
        start = text.rfind("\n", 0, len(text) * number // entry["prompts"]) + 1
        prompts.append({"id": f"{entry['name']}-{number}", "text": ring[start : start + wanted]})
    return prompts


def _found(entry: dict, name: str) -> Path:
    """A file beside the entry, else in a catalog before its own; the one beside it when there is none."""
    files = [Path(folder, name) for folder in entry["folders"]]
    return next((file for file in files if file.is_file()), files[0])
