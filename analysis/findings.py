"""Sentences made from the numbers, each with its evidence, and none where the interval does not carry it.

Every comparison that could become a sentence is one claim. All claims of a report are judged together by Benjamini and
Hochberg at 5 %: where nothing is true, at most one report in twenty says anything at all. A claim must also have 1
outside its own 95 % interval.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations

from analysis import statistics
from analysis.cell import Cell
from analysis.comparison import Comparison
from analysis.grouping import groups
from analysis.statistics import Estimate
from analysis.study import Drift, Study
from analysis.wording import listed, times

MIN_SPLIT_PROMPTS = 8  # half of them choose the budget, the other half report it
MIN_CONTEXT = 1000  # prompt tokens; shorter prompts of equal length are no sweep of contexts
CHANGE = 0.001  # claims of less than this are true of nothing that anyone would do


@dataclass(frozen=True)
class Finding:
    """One sentence and the cells that it rests on; `kind` groups and orders them."""

    kind: str
    text: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Budget:
    """The best budget of a family: chosen on some prompts, reported on others."""

    chosen: Comparison
    choosing: int
    reported: Estimate


class Claims:
    """All that could be said, judged together."""

    def __init__(self):
        self._p: dict[tuple, float] = {}
        self._carried: dict[tuple, bool] = {}
        self._holds: set[tuple] | None = None

    def add(self, key: tuple, estimate: Estimate) -> Estimate:
        """A claim about a ratio; without an interval it can never hold."""
        if estimate.has_interval:
            self.test(key, estimate.p, estimate.excludes_one and abs(estimate.value - 1) >= CHANGE)
        return estimate

    def test(self, key: tuple, p: float, carried: bool = True) -> None:
        self._p[key], self._carried[key], self._holds = p, carried, None

    def holds(self, *key) -> bool:
        if self._holds is None:
            keys = list(self._p)
            passed = statistics.benjamini_hochberg([self._p[key] for key in keys])
            self._holds = {key for key, ok in zip(keys, passed, strict=True) if ok and self._carried[key]}
        return key in self._holds

    def __len__(self) -> int:
        return len(self._p)


class Findings:
    """The findings of a study; what tables and figures show beside them is here too (`budgets`, `break_even`)."""

    def __init__(self, study: Study):
        self.study, self.claims = study, Claims()
        self.comparisons = [one for one in study.comparisons if one.method.name not in study.doubts]
        self.places = groups(self.comparisons, lambda one: one.method.place)
        self.sweeps = groups(
            self.comparisons,
            lambda one: (*one.method.series, one.method.method, one.method.workload, one.method.family),
        )
        self.budgets = [budget for place in self.places.values() for budget in _budgets(place)]
        self._claim()
        self.break_even = [point for sweep in self.sweeps.values() if (point := self._break_even(sweep))]

    def _claim(self) -> None:
        for comparison in self.comparisons:
            self.claims.add(("speedup", comparison.method.name), comparison.speedup)
        for place in self.places.values():
            for ours, theirs in combinations(place, 2):
                self.claims.add(_pair(ours, theirs), Comparison(ours.method, theirs.method).speedup)
        for budget in self.budgets:
            self.claims.add(("budget", budget.chosen.method.name), budget.reported)
        for drift in self.study.drifts:
            self.claims.add(("drift", *drift.series), drift.change)
        for small, large in self._trees():
            self.claims.add(("tree", large.name), Comparison(large, small).ratio("acceptance"))
        for short, long in self._contexts():
            self.claims.add(("context", long.name), _acceptance_over_context(short, long))
        for comparison in self.comparisons:
            same = comparison.same_output
            if same.asked_again:
                p = statistics.fisher(len(same.differing), same.asked, same.varying, same.asked_again)
                self.claims.test(("output", comparison.method.name), p)

    def all(self) -> list[Finding]:
        """Every sentence that holds, the most serious kinds first."""
        makers: tuple[Callable[[], Iterable[Finding]], ...] = (
            self._drift, self._tree, self._output, self._fastest, self._slower, self._break_even_sentences,
            self._budget, self._context,
        )  # fmt: skip
        return [finding for make in makers for finding in make()]

    def _drift(self) -> Iterable[Finding]:
        for drift in self.study.drifts:
            if self.claims.holds("drift", *drift.series):
                yield Finding("drift", drift_sentence(drift), drift.cells)

    def _fastest(self) -> Iterable[Finding]:
        """Per workload, over the concurrencies: who is fastest, and who cannot be told from it where."""
        runs: dict[tuple, list[tuple[Comparison, list[str]]]] = {}
        for place in self.places.values():
            ahead = [one for one in place if one.speedup.value > 1 and self.claims.holds("speedup", one.method.name)]
            if ahead:
                best = max(ahead, key=lambda one: one.speedup.value)
                others = [one for one in place if one is not best]
                ties = [one.method.method for one in others if not self.claims.holds(*_pair(best, one))]
                cell = best.method
                runs.setdefault((*cell.series, cell.workload, cell.method, bool(others)), []).append((best, ties))
        for (*_, contested), found in runs.items():
            found.sort(key=lambda pair: pair[0].method.concurrency)
            cell = found[0][0].method
            what = "is fastest" if contested else "is faster than the baseline"
            text = f"{cell.method} {what} at {_at(found)} on {cell.workload} ({where(cell)}): "
            text += _values(found) + _ties(found)
            yield Finding("fastest", text, _evidence(one for one, _ in found))

    def _slower(self) -> Iterable[Finding]:
        crossing = {id(one) for sweep, _ in self.break_even for one in sweep}
        for sweep in self.sweeps.values():
            found = [
                (one, [])
                for one in sorted(sweep, key=lambda one: one.method.concurrency)
                if one.speedup.value < 1 and id(one) not in crossing and self.claims.holds("speedup", one.method.name)
            ]
            if found:
                cell = found[0][0].method
                text = (
                    f"{cell.method} is slower than the baseline at {_at(found)} on {cell.workload} ({where(cell)}): "
                    f"{_values(found)}"
                )
                yield Finding("slower", text, _evidence(one for one, _ in found))

    def _break_even(self, sweep: list[Comparison]) -> tuple[list[Comparison], Estimate] | None:
        """Where a method stops paying, when it surely pays at some concurrency and surely does not at a higher one."""
        sweep = sorted(sweep, key=lambda one: one.method.concurrency)
        sure = [one for one in sweep if self.claims.holds("speedup", one.method.name)]
        pays = [one.method.concurrency for one in sure if one.speedup.value > 1]
        costs = [one.method.concurrency for one in sure if one.speedup.value < 1]
        if not pays or not costs or min(pays) > max(costs):
            return None
        at = [float(one.method.concurrency) for one in sweep]
        sums = [(one.method.sums("speed", one.prompts), one.baseline.sums("speed", one.prompts)) for one in sweep]
        return sweep, statistics.crossing(at, sums)

    def _break_even_sentences(self) -> Iterable[Finding]:
        for sweep, point in self.break_even:
            cell, last = sweep[0].method, sweep[-1].method.concurrency
            high = f"{point.high:.3g}" if point.high <= last else f"over {last}"
            text = (
                f"{cell.method} stops paying at about C={point.value:.3g} [{point.low:.3g}, {high}] on {cell.workload} "
                f"({where(cell)}): {times(sweep[0].speedup)} at C={cell.concurrency}, "
                f"{times(sweep[-1].speedup)} at C={last}"
            )
            yield Finding("break-even", text, _evidence(sweep))

    def _budget(self) -> Iterable[Finding]:
        held = [one for one in self.budgets if self.claims.holds("budget", one.chosen.method.name)]
        held = [one for one in held if one.reported.value > 1]
        for group in groups(held, lambda one: (*one.chosen.method.series, one.chosen.method.workload)).values():
            cell = group[0].chosen.method
            each = [
                f"{one.chosen.method.budget} at C={one.chosen.method.concurrency} ({times(one.reported)})"
                for one in group
            ]
            text = (
                f"best budget of {cell.family} on {cell.workload} ({where(cell)}): {listed(each)}; chosen on "
                f"{group[0].choosing} prompts, reported on the other {group[0].reported.prompts}"
            )
            yield Finding("budget", text, _evidence(one.chosen for one in group))

    def _trees(self) -> Iterable[tuple[Cell, Cell]]:
        """(smallest, largest) budget of each family in each place."""
        for place in self.places.values():
            for members in families(place).values():
                yield members[0].method, members[-1].method

    def _tree(self) -> Iterable[Finding]:
        for small, large in self._trees():
            change = Comparison(large, small).ratio("acceptance")
            if change.value < 1 and self.claims.holds("tree", large.name):
                cause = (
                    "state leaks between siblings of the tree" if large.hybrid else "the tree is not verified rightly"
                )
                text = (
                    f"acceptance of {large.family} falls while its budget grows on {large.model}"
                    f"{' (hybrid)' if large.hybrid else ''}, {large.workload} at C={large.concurrency}: "
                    f"{_from_to(small, large)} ({times(change)}); a larger tree holds the smaller one, so this means "
                    f"that {cause}. Control: {self._control(large)}"
                )
                yield Finding("tree", text, (small.cell_id, large.cell_id))

    def _control(self, tree: Cell) -> str:
        """What the same prompts are accepted without siblings, and what the same budgets do on another model."""
        chains = [
            one.method
            for one in self.places[tree.place]
            if one.method.budget is None and one.method.acceptance.value > 1
        ]
        elsewhere = [
            (small, large)
            for small, large in self._trees()
            if large.family == tree.family and large.model != tree.model and large.workload == tree.workload
        ]
        told = [f"{cell.method} without a tree {cell.acceptance.value:.2f}" for cell in chains]
        told += [f"on {large.model} {_from_to(small, large)}" for small, large in elsewhere[:1]]
        return ", ".join(told) or "none measured (a chain drafter, or another model)"

    def _contexts(self) -> Iterable[tuple[Cell, Cell]]:
        """(shortest, longest) prompts of one method at one concurrency, where prompts are long and exact in length."""
        for cells in context_sweeps(one.method for one in self.comparisons):
            if cells[0].acceptance.value > 0 and cells[-1].acceptance.value > 0:
                yield cells[0], cells[-1]

    def _context(self) -> Iterable[Finding]:
        held = [pair for pair in self._contexts() if self.claims.holds("context", pair[1].name)]
        for group in groups(held, lambda pair: (*pair[1].series, pair[1].concurrency, pair[0].context)).values():
            short, long = group[0]
            each = [
                f"{one.method} {times(_acceptance_over_context(shorter, one))} from {shorter.acceptance.value:.2f}"
                for shorter, one in group
            ]
            text = (
                f"acceptance length changes from {short.context:,} to {long.context:,} prompt tokens "
                f"(C={long.concurrency}, {where(long)}): {listed(each)}"
            )
            yield Finding("context", text, tuple(cell.cell_id for pair in group for cell in pair))

    def _output(self) -> Iterable[Finding]:
        for comparison in self.comparisons:
            cell, same = comparison.method, comparison.same_output
            if same.differing and self.claims.holds("output", cell.name):
                text = (
                    f"{cell.method} does not answer like the baseline at C={cell.concurrency} on {cell.workload} "
                    f"({where(cell)}): {len(same.differing)} of {same.asked} outputs differ; asked again, the baseline "
                    f"differs from itself on {same.varying} of {same.asked_again}"
                )
                yield Finding("output", text, _evidence([comparison]))


def where(cell: Cell) -> str:
    return f"{cell.model}, TP{cell.tp}, {cell.host}"


def drift_sentence(drift: Drift) -> str:
    host, _, model, tp, *_ = drift.series
    changed = "; the conditions changed in between" if drift.conditions_changed else ""
    return (
        f"the baseline drifted on {host} ({model}, TP{tp}): at the end {times(drift.change)} of its speed "
        f"in the rounds before, over {len(drift.cells)} cell{'s' if len(drift.cells) != 1 else ''}{changed}; "
        "differences of that size are not the methods'"
    )


def context_sweeps(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Cells that differ in prompt length alone, shortest first."""
    exact = [cell for cell in cells if cell.context and cell.context >= MIN_CONTEXT]
    found = groups(exact, lambda cell: (*cell.series, cell.method, cell.concurrency)).values()
    sweeps = [sorted(cells, key=lambda cell: cell.context) for cells in found]
    return [cells for cells in sweeps if cells[-1].context >= 2 * cells[0].context]


def _ties(found: list[tuple[Comparison, list[str]]]) -> str:
    """Who cannot be told from the fastest, and at which concurrencies when not at all of them."""
    tied: dict[str, list[int]] = {}
    for one, names in found:
        for name in names:
            tied.setdefault(name, []).append(one.method.concurrency)
    if not tied:
        return ""
    each = [
        name if len(at) == len(found) else f"{name} (C={', '.join(map(str, at))})" for name, at in sorted(tied.items())
    ]
    return f"; {listed(each)} {'is' if len(each) == 1 else 'are'} not distinguishable from it"


def _budgets(place: list[Comparison]) -> Iterable[Budget]:
    for members in families(place).values():
        prompts = sorted(set.intersection(*(set(one.prompts) for one in members)))
        if len(prompts) >= MIN_SPLIT_PROMPTS:
            choosing, reporting = tuple(prompts[::2]), tuple(prompts[1::2])
            best = max(members, key=lambda one: one.ratio("speed", choosing).value)
            yield Budget(best, len(choosing), best.ratio("speed", reporting))


def families(place: list[Comparison]) -> dict[str, list[Comparison]]:
    """Families with several budgets, each by budget."""
    with_budget = [one for one in place if one.method.budget is not None]
    found = groups(with_budget, lambda one: one.method.family)
    return {
        family: sorted(members, key=lambda one: one.method.budget)
        for family, members in found.items()
        if len({one.method.budget for one in members}) > 1
    }


def _from_to(small: Cell, large: Cell) -> str:
    return f"{small.acceptance.value:.2f} at {small.budget} → {large.acceptance.value:.2f} at {large.budget}"


def _acceptance_over_context(short: Cell, long: Cell) -> Estimate:
    return statistics.compare(long.sums("acceptance"), short.sums("acceptance"), paired=False)


def _pair(ours: Comparison, theirs: Comparison) -> tuple:
    return ("pair", *sorted((ours.method.name, theirs.method.name)))


def _evidence(comparisons: Iterable[Comparison]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cell.cell_id for one in comparisons for cell in (one.method, one.baseline)))


def _at(found: list[tuple[Comparison, list]]) -> str:
    return "C=" + ", ".join(str(one.method.concurrency) for one, _ in found)


def _values(found: list[tuple[Comparison, list]]) -> str:
    """One value with its counts, or the first and the last of several."""
    first, last = found[0][0], found[-1][0]
    starts, prompts = first.speedup.starts[0], first.speedup.prompts
    counts = f"n = {starts} starts × {prompts} prompt{'s' if prompts != 1 else ''}"
    if first is last:
        return f"{times(first.speedup)}, {counts}"
    return (
        f"{times(first.speedup)} at C={first.method.concurrency}, "
        f"{times(last.speedup)} at C={last.method.concurrency}, {counts} each"
    )
