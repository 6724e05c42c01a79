"""Is the output of a method the baseline's? Per prompt at temperature 0: identical, or where it first differs."""

from collections.abc import Iterable, Sequence


def compare(a: dict, b: dict) -> dict:
    """Two request records -> {identical, first_divergence, matching_share, unit}.

    By token ids where both have them (`unit` 'token'), else by characters of the text. `first_divergence` is the index
    of the first unit that differs (where one ends before the other: its length), None when identical;
    `matching_share` is the common prefix over the longer output.
    """
    by_ids = a["output_ids"] is not None and b["output_ids"] is not None
    one, two = (a["output_ids"], b["output_ids"]) if by_ids else (a["output_text"], b["output_text"])
    common = prefix(one, two)
    longer = max(len(one), len(two))
    identical = common == longer
    return {
        "identical": identical,
        "first_divergence": None if identical else common,
        "matching_share": common / longer if longer else 1.0,
        "unit": "token" if by_ids else "character",
    }


def prefix(one: Sequence, two: Sequence) -> int:
    """Length of the common beginning."""
    return next((i for i, (x, y) in enumerate(zip(one, two, strict=False)) if x != y), min(len(one), len(two)))


def pairs(ours: Iterable[dict], theirs: Iterable[dict]) -> list[tuple[dict, dict]]:
    """Records of two attempts that were asked exactly the same (`prompt_sha256`), failed ones left out."""
    known = {_asked(record): record for record in theirs if record["error"] is None}
    return [(record, known[_asked(record)]) for record in ours if record["error"] is None and _asked(record) in known]


def _asked(record: dict) -> tuple:
    return record["prompt_sha256"], record["prompt_id"], record["conversation"], record["turn"]
