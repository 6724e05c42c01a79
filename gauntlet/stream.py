"""Bytes as they arrived -> server-sent events with the time their line was complete. Pure; runs after the request."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Event(NamedTuple):
    """One server-sent event: arrival of its last data line in seconds, field (`data` or `error`), content."""

    t: float
    field: str
    data: bytes


def lines(times: Sequence[float], pieces: Sequence[bytes]) -> Iterator[tuple[float, bytes]]:
    """Lines without their ending, each with the time of the read that held its end; the rest at EOF is a line too."""
    rest = b""
    for t, piece in zip(times, pieces, strict=True):
        *whole, rest = (rest + piece if rest else piece).split(b"\n")
        for line in whole:
            yield t, line.removesuffix(b"\r")
    if rest:
        yield times[-1], rest.removesuffix(b"\r")


def events(times: Sequence[float], pieces: Sequence[bytes]) -> Iterator[Event]:
    """The events of a stream. Comments are no events; `error:` (older llama.cpp) is an event; EOF ends the last one."""
    field, parts, at = "data", [], 0.0
    for t, line in lines(times, pieces):
        if not line:
            if parts:
                yield Event(at, field, b"\n".join(parts))
            field, parts = "data", []
            continue
        name, _, value = line.partition(b":")
        if name in (b"data", b"error"):
            if name == b"error":
                field = "error"
            parts.append(value.removeprefix(b" "))
            at = t
    if parts:
        yield Event(at, field, b"\n".join(parts))
