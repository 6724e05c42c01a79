"""Where a method's output leaves the baseline's, read from the attempts only for the outputs that differ."""

from collections.abc import Iterator

from analysis.cell import Cell
from analysis.comparison import Comparison
from analysis.tree import requests_of
from gauntlet import lossless


def divergence(comparison: Comparison) -> tuple[str, float | None]:
    """(earliest difference such as 'token 132', mean matching prefix in %); ('', None) where no output is stored."""
    wanted = set(comparison.same_output.differing)
    theirs = list(_records(comparison.baseline, wanted))
    found = [lossless.compare(*pair) for pair in lossless.pairs(_records(comparison.method, wanted), theirs)]
    found = [one for one in found if not one["identical"]]
    if not found:
        return "", None
    first = min(found, key=lambda one: (one["unit"] != "token", one["first_divergence"]))
    matching = 100 * sum(one["matching_share"] for one in found) / len(found)
    return f"{first['unit']} {first['first_divergence']}", matching


def _records(cell: Cell, wanted: set[str]) -> Iterator[dict]:
    for document in cell.documents:
        if document["folder"]:
            yield from (row for row in requests_of(document["folder"]) if row.get("prompt_sha256") in wanted)
