"""Networks cut anywhere: what the server said must not depend on where."""

from hypothesis import given
from hypothesis import strategies as st

from gauntlet.dialects import get
from gauntlet.stream import events
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
