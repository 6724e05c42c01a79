"""What any dialect makes of one answer, and the small tools that they share."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Reading:
    """One answer as the server told it. What was not told is None, never 0.

    `t`: arrival (s) of each chunk that carried tokens; `n`: completion tokens so far at each, or None.
    `error`: None or {kind, message, status}; `anomalies`: codes of what was odd but did not fail the request.
    """

    t: list[float] = field(default_factory=list)
    n: list[int | None] = field(default_factory=list)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    verify_steps: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    accept_histogram: list[int] | None = None
    finish_reason: str | None = None
    token_source: str | None = None
    output_ids: list[int] | None = None
    output_text: str = ""
    error: dict | None = None
    anomalies: list[str] = field(default_factory=list)

    def fail(self, kind: str, message: str, status: int | None = None) -> None:
        """Record the first failure; a later one is its consequence."""
        self.error = self.error or {"kind": kind, "message": message, "status": status}

    def odd(self, code: str) -> None:
        if code not in self.anomalies:
            self.anomalies.append(code)

    def chunk(self, t: float, n: int | None) -> None:
        self.t.append(t)
        self.n.append(n)

    def finish(self, reason: object) -> None:
        """A finish reason is final only when it says something; a second one adds nothing."""
        if not reason:
            return
        if self.finish_reason is not None:
            self.odd("duplicate_finish")
            return
        self.finish_reason = str(reason)

    def close(self, done: bool) -> "Reading":
        """After the last event: what every dialect must have heard."""
        if self.error is None and not done and self.finish_reason is None:
            self.fail("cut_off", "the stream ended without a finish reason")
        if self.error is None and self.completion_tokens is None:
            self.odd("usage_missing")
        if self.output_ids is not None and self.completion_tokens is not None:
            if len(self.output_ids) > self.completion_tokens:
                self.odd("ids_after_stop")
                del self.output_ids[self.completion_tokens :]
            elif len(self.output_ids) < self.completion_tokens:
                self.odd("ids_missing")
        return self


def loads(data: bytes, reading: Reading) -> dict | None:
    """An event's JSON object; anything else fails the request."""
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        reading.fail("bad_event", f"not a JSON object: {data[:120]!r}")
        return None
    return value


def message_of(error: object) -> tuple[str, int | None]:
    """(message, code) of an error object in any of the forms seen: {message, code}, {error: {...}}, plain text."""
    if isinstance(error, Mapping):
        inner = error.get("error", error)
        if isinstance(inner, Mapping):
            code = inner.get("code")
            return str(inner.get("message", inner)), code if isinstance(code, int) else None
        return str(inner), None
    return str(error), None


def first_of(values: Mapping, names: Iterable[str]) -> object:
    """The first named value that is there: fields change their names between releases."""
    return next((values[name] for name in names if values.get(name) is not None), None)


def prometheus(text: str) -> list[tuple[str, str, float]]:
    """(name, labels, value) of each sample of a /metrics page."""
    samples = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            head, _, value = line.rpartition(" ")
            name, _, labels = head.partition("{")
            samples.append((name, labels.rstrip("}"), float(value)))
    return samples


def totals(text: str, names: Mapping[str, str]) -> dict[str, float]:
    """Counters under our names: {ours: sum over labels of the server's}; one that the server lacks is left out."""
    sums: dict[str, float] = {}
    for name, _labels, value in prometheus(text):
        sums[name] = sums.get(name, 0.0) + value
    return {ours: sums[theirs] for ours, theirs in names.items() if theirs in sums}
