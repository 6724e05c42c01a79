"""What a results tree allows to be said: its cells, and each method beside the baseline that was measured like it.

A speed-up never crosses hosts, conditions, models, tp, engine builds, workloads or concurrencies.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis import doubts, statistics
from analysis.cell import Cell, cells
from analysis.comparison import Comparison
from analysis.grouping import groups
from analysis.statistics import Estimate
from analysis.tree import Problem, Results
from gauntlet.errors import GauntletError

SYNTHETIC = "synthetic"


@dataclass(frozen=True)
class Drift:
    """The baseline at the end of a campaign over the same cells in its rounds."""

    series: tuple
    change: Estimate
    cells: tuple[str, ...]
    conditions_changed: bool


@dataclass(eq=False)
class Study:
    """Everything that tables, figures and findings are made from."""

    cells: list[Cell]
    comparisons: list[Comparison]
    without_baseline: list[Cell]
    drifts: list[Drift]
    problems: list[Problem]
    doubts: dict[str, list[str]]  # a cell's name -> why neither it nor its speed-up is quoted
    remarks: dict[str, list[str]]  # a cell's name -> what to know beside its numbers

    @cached_property
    def simulated(self) -> list[str]:
        """What was not real in any attempt."""
        return sorted({text for cell in self.cells for doc in cell.attempts["document"] for text in doc["simulated"]})

    @property
    def quotable(self) -> list[Cell]:
        """Cells whose own numbers may be shown as such."""
        return [cell for cell in self.cells if cell.valid and not cell.closing and cell.name not in self.doubts]

    @cached_property
    def _by_method(self) -> dict[str, Comparison]:
        return {comparison.method.name: comparison for comparison in self.comparisons}

    def comparison_of(self, cell: Cell) -> Comparison | None:
        return self._by_method.get(cell.name)


def make(results: Results, synthetic: bool = False) -> Study:
    """The study of what was read.

    Raises GauntletError when synthetic attempts are there but not asked for, and when no attempt is valid.
    """
    if not synthetic and any(SYNTHETIC in document["simulated"] for document in results.cells["document"]):
        raise GauntletError("these results are synthetic (made, not measured); --synthetic accepts them, watermarked")
    if not results.cells["valid"].any():
        reasons = [reason for doc in results.cells["document"] for reason in doc["validity"].get("reasons", [])]
        codes = sorted({str(reason.get("code")) for reason in reasons})
        raise GauntletError(
            f"no valid attempt among {len(results.cells)} ({', '.join(codes) or 'no reason given'}): "
            "nothing can be quoted; remove the cause and run bench.yml again"
        )
    found = cells(results)
    _share_controls(found)
    usable = [cell for cell in found if cell.valid and not cell.closing]
    baselines = groups((cell for cell in usable if cell.baseline), lambda cell: cell.place)
    comparisons, without = [], []
    for cell in usable:
        candidates = baselines.get(cell.place, [])
        if cell.baseline:
            continue
        if candidates:
            comparisons.append(Comparison(cell, _nearest(cell, candidates)))
        else:
            without.append(cell)
    doubted, remarks = _misleading([cell for cell in found if cell.valid], comparisons)
    return Study(found, comparisons, without, _drifts(found), results.problems, doubted, remarks)


def _misleading(valid: list[Cell], comparisons: list[Comparison]) -> tuple[dict, dict]:
    """(doubts, remarks) by the name of the cell."""
    doubted = {cell.name: doubts.of_cell(cell) for cell in valid}
    doubted |= {comparison.method.name: doubts.of_comparison(comparison) for comparison in comparisons}
    crossed = doubts.crossed_pools(valid)
    remarks = {cell.name: [*crossed.get(cell.name, []), *doubts.remarks(cell)] for cell in valid}
    return tuple({name: said for name, said in one.items() if said} for one in (doubted, remarks))


def _nearest(cell: Cell, baselines: list[Cell]) -> Cell:
    """Of several baselines the one whose environment variables are most like the method's."""

    def apart(baseline: Cell) -> tuple[int, str]:
        ours, theirs = (set((one.declared.get("environment") or {}).items()) for one in (cell, baseline))
        return len(ours ^ theirs), baseline.name

    return min(baselines, key=apart)


def _share_controls(cells: list[Cell]) -> None:
    """A baseline's answers at the end of the campaign are the control of its earlier ones."""
    closing = {(cell.host, cell.spec_id): cell for cell in cells if cell.closing}
    for cell in cells:
        again = closing.get((cell.host, cell.spec_id))
        if again is not None and not cell.closing:
            for prompt, outputs in again.outputs.items():
                if prompt in cell.outputs:
                    cell.outputs[prompt] = cell.outputs[prompt] + outputs


def _drifts(cells: list[Cell]) -> list[Drift]:
    """One comparison a series, over all its closing cells together: a test per cell would find drift by chance."""
    usable = [cell for cell in cells if cell.valid and not cell.closing]
    opening = groups(usable, lambda cell: (cell.host, cell.spec_id))
    series: dict[tuple, list[tuple[Cell, Cell]]] = {}
    for closing in cells:
        candidates = opening.get((closing.host, closing.spec_id), [])
        if closing.closing and closing.valid and candidates:
            same = [cell for cell in candidates if cell.conditions_id == closing.conditions_id]
            series.setdefault(closing.series, []).append((closing, (same or candidates)[0]))
    return [
        Drift(
            key,
            _change(pairs),
            tuple(closing.cell_id for closing, _ in pairs),
            any(closing.conditions_id != cell.conditions_id for closing, cell in pairs),
        )
        for key, pairs in series.items()
    ]


def _change(pairs: list[tuple[Cell, Cell]]) -> Estimate:
    """Closing over opening speed: t interval of new starts against the spread between the opening ones."""
    ends, begins = [], []
    for closing, cell in pairs:
        prompts = Comparison(closing, cell).prompts
        for speeds, one in ((ends, closing), (begins, cell)):
            sums = one.sums("speed", prompts)
            speeds.append(dict(zip(one.starts, np.log(sums.over.sum(axis=1) / sums.under.sum(axis=1)), strict=True)))
    end, begin = (
        [float(np.mean([cell[start] for cell in speeds])) for start in sorted(set.intersection(*map(set, speeds)))]
        for speeds in (ends, begins)
    )
    return statistics.new_against_old(end, begin)
