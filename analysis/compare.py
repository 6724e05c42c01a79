"""Two sets of results beside each other: which cells moved beyond noise, and in what the two differ."""

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis import doubts, statistics, study, wording
from analysis.cell import Cell
from analysis.comparison import Comparison
from analysis.grouping import groups
from analysis.terminal import aligned, wrapped
from analysis.tree import Results, read
from gauntlet import identity
from gauntlet.errors import GauntletError
from gauntlet.names import unknown

SELECTORS = (
    "host", "campaign", "model", "method", "family", "engine", "engine_build", "workload", "tp", "concurrency",
    "conditions_id", "tuning",
)  # fmt: skip
SHOWN_DIFFERENCES = 20


@dataclass(frozen=True)
class Change:
    """One cell in both sets; `speed` is B over A."""

    a: Cell
    b: Cell
    speed: statistics.Estimate
    doubts: tuple[str, ...]
    beyond_noise: bool

    def verdict(self, threshold: float) -> str:
        if self.doubts:
            return "doubted"
        if not self.speed.has_interval:
            return "no interval"
        if not self.beyond_noise:
            return "not distinguishable"
        if abs(self.speed.value - 1) < threshold:
            return "under threshold"
        return "slower" if self.speed.value < 1 else "faster"


def side(text: str, results: str, synthetic: bool) -> study.Study:
    """The study of a results folder, or of the part of `results` that 'host=a,engine_build=b' selects."""
    if "=" not in text or Path(text).exists():
        return study.make(read(text), synthetic)
    found = read(results)
    keep = np.ones(len(found.cells), dtype=bool)
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name.strip() not in SELECTORS:
            raise unknown("selector", name.strip(), SELECTORS)
        column = _column(found, name.strip())
        keep &= column == value.strip()
        if not (column == value.strip()).any():
            raise unknown(name.strip(), value.strip(), column)
    if not keep.any():
        raise GauntletError(f"no attempt in {results} has {text} all together")
    return study.make(_select(found, keep), synthetic)


def changes(a: study.Study, b: study.Study) -> list[Change]:
    """Every cell that both have, judged together.

    Raises GauntletError when they have none in common.
    """
    theirs = groups(_usable(a), _what)
    pairs = []
    for what, ours in groups(_usable(b), _what).items():
        candidates = [(one, other) for one in theirs.get(what, []) for other in ours]
        if candidates:
            pairs.append(min(candidates, key=lambda pair: (len(differences(*pair)), pair[0].name, pair[1].name)))
    if not pairs:
        raise GauntletError(
            "the two have no cell in common: same model, method, tp, workload and concurrency are wanted"
        )
    speeds = [Comparison(other, one).speedup for one, other in pairs]
    tested = [place for place, speed in enumerate(speeds) if speed.has_interval]
    passed = statistics.benjamini_hochberg([speeds[place].p for place in tested])
    sure = {place for place, ok in zip(tested, passed, strict=True) if ok and speeds[place].excludes_one}
    return [
        Change(one, other, speeds[place], tuple(_doubts(one, other)), place in sure)
        for place, (one, other) in enumerate(pairs)
    ]


def differences(a: Cell, b: Cell) -> list[identity.Difference]:
    """What was declared or observed differently."""
    found = [("host", a.host, b.host)] if a.host != b.host else []
    found += identity.difference(a.specification, b.specification)
    if a.conditions_id != b.conditions_id:
        found += [(f"conditions.{path}", *rest) for path, *rest in identity.difference(a.conditions, b.conditions)]
    tunings = _tuning(a.document), _tuning(b.document)
    return found + ([("observed.tuning", *tunings)] if tunings[0] != tunings[1] else [])


def table(found: list[Change], threshold: float) -> str:
    """What moved and in what the two differ, in 100 columns."""
    rows = [
        [
            one.b.method, one.b.workload, str(one.b.tp), str(one.b.concurrency),
            wording.number(one.a.tokens_per_s.value), wording.number(one.b.tokens_per_s.value),
            wording.NONE if one.doubts else wording.ratio(one.speed), one.verdict(threshold),
        ]
        for one in found
    ]  # fmt: skip
    head = ["method", "workload", "TP", "C", "A tokens/s", "B tokens/s", "B/A [95 %]", "verdict"]
    lines = [*aligned(head, rows, {2, 3, 4, 5}), ""]
    for one in found:
        for doubt in one.doubts:
            lines += wrapped(f"{one.b.cell_id}: {doubt}")
    told = groups(
        (row for one in found for row in differences(one.a, one.b)), lambda row: (row[0], str(row[1]), str(row[2]))
    )
    lines += ["what differs:" if told else "nothing declared or observed differs"]
    for (path, one, other), times in list(told.items())[:SHOWN_DIFFERENCES]:
        everywhere = "" if len(times) == len(found) else f" ({wording.plural(len(times), 'cell')})"
        lines += wrapped(f"  {path}: {one} → {other}{everywhere}")
    if len(told) > SHOWN_DIFFERENCES:
        lines.append(f"  and {len(told) - SHOWN_DIFFERENCES} more; python -m analysis explain shows all of two cells")
    return "\n".join(lines)


def status(found: list[Change], threshold: float) -> int:
    """0: nothing is slower beyond noise and threshold; 1: something is, or figures contradict each other.

    Raises GauntletError when not one cell could be judged.
    """
    verdicts = {one.verdict(threshold) for one in found}
    if verdicts == {"no interval"}:
        raise GauntletError(f"nothing can be judged: {found[0].speed.reason}; measure more repeats")
    return int(bool(verdicts & {"slower", "doubted"}))


def percent(text: str) -> float:
    """'5' or '5%' -> 0.05."""
    try:
        value = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise GauntletError(f"the threshold is '{text}'; it takes percent, such as 5")
    return value


def explain(results: Results, a: str, b: str) -> list[identity.Difference]:
    """What differs between two cells, given by id, host/id or the beginning of either."""
    return differences(_find(results, a), _find(results, b))


def _find(results: Results, name: str) -> Cell:
    rows = results.cells
    known = rows["host"] + "/" + rows["cell_id"]
    wanted = name.strip("/")
    hit = known.str.startswith(wanted) | rows["cell_id"].str.startswith(wanted) | rows["spec_id"].str.startswith(wanted)
    if not hit.any():
        near = difflib.get_close_matches(wanted, sorted(set(rows["cell_id"])), n=1, cutoff=0.0)[0]
        raise GauntletError(f"no cell begins with '{name}'; the nearest of {rows['cell_id'].nunique()} is {near}")
    exact = hit & ((rows["cell_id"] == wanted) | (known == wanted))
    hit = exact if exact.any() else hit
    found = sorted(set(known[hit]))
    if len(found) > 1:
        few = wording.listed(found[:4])
        raise GauntletError(
            f"{len(found)} cells begin with '{name}': {few}{' …' if found[4:] else ''}; give more of it"
        )
    return Cell(rows[hit])


def _doubts(a: Cell, b: Cell) -> Iterable[str]:
    for name, cell in (("A", a), ("B", b)):
        yield from (f"{name}: {doubt}" for doubt in doubts.of_cell(cell))
    slower, other = sorted((a, b), key=lambda cell: cell.sums("speed").ratio)
    yield from doubts.between(slower.telling, other.telling)


def _what(cell: Cell) -> tuple:
    """By the names of the catalog, not of a row: of several declarations the one that differs least is the pair."""
    return cell.model, cell.document["method"], cell.tp, cell.document["workload"], cell.concurrency


def _usable(one: study.Study) -> list[Cell]:
    return [cell for cell in one.cells if cell.valid and not cell.closing]


def _tuning(document: dict) -> object:
    observed = document.get("observed") or {}
    return observed.get("tuning_profile") or observed.get("tuning")


def _column(results: Results, name: str) -> np.ndarray:
    if name == "tuning":
        return np.array([str(_tuning(document)) for document in results.cells["document"]])
    return results.cells[name].astype(str).to_numpy()


def _select(results: Results, keep: np.ndarray) -> Results:
    """The attempts where `keep` is true, with their requests."""
    place = np.cumsum(keep) - 1
    rows = results.requests[keep[results.requests["attempt"].to_numpy()]].copy()
    rows["attempt"] = place[rows["attempt"].to_numpy()]
    return Results(results.cells[keep].reset_index(drop=True), rows.reset_index(drop=True), results.problems)
