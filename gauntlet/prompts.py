"""A cell's workload -> the requests to send: salted, exact in tokens, with room for the output.

The salt depends on workload, concurrency and repeat only, so every method is asked the same; no two requests of a cell
share it, so none finds another's prefix in a cache.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from gauntlet.client import Ask
from gauntlet.errors import GauntletError


def sha256(value: object) -> str:
    """Hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def salt(workload: str, concurrency: int, repeat: int, use: str = "measure") -> str:
    """The cell's salt: 16 hex, the same for every method."""
    return sha256([workload, concurrency, repeat, use])[:16]


def room(prompt_tokens: int, output_tokens: int, kept: int, context: int | None, where: str) -> None:
    """GauntletError with the arithmetic when a request cannot fit the server's window."""
    needed = prompt_tokens + output_tokens + kept
    if context and needed > context:
        raise GauntletError(
            f"{where}: {prompt_tokens} prompt + {output_tokens} output + {kept} reserved by the method = {needed} "
            f"tokens, more than the server's context of {context}"
        )


class Prompts:
    """The asks of one cell against one live server (its tokenizer and its chat template make the token ids)."""

    def __init__(
        self, cell: dict, deployment: dict, dialect, context: int | None, repeat: int, history: dict | None = None
    ):
        self.cell, self.content = cell, cell["workload_content"]
        self.deployment, self.dialect, self.context = deployment, dialect, context
        self.repeat, self.history = repeat, history
        self.kind = self.content.get("kind", "single")
        self.output_tokens = int(self.content["output_tokens"])
        self.sampling = self.content.get("sampling") or {"temperature": 0}
        if not self.content.get("prompts"):
            raise GauntletError(f"{cell['id']}: the workload {cell['workload']} has no prompts")

    def salt(self, use: str) -> str:
        return salt(self.cell["workload"], self.cell["concurrency"], self.repeat, use)

    def conversations(self, use: str = "measure", count: int | None = None) -> list[list[Ask]]:
        """The asks, by conversation: `count` of them or as many as the cell says."""
        prompts = self.content["prompts"]
        count = count or self.cell.get("requests") or self.content.get("requests") or len(prompts)
        salted = self.salt(use)
        return [self._conversation(prompts[i % len(prompts)], i, sha256([salted, i])[:8]) for i in range(count)]

    def _conversation(self, prompt: dict, number: int, mark: str) -> list[Ask]:
        if self.kind == "multi_turn":
            return self._turns(prompt, number, mark)
        if self.kind == "context":
            return [self._ask(self._exact(prompt, mark), prompt["id"])]
        return [self._ask(self._given(prompt, mark), prompt["id"])]

    def _given(self, prompt: dict, mark: str) -> dict:
        messages = prompt.get("messages")
        if messages is None and self.content.get("chat"):
            messages = [{"role": "user", "content": prompt["text"]}]
        if messages is None:
            return {"text": _marked(prompt["text"], mark)}
        return {"messages": _marked_messages(messages, mark)}

    def _exact(self, prompt: dict, mark: str) -> dict:
        """Exactly `context_tokens` token ids of the prompt's text, repeated as often as needed."""
        wanted, chat = int(self.content["context_tokens"]), bool(self.content.get("chat"))
        if not self.dialect.takes_ids:
            raise GauntletError(
                f"{self.cell['id']}: {wanted} tokens cannot be exact through {self.dialect.path}, it takes text only"
            )
        head, tail = self._template() if chat else ([], [])
        room_for = wanted - len(head) - len(tail)
        text, ids = prompt["text"], []
        while len(ids) < room_for:
            ids = self._tokens({"text": _marked(text, mark)}, special=not chat)
            text = f"{text}\n\n{text}"
        return {"ids": [*head, *ids[:room_for], *tail]}

    def _template(self) -> tuple[list[int], list[int]]:
        """What the chat template puts before and after a message: what two unlike messages have in common."""
        one, two = (self._tokens({"messages": [{"role": "user", "content": word}]}) for word in ("A", "7"))
        head = _common(one, two)
        tail = _common(one[len(head) :][::-1], two[len(head) :][::-1])[::-1]
        return head, tail

    def _tokens(self, prompt: dict, special: bool = True) -> list[int]:
        ids = self.dialect.tokens(prompt, special)
        if ids is None:
            what = "chat messages; use the dialect openai" if "messages" in prompt else "text"
            raise GauntletError(f"{self.cell['id']}: {self.dialect.base_url} does not tokenise {what}")
        return ids

    def _turns(self, prompt: dict, number: int, mark: str) -> list[Ask]:
        """A conversation's turns. With a history (the baseline's) all are known, else each waits for the last."""
        said = [m if isinstance(m, dict) else {"role": "user", "content": m} for m in prompt["conversation"]]
        said = _marked_messages([m for m in said if m["role"] != "assistant"], mark)
        head = said[:1] if said[0]["role"] == "system" else []
        users = said[len(head) :]
        replayed = self._replayed(prompt["id"], number, len(users))
        asks = []
        for turn in range(len(users)):
            about = {"conversation": f"{prompt['id']}#{number}", "turn": turn}
            if replayed is None and turn:
                asks.append(self._later(head, users, turn, prompt["id"], about))
                continue
            messages = [*head, *_interleaved(users[: turn + 1], (replayed or [])[:turn])]
            asks.append(self._ask({"messages": messages, "warm": turn > 0}, prompt["id"], **about))
        return asks

    def _replayed(self, prompt_id: str, number: int, turns: int) -> list[str] | None:
        if self.history is None:
            return None
        answers = self.history.get(f"{prompt_id}#{number}", [])
        if len(answers) < turns - 1:
            raise GauntletError(
                f"{self.cell['id']}: the baseline's answers hold {len(answers)} of the {turns} turns of {prompt_id}; "
                "measure the baseline of this round first"
            )
        return answers

    def _later(self, head: list, users: list, turn: int, prompt_id: str, about: dict) -> Ask:
        """A turn of the live baseline: its history is what has just been answered."""

        def then(readings: Sequence) -> Ask:
            messages = [*head, *_interleaved(users[: turn + 1], [reading.output_text for reading in readings])]
            return self._ask({"messages": messages, "warm": True}, prompt_id, **about)

        return Ask(None, about, then)

    def _ask(self, prompt: dict, prompt_id: str, **about) -> Ask:
        asked = prompt
        if prompt.get("ids") is None and self.dialect.takes_ids:
            asked = {**prompt, "ids": self._tokens(prompt)}
        ids = asked.get("ids")
        if ids is not None:
            room(
                len(ids),
                self.output_tokens,
                self.deployment.get("reserve") or 0,
                self.context,
                f"{self.cell['id']}, {prompt_id}",
            )
        body = self.dialect.body(asked, self.output_tokens, self.sampling, bool(self.content.get("ignore_eos")))
        digest = sha256(ids if ids is not None else prompt)
        return Ask(
            json.dumps(body).encode(), self._about(prompt_id, len(ids) if ids is not None else None, digest, **about)
        )

    def _about(self, prompt_id: str, prompt_tokens: int | None, digest: str | None, **about) -> dict:
        return {
            "prompt_id": prompt_id,
            "prompt_sha256": digest,
            "conversation": None,
            "turn": 0,
            **about,
            "expected_prompt_tokens": prompt_tokens,
            "expected_tokens": self.output_tokens,
        }


def _mark(mark: str) -> str:
    return f"Reference {mark}.\n\n"


def _marked(text: str, mark: str) -> str:
    return _mark(mark) + text


def _marked_messages(messages: Sequence[dict], mark: str) -> list[dict]:
    first, *rest = messages
    return [{**first, "content": _marked(first["content"], mark)}, *rest]


def _common(one: Sequence[int], two: Sequence[int]) -> list[int]:
    """The longest common beginning."""
    return [a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False))]


def _interleaved(users: Sequence[dict], answers: Sequence[str]) -> list[dict]:
    messages = []
    for i, user in enumerate(users):
        messages.append(user)
        if i < len(answers):
            messages.append({"role": "assistant", "content": answers[i]})
    return messages


def history_key(cell: dict, deployment: dict, repeat: int) -> str:
    """Which answers are a cell's history: the baseline's to the same model, content, concurrency and repeat."""
    model = deployment["weights"]["model"]["id"] if deployment.get("weights") else deployment["model"]
    return sha256([model, deployment["tp"], cell["workload_content"], cell["concurrency"], repeat])[:32]


def recall(folder: Path, key: str) -> dict | None:
    """The recorded answers {conversation: [text of each turn]}, or None."""
    path = folder / f"{key}.json"
    return json.loads(path.read_text()) if path.exists() else None


def remember(folder: Path, key: str, records: Sequence[dict], write: Callable[[Path, bytes], None]) -> None:
    """Keep the answers of a baseline's conversations for the methods that replay them."""
    answers: dict[str, list[str]] = {}
    for record in sorted(records, key=lambda r: (r["conversation"], r["turn"])):
        answers.setdefault(record["conversation"], []).append(record["output_text"])
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / f"{key}.json", json.dumps(answers, ensure_ascii=False).encode())
