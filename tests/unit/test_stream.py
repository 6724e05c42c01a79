"""Networks cut anywhere: what the server said must not depend on where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gauntlet.dialects import get
from gauntlet.stream import dechunk, events, is_whole
from tests.measuring import recording

STREAM = ': ping\n\ndata: {"a": "ü€𝄞"}\r\n\r\nerror: {"m": 1}\n\ndata: one\ndata: two\n\ndata: [DONE]'.encode()
SAID = [("data", '{"a": "ü€𝄞"}'.encode()), ("error", b'{"m": 1}'), ("data", b"one\ntwo"), ("data", b"[DONE]")]


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_events_do_not_depend_on_the_cuts(cuts):
    """Split characters, split lines, many events in one read: one reading. The time is that of the line's last byte."""
    bounds = sorted({0, len(STREAM), *cuts})
    pieces = [STREAM[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    found = list(events([float(b) for b in bounds[1:]], pieces))
    assert [(event.field, event.data) for event in found] == SAID
    first_end = STREAM.index(b"\r\n") + 2
    assert found[0].t == min(float(b) for b in bounds[1:] if b >= first_end)


def test_a_recording_reads_alike_cut_into_bytes():
    """The whole parser, on real bytes, one byte a read."""
    times, pieces = recording("smollm2-ngram.edit.completions_stream.sse")
    data = b"".join(pieces)
    one = get("openai").read(times, pieces)
    two = get("openai").read([0.0] * len(data), [data[i : i + 1] for i in range(len(data))])
    assert (one.output_text, one.completion_tokens, len(one.t)) == (two.output_text, two.completion_tokens, len(two.t))


def test_nothing_arrived():
    """A connection that ends before its first byte has no events, and is no crash."""
    assert list(events([], [])) == []


def test_a_chunked_body_is_taken_apart_where_it_was_cut():
    """RFC 9112: sizes in hex, extensions ignored; each part has the time of the read with its last byte."""
    body = b"5;x=1\r\nhello\r\n1\r\n \r\nC\r\nworld\r\n0\r\n\r\n\r\n0\r\n\r\n"
    for size in range(1, len(body) + 1):
        pieces = [body[i : i + size] for i in range(0, len(body), size)]
        times, parts = dechunk(range(len(pieces)), pieces)
        assert parts == [b"hello", b" ", b"world\r\n0\r\n\r\n"]
        assert times == [(end - 1) // size for end in (12, 18, 35)]
        assert [is_whole(pieces[: n + 1]) for n in range(len(pieces))] == [False] * (len(pieces) - 1) + [True]


def test_what_looks_like_the_end_inside_a_chunk_is_none():
    """A CRLF stream may carry the very bytes of a last chunk."""
    assert not is_whole([b"7\r\nx\n0\r\n\r\n"])
    with pytest.raises(ValueError):
        dechunk([0.0], [b"5\r\nhel"])
