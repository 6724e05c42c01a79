"""What the scripted engine says and when: a script, and the bytes of one answer in each dialect. Pure."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace

from gauntlet.errors import GauntletError
from gauntlet.names import unknown

ALPHABET = "abcdefghijklmnopqrstuvwxyz     "


@dataclass(frozen=True, slots=True)
class Script:
    """One answer's timetable. `tokens` is cycled: tokens of each chunk after the first; a fraction alternates.

    Times in seconds. `draft` is the number of drafts proposed a step (0: nothing is drafted). The rest is what servers
    do wrong: each is off by default.
    """

    ttft_s: float = 0.02
    step_s: float = 0.01
    tokens: tuple[float, ...] = (1,)
    first_tokens: int = 1
    draft: int = 0
    context: int = 131072
    headers_s: float = 0.0
    role_chunk: bool = True
    empty_chunks: int = 0
    reasoning: int = 0
    framing: str = "event"  # event | split | together
    stop_after: int | None = None
    diverge_at: int | None = None
    error_after: int | None = None
    reset_after: int | None = None
    close: bool = False
    status: int = 200
    cached: int = 0
    counters_off: int = 0
    accepted_past_stop: int = 0
    drop: tuple[str, ...] = ()  # fields that are left out of the last meta_info, usage or timings
    unicode: bool = False
    same_output: bool = False  # whatever the prompt: the bytes of an answer are then made once

    @classmethod
    def of(cls, values: dict, base: "Script | None" = None) -> "Script":
        """A script from plain values; GauntletError on a name it does not have."""
        names = [f.name for f in fields(cls)]
        for name in values:
            if name not in names:
                raise unknown("script field", name, names)
        lists = {
            k: tuple(v) if isinstance(v, list | tuple) else (v,) for k, v in values.items() if k in ("tokens", "drop")
        }
        return replace(base or cls(), **{**values, **lists})

    def plain(self) -> dict:
        return asdict(self)


@dataclass(slots=True)
class Part:
    """One send: due time after the request arrived, bytes (one HTTP chunk's payload), tokens said by then."""

    due: float
    data: bytes
    tokens: int


@dataclass(slots=True)
class Answer:
    """All sends of one answer, and what it was in truth."""

    parts: list[Part] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    verify_steps: int = 0
    accepted: int = 0
    drafted: int = 0
    ids: list[int] = field(default_factory=list)
    finish: str = "length"


def encode(text: str) -> list[int]:
    """The scripted tokenizer: a byte is a token, so that any number of tokens is exact and any text comes back."""
    return list(text.encode())


def decode(ids: Sequence[int]) -> str:
    return bytes(ids).decode(errors="replace")


def output(prompt: Sequence[int], count: int, unicode: bool = False, diverge_at: int | None = None) -> list[int]:
    """Deterministic output of a prompt: the same for every method, so that it is lossless unless told to diverge."""
    seed = hashlib.sha256(bytes(i % 256 for i in prompt)).digest()
    if unicode:
        ids = list(("ü€𝄞 " * (count // 10 + 1)).encode()[:count])
    else:
        ids = [ord(ALPHABET[(seed[i % 32] + i * (1 + seed[(i // 32) % 32])) % len(ALPHABET)]) for i in range(count)]
    if diverge_at is not None:
        ids[diverge_at:] = [ord("#")] * max(0, count - diverge_at)
    return ids


def steps(script: Script, count: int) -> list[int]:
    """Cumulative tokens at each chunk: the prefill's first, then the cycle; fractions carry over."""
    said = [min(script.first_tokens, count)]
    carry, i = 0.0, 0
    while said[-1] < count:
        carry += script.tokens[i % len(script.tokens)]
        whole = int(carry + 1e-9)
        carry, i = carry - whole, i + 1
        said.append(min(count, said[-1] + whole))
    return said


def answer(script: Script, route: str, prompt: Sequence[int], asked: int, options: dict) -> Answer:
    """The parts of an answer of `asked` tokens on `route` (generate | completion | completions | chat)."""
    count = asked if script.stop_after is None else min(asked, script.stop_after)
    said = steps(script, count)
    made = Answer(
        prompt_tokens=len(prompt),
        completion_tokens=count,
        verify_steps=len(said) - 1 if script.draft else 0,
        ids=output([] if script.same_output else prompt, count, script.unicode, script.diverge_at),
        finish="length" if count == asked else "stop",
    )
    if script.draft:
        made.accepted = count - said[0] - made.verify_steps + script.accepted_past_stop
        made.drafted = script.draft * made.verify_steps
    write = {"generate": _generate, "completion": _completion, "completions": _openai, "chat": _openai}[route]
    write(script, made, said, {**options, "chat": route == "chat"})
    return made


def _event(value: dict | str) -> bytes:
    return b"data: " + (value if isinstance(value, str) else json.dumps(value)).encode() + b"\n\n"


def _times(script: Script, said: Sequence[int]) -> list[float]:
    return [script.ttft_s + i * script.step_s for i in range(len(said))]


def _without(values: dict, names: Sequence[str]) -> dict:
    return {k: v for k, v in values.items() if k not in names}


def _generate(script: Script, made: Answer, said: list[int], options: dict) -> None:
    meta = {"id": "scripted", "finish_reason": None, "prompt_tokens": made.prompt_tokens, "reasoning_tokens": 0}
    before = 0
    for due, n in zip(_times(script, said), said, strict=True):
        last = n == made.completion_tokens
        now = {**meta, "completion_tokens": n, "cached_tokens": script.cached}
        if last:
            now["finish_reason"] = {"type": made.finish, "length": n}
            now["e2e_latency"] = due
            if made.verify_steps:
                now |= {
                    "spec_verify_ct": made.verify_steps,
                    "spec_num_correct_drafts": made.accepted,
                    "spec_num_proposed_drafts": made.drafted,
                    "spec_accept_length": n / made.verify_steps,
                }
            now = _without(now, script.drop)
        ids = made.ids[before:n] if options.get("incremental") else made.ids[:n]
        before = n
        made.parts.append(Part(due, _event({"text": decode(ids), "output_ids": ids, "meta_info": now}), n))
    made.parts.append(Part(made.parts[-1].due, _event("[DONE]"), made.completion_tokens))


def _completion(script: Script, made: Answer, said: list[int], options: dict) -> None:
    """llama.cpp's own route: an event a token, those of a step together."""
    before, accepted = 0, 0
    for due, n in zip(_times(script, said), said, strict=True):
        accepted += max(0, n - before - 1) if before else 0
        data = b""
        for i in range(before, n):
            timings = {"predicted_n": i + 1, "predicted_ms": 1000 * (due - script.ttft_s)}
            if script.draft:
                timings |= {"draft_n": script.draft * (said.index(n)), "draft_n_accepted": accepted}
            one = {"index": 0, "content": decode([made.ids[i]]), "tokens": [made.ids[i]], "stop": False}
            data += _event({**one, "tokens_predicted": i + 1, "timings": timings})
        made.parts.append(Part(due, data, n))
        before = n
    last = {
        "index": 0, "content": "", "tokens": [],
        "stop": True, "stop_type": "limit" if made.finish == "length" else "eos",
        "tokens_predicted": made.completion_tokens, "tokens_evaluated": made.prompt_tokens,
        "timings": {"cache_n": script.cached, "prompt_n": made.prompt_tokens - script.cached, **_drafts(made)},
    }  # fmt: skip
    made.parts.append(Part(made.parts[-1].due, _event(_without(last, script.drop)), made.completion_tokens))


def _drafts(made: Answer) -> dict:
    return {"draft_n": made.drafted, "draft_n_accepted": made.accepted} if made.drafted else {}


def _openai(script: Script, made: Answer, said: list[int], options: dict) -> None:
    chat = options["chat"]
    usage_asked = options.get("include_usage")
    base = {"id": "scripted", "object": "chat.completion.chunk" if chat else "text_completion", "model": "scripted"}

    def chunk(text: str | None, n: int, finish: str | None = None, reasoning: bool = False, **delta) -> bytes:
        said_now = {"reasoning_content" if reasoning else "content": text} if text is not None else {}
        choice = {"index": 0, "finish_reason": finish}
        choice |= {"delta": {**delta, **said_now}} if chat else {"text": text or ""}
        told = options.get("continuous_usage") and "usage" not in script.drop
        more = {"usage": _usage(script, made, n)} if told else {}
        return _event({**base, "choices": [choice], **more})

    times = _times(script, said)
    if chat and script.role_chunk:
        made.parts.append(Part(0.0, chunk("", 0, role="assistant"), 0))
    made.parts += [Part(0.0, chunk("" if chat else None, 0), 0) for _ in range(script.empty_chunks)]
    before, pending = 0, b""
    for due, n in zip(times, said, strict=True):
        pending += bytes(made.ids[before:n])
        text, pending = _whole(pending, n == made.completion_tokens)
        reasoning = chat and n <= script.reasoning
        made.parts.append(Part(due, chunk(text, n, reasoning=reasoning), n))
        before = n
    end = times[-1]
    made.parts.append(Part(end, chunk(None, made.completion_tokens, made.finish), made.completion_tokens))
    if usage_asked and "usage" not in script.drop:
        usage = _event({**base, "choices": [], "usage": _usage(script, made, made.completion_tokens)})
        made.parts.append(Part(end, usage, made.completion_tokens))
    made.parts.append(Part(end, _event("[DONE]"), made.completion_tokens))


def _whole(data: bytes, last: bool) -> tuple[str, bytes]:
    """Text that is whole characters, and the bytes that wait for the rest of theirs."""
    if last:
        return data.decode(errors="replace"), b""
    for cut in range(len(data), max(-1, len(data) - 4), -1):
        try:
            return data[:cut].decode(), data[cut:]
        except UnicodeDecodeError:
            continue
    return "", data


def _usage(script: Script, made: Answer, n: int) -> dict:
    usage = {
        "prompt_tokens": made.prompt_tokens, "completion_tokens": n, "total_tokens": made.prompt_tokens + n,
        "prompt_tokens_details": {"cached_tokens": script.cached}, "reasoning_tokens": min(n, script.reasoning),
    }  # fmt: skip
    return _without(usage, script.drop)


def check(script: Script) -> Script:
    """A script that can be played; GauntletError otherwise."""
    if script.framing not in ("event", "split", "together"):
        raise unknown("framing", script.framing, ("event", "split", "together"))
    if not script.tokens or any(t <= 0 for t in script.tokens):
        raise GauntletError(f"tokens is {list(script.tokens)}; it takes positive numbers of tokens per chunk")
    return script
