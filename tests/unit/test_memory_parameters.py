"""A shape without weights has no size on disk; what SGLang allocated for such shapes on an H200 is the judge here."""

import json
from pathlib import Path

import pytest

from gauntlet import memory
from gauntlet.errors import GauntletError

SHAPES = Path(__file__).parents[1] / "recordings/shapes"


@pytest.mark.parametrize(
    ("shape", "seen_gib", "tolerance"),
    [("qwen3-8b", 13.12, 0.01), ("hybrid-27b", 22.18, 0.01), ("qwen3-8b-dflash", 1.95, 0.01),
     ("hybrid-27b-dflash", 3.29, 0.03)],
)  # fmt: skip
def test_counted_parameters_are_the_memory_that_was_taken(shape, seen_gib, tolerance):
    config = json.loads((SHAPES / f"{shape}.json").read_text())
    assert memory.parameters(config) * 2 / (1 << 30) == pytest.approx(seen_gib, rel=tolerance)


def test_an_unknown_architecture_is_not_guessed():
    with pytest.raises(GauntletError, match="MambaForCausalLM"):
        memory.parameters({"architectures": ["MambaForCausalLM"]})
