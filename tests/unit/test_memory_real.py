"""Memory as predicted before a start and as the real server then printed it: the prediction is what saves the start."""

import json
from pathlib import Path

import pytest

from gauntlet import memory

RECORDED = Path(__file__).parents[1] / "recordings/sglang-0.5.16-h200-memory"
PREDICTED = {
    name.partition(".tp1-")[0]: one
    for name, one in json.loads((RECORDED / "predictions.json").read_text()).items()
    if ".tp1-" in name
}
STARTS = sorted(path.stem for path in RECORDED.glob("*.log"))


def printed(start):
    return memory.figures((RECORDED / f"{start}.log").read_text().splitlines())


@pytest.mark.parametrize("start", STARTS)
def test_a_prediction_made_before_the_start_is_within_three_percent(start):
    before, seen = PREDICTED[start], printed(start)
    assert before["kv_tokens"] == pytest.approx(seen["kv_tokens"], rel=0.03)
    assert before["slots"] == seen["slots"], "state slots are exact: they decide how many requests run"
    assert before["max_running_requests"] == seen["max_running_requests"]
    assert before["weights_gib"] == pytest.approx(seen["weights_gib"], rel=0.01)


def test_the_cap_that_nobody_asked_for_was_predicted():
    """8 requests were asked for; under DFlash at fraction 0.40 the state cache lets 4 run, and SGLang only logs it."""
    assert printed("hybrid-27b-f40-r8.dflash")["max_running_requests"] == 4
    assert PREDICTED["hybrid-27b-f40-r8.dflash"]["max_running_requests"] == 4


def test_there_are_starts_to_judge_by():
    assert len(STARTS) >= 5
