"""A prediction for every tensor parallelism, where KV heads first split and then are replicated."""

import json
from pathlib import Path

import pytest

from gauntlet import memory

SHAPES = Path(__file__).parents[1] / "recordings/shapes"
HYBRID = json.loads((SHAPES / "hybrid-27b.json").read_text())


def predicted(tp):
    arguments = {"mem-fraction-static": 0.9, "max-running-requests": 32, "context-length": 32768}
    weights = memory.parameters(HYBRID) * 2 / (1 << 30)
    return memory.predict(
        memory.shape(HYBRID), arguments, tp=tp, gpu_memory=143771 / 1024, weights=weights, release="0.5.16"
    )


@pytest.mark.parametrize(("tp", "bytes_per_token"), [(1, 65536), (2, 32768), (4, 16384), (8, 16384)])
def test_four_kv_heads_are_split_over_four_ranks_and_replicated_over_eight(tp, bytes_per_token):
    assert predicted(tp)["bytes_per_token"] == bytes_per_token


def test_states_shrink_with_every_rank_and_the_weights_of_a_rank_leave_more():
    slots = [predicted(tp)["slots"] for tp in (1, 2, 4, 8)]
    rest = [predicted(tp)["rest_gib"] for tp in (1, 2, 4, 8)]
    assert slots == sorted(slots) and rest == sorted(rest)
    assert slots[1] > 2 * slots[0], "half the state each, and half the weights too"
