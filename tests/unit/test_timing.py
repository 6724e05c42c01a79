"""TTFT, chunk gap, TPOT and tokens/s are four things; each has a hand-made truth."""

import pytest

from gauntlet import timing
from gauntlet.dialects.reading import Reading


def record(index=0, t=(0.5, 0.6, 0.9), n=(1, 5, 9), **more):
    reading = Reading(t=list(t), n=list(n), completion_tokens=n[-1] if n else None)
    return {
        "index": index, "error": None, "scheduled": 0.0, "sent": 0.1, "ended": t[-1] if t else 1.0,
        "first": t[0] if t else None, "last": t[-1] if t else None, "chunks": len(t),
        "first_chunk_tokens": timing.first_chunk_tokens(reading), "completion_tokens": reading.completion_tokens,
        "prompt_tokens": 4, "cached_tokens": None, "verify_steps": 2, "drafted": 8, "accepted": 6,
        "accept_histogram": [0, 1, 0, 1], **more,
    }  # fmt: skip


def chunks(*records, t=(0.5, 0.6, 0.9)):
    return [{"index": r["index"], "t": list(t), "n": []} for r in records]


def test_four_figures_of_one_request():
    """0.4 s for 8 tokens after the first chunk in two gaps: TPOT 50 ms, gaps 100 and 300 ms, 20 tokens/s decoding."""
    one = record()
    figures = timing.summary([one], chunks(one), window_s=2.0, speculates=True)
    assert figures["ttft_ms"]["p50"] == pytest.approx(400) and figures["ttft_scheduled_ms"]["p50"] == pytest.approx(500)
    assert figures["tpot_ms"]["p50"] == pytest.approx(50) and figures["chunk_gap_ms"]["mean"] == pytest.approx(200)
    assert figures["tokens_per_s"] == 4.5 and figures["request_tokens_per_s_p50"] == pytest.approx(20)
    assert figures["acceptance_length"] == 4.0 and figures["step_ms"] == pytest.approx(200)
    assert figures["accepted_per_drafted"] == 0.75 and figures["acceptance_position_counts"] == [0, 1, 0, 1]


def test_the_baselines_step_is_a_token():
    """Speed-up = acceptance length x (baseline step / method step): for the baseline the step is its token."""
    one = record(t=(0.5, 0.6, 0.7), n=(1, 2, 3), verify_steps=None, drafted=None, accepted=None)
    figures = timing.summary([one], chunks(one), 1.0, speculates=False)
    assert figures["step_ms"] == pytest.approx(100) and figures["acceptance_length"] is None


def test_what_was_not_told_is_null():
    """Chunks without counts: no TPOT is made up from chunks, tokens/s stands."""
    one = record(n=(None, None, 9))
    assert one["first_chunk_tokens"] is None and timing.tpot_s(one) is None
    figures = timing.summary([one], chunks(one), 1.0, speculates=True)
    assert figures["tpot_ms"] is None and figures["tokens_per_s"] == 9 and figures["cached_tokens"] is None


def test_one_token_a_chunk_needs_no_counts():
    """As many chunks as tokens: each was one."""
    assert timing.first_chunk_tokens(Reading(t=[1, 2, 3], n=[None] * 3, completion_tokens=3)) == 1


def test_failed_requests_are_in_no_figure_but_their_count():
    """An error is not a fast request."""
    good, bad = record(), record(1, error={"kind": "server"}, completion_tokens=None)
    figures = timing.summary([good, bad], chunks(good, bad), 1.0, speculates=True)
    assert (figures["requests"], figures["completed"], figures["failed"]) == (2, 1, 1)
    assert figures["completion_tokens"] == 9 and figures["ttft_ms"]["n"] == 1


def test_nothing_measured_is_null_not_zero():
    """Every request failed: no figure of latency or speed."""
    bad = record(error={"kind": "server"})
    figures = timing.summary([bad], chunks(bad), 1.0, speculates=True)
    assert figures["tokens_per_s"] is figures["ttft_ms"] is figures["acceptance_length"] is None


def test_percentiles_are_linear():
    """Type 7, as NumPy's default."""
    assert timing.percentile([4, 1, 3, 2], 0.5) == 2.5 and timing.percentile([7], 0.99) == 7
    assert timing.percentile([0, 10], 0.9) == 9
