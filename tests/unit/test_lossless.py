"""Losslessness is a claim about tokens: equal, or where it ends."""

import pytest

from gauntlet.lossless import compare, pairs


def record(ids=None, text="", asked="p", error=None):
    return {
        "output_ids": ids, "output_text": text, "prompt_sha256": asked, "prompt_id": asked, "conversation": None,
        "turn": 0, "error": error,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("one", "two", "first", "share"),
    [
        ([1, 2, 3], [1, 2, 3], None, 1.0),
        ([1, 2, 3, 4], [1, 2, 9, 4], 2, 0.5),
        ([1, 2], [1, 2, 3, 4], 2, 0.5),
        ([], [], None, 1),
    ],
)
def test_tokens(one, two, first, share):
    """An output that ends early differs where it ends."""
    found = compare(record(one), record(two))
    assert found == {"identical": first is None, "first_divergence": first, "matching_share": share, "unit": "token"}


def test_text_where_ids_are_missing():
    """One side without ids: characters, and said so."""
    found = compare(record(None, "same but"), record([1], "same and"))
    assert (found["unit"], found["first_divergence"]) == ("character", 5)


def test_only_equal_questions_are_compared():
    """A pair is the same prompt to the token; failed requests are in none."""
    ours = [record(asked="a"), record(asked="b"), record(asked="c", error={"kind": "x"})]
    theirs = [record(asked="c"), record(asked="a")]
    assert [one["prompt_id"] for one, _ in pairs(ours, theirs)] == ["a"]
