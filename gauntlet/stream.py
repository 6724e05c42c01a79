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


def is_whole(pieces: Sequence[bytes]) -> bool:
    """Whether these raw bytes of a chunked body (RFC 9112, 7.1) end with its last chunk. Cheap while they do not."""
    tail = pieces[-1] if len(pieces[-1]) >= 5 else b"".join(pieces[-5:])
    if not tail.endswith(b"0\r\n\r\n"):
        return False
    try:
        dechunk(range(len(pieces)), pieces)
    except ValueError:  # it only looked like the end
        return False
    return True


def dechunk(times: Sequence[float], pieces: Sequence[bytes]) -> tuple[list[float], list[bytes]]:
    """The payload of raw bytes of a chunked body, each part with the time of the read that brought its last byte.

    ValueError when the body is not whole.
    """
    data, ends, end = b"".join(pieces), [], 0
    for piece in pieces:
        end += len(piece)
        ends.append(end)
    when, parts, at, read = [], [], 0, 0
    while True:
        line = data.index(b"\r\n", at)
        size = int(data[at:line].split(b";")[0], 16)
        at = line + 2 + size + 2
        if at > len(data):
            raise ValueError("the body ends inside a chunk")
        if size == 0:
            return when, parts
        while ends[read] < at - 2:
            read += 1
        when.append(times[read])
        parts.append(data[line + 2 : at - 2])
