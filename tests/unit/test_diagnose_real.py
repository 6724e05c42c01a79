"""Failures of a real SGLang on a real GPU, from their whole journals: the cause is named, and nothing beside it."""

from pathlib import Path

import pytest

from gauntlet import catalog, diagnose

ROOT = Path(__file__).parents[2]
JOURNALS = ROOT / "tests/recordings/sglang-0.5.16-h200-failures"
DIAGNOSES = catalog.load([ROOT / "catalog"]).diagnoses


@pytest.mark.parametrize(
    ("journal", "name", "word"),
    [
        ("eagle3-topk-only", "eagle-partial-flags", "all three"),
        ("eagle3-steps-only", "eagle-partial-flags", "all three"),
        ("no-slot-for-a-request", "state-pool", "3 slots"),
        ("out-of-memory", "cuda-out-of-memory", "26.25 MiB of 139.80 GiB"),
    ],
)
def test_the_cause_is_named(journal, name, word):
    found = diagnose.find((JOURNALS / f"{journal}.log").read_text().splitlines(), DIAGNOSES)
    assert [one["name"] for one in found] == [name]
    assert word in diagnose.sentence(found[0])


def test_advice_that_cannot_help_is_not_repeated():
    """SGLang itself advises fewer requests first; by its own formula their number does not change the slots."""
    text = (JOURNALS / "no-slot-for-a-request.log").read_text()
    assert "Try: (1) reduce --max-running-requests" in text
    (found,) = diagnose.find(text.splitlines(), DIAGNOSES)
    assert "a smaller max-running-requests alone does not help" in diagnose.sentence(found)
