"""What each figure shows, as data: drawn by `drawing` for HTML, by the template for LaTeX, written as CSV."""

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass

from analysis.cell import Cell
from analysis.comparison import Comparison
from analysis.findings import Findings, context_sweeps, families
from analysis.grouping import groups, natural
from analysis.statistics import Estimate
from analysis.study import Study
from analysis.tables import tp_sweeps

MANY_PANELS = 8
MANY_ROWS = 40


@dataclass(frozen=True)
class Point:
    x: float
    y: Estimate
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """One method's points in one panel."""

    name: str
    family: str
    points: list[Point]


@dataclass(frozen=True)
class Panel:
    title: str
    series: list[Series]
    baseline: Estimate | None = None  # a line across the panel, with its interval


@dataclass(frozen=True)
class Figure:
    """`kind`: 'dots' (a row a method, x is the value), 'lines' (y over x), 'heat' (rows × methods), 'plane' (y over x,
    with lines of equal product). `workloads` and `tps` are what the report's filters look at; empty: all."""

    name: str
    kind: str
    title: str
    caption: str
    x: str
    y: str
    panels: list[Panel]
    ticks: tuple[str, ...] = ()  # names of x positions 0, 1, … where x is no number
    log_x: bool = False
    share_y: bool = False
    workloads: tuple[str, ...] = ()
    tps: tuple[int, ...] = ()

    @property
    def across(self) -> int:
        """Panels in a row: at most three, and rows about equally full."""
        return math.ceil(len(self.panels) / math.ceil(len(self.panels) / 3))

    def csv(self) -> str:
        """Every point with its interval and the cells that it comes from."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["panel", "series", "x", "y", "low", "high", "cells"])
        for panel in self.panels:
            for series in panel.series:
                for point in series.points:
                    x = self.ticks[int(point.x)] if self.ticks else f"{point.x:.6g}"
                    y = ("" if math.isnan(v) else f"{v:.6g}" for v in (point.y.value, point.y.low, point.y.high))
                    writer.writerow([panel.title, series.name, x, *y, " ".join(point.cells)])
        return out.getvalue()


def make(findings: Findings) -> list[Figure]:
    """Every figure that the study has at least two points for."""
    study, naming = findings.study, Naming(findings.study)
    makers = (_speedups, _by_prompt, _planes, _over_concurrency, _throughputs, _over_budget, _over_tp, _over_context,
              _acceptances, _survivals)  # fmt: skip
    figures = [figure for maker in makers for figure in maker(study, naming, findings.comparisons)]
    return [figure for figure in figures if figure.panels]


def _speedups(study: Study, naming: "Naming", comparisons: list[Comparison]) -> Iterable[Figure]:
    for where, found in naming.by_series(comparisons):
        rows = [(one.method, one.speedup, (one.method, one.baseline)) for one in found]
        yield Figure(
            f"speedup-{where.short}", "dots", f"Speed-up by method: {where.title}",
            "Tokens per second of request, method over baseline on the same prompts, with 95 % intervals. "
            "The dashed line is the baseline.", "speed-up (×)", "", _dots(rows, Estimate(1.0)), **_filters(found),
        )  # fmt: skip


def _acceptances(study: Study, naming: "Naming", comparisons: list[Comparison]) -> Iterable[Figure]:
    told = [one for one in comparisons if one.method.acceptance.value > 0]
    for where, found in naming.by_series(told):
        rows = [(one.method, one.method.acceptance, (one.method,)) for one in found]
        yield Figure(
            f"acceptance-{where.short}", "dots", f"Acceptance length by method: {where.title}",
            "Tokens of decode steps per verify step, the prefill's token apart. 1: every draft was refused.",
            "acceptance length (tokens a step)", "", _dots(rows, Estimate(1.0)), **_filters(found),
        )  # fmt: skip


def _dots(rows: list[tuple[Cell, Estimate, tuple[Cell, ...]]], baseline: Estimate) -> list[Panel]:
    """A panel a workload and concurrency; the lowest concurrency alone where there would be too many."""
    panels = groups(rows, lambda row: (row[0].workload, row[0].concurrency))
    if len(panels) > MANY_PANELS:
        lowest: dict[str, int] = {}
        for workload, concurrency in panels:
            lowest[workload] = min(concurrency, lowest.get(workload, concurrency))
        panels = {key: found for key, found in panels.items() if lowest[key[0]] == key[1]}
    return [
        Panel(
            f"{workload} · C={concurrency}",
            [Series(cell.method, cell.family, [Point(0, value, _names(cells))]) for cell, value, cells in found],
            baseline,
        )
        for (workload, concurrency), found in panels.items()
    ]


def _by_prompt(study: Study, naming: "Naming", comparisons: list[Comparison]) -> Iterable[Figure]:
    for where, found in naming.by_series(comparisons):
        lowest = [one for one in found if one.method.concurrency == min(o.method.concurrency for o in found)]
        methods = sorted({(one.method.method, one.method.family) for one in lowest}, key=lambda pair: natural(pair[0]))
        rows = [(one, prompt) for one in lowest for prompt in one.prompts]
        whole = len({prompt for _, prompt in rows}) <= MANY_ROWS
        parts = {"": rows} if whole else groups(rows, lambda row: row[0].method.workload)
        for workload, part in parts.items():
            prompts = tuple(dict.fromkeys(prompt for _, prompt in part))
            if len(prompts) * len(methods) < 2:
                continue
            place = {prompt: row for row, prompt in enumerate(prompts)}
            points = groups(part, lambda row: (row[0].method.method, row[0].method.family))
            panel = Panel(workload, [
                Series(*method, [
                    Point(place[prompt], one.ratio("speed", (prompt,)), _names((one.method, one.baseline)))
                    for one, prompt in points.get(method, [])
                ])
                for method in methods
            ])  # fmt: skip
            yield Figure(
                f"prompts-{where.short}{f'-{workload}' if workload else ''}", "heat",
                f"Speed-up by method and prompt: {where.title}, C={lowest[0].method.concurrency}",
                "Each prompt by itself. Grey: the interval over the repeats holds 1.", "method", "prompt", [panel],
                ticks=prompts, **_filters([one for one, _ in part]),
            )  # fmt: skip


def _planes(study: Study, naming: "Naming", comparisons: list[Comparison]) -> Iterable[Figure]:
    told = [one for one in comparisons if one.method.acceptance.value > 0 and one.step_ms[0] > 0]
    for where, found in naming.by_series(told):
        panels = []
        for workload, part in groups(found, lambda one: one.method.workload).items():
            lowest = min(one.method.concurrency for one in part)
            shown = [
                Series(one.method.method, one.method.family, [
                    Point(one.step_ms[0] / one.step_ms[1], one.method.acceptance, _names((one.method, one.baseline)))
                ])
                for one in part
                if one.method.concurrency == lowest
            ]  # fmt: skip
            panels.append(Panel(f"{workload} · C={lowest}", shown))
        yield Figure(
            f"factors-{where.short}", "plane", f"What a speed-up is made of: {where.title}",
            "Decode speed-up = acceptance length / relative step time; on a line it is the same everywhere.",
            "step time over the baseline's (×)", "acceptance length", panels[:MANY_PANELS], **_filters(found),
        )  # fmt: skip


def _over_concurrency(study: Study, naming: "Naming", comparisons: list[Comparison]) -> Iterable[Figure]:
    for where, found in naming.by_series(comparisons):
        panels = _lines(
            [(one.method, one.method.concurrency, one.speedup, (one.method, one.baseline)) for one in found],
            lambda cell: cell.workload, Estimate(1.0),
        )  # fmt: skip
        yield Figure(
            f"concurrency-{where.short}", "lines", f"Speed-up against concurrency: {where.title}",
            "Below the dashed line the method costs more than it saves. Intervals are 95 %.",
            "concurrency (streams)", "speed-up (×)", panels, log_x=True, share_y=True, **_filters(found),
        )  # fmt: skip


def _throughputs(study: Study, naming: "Naming", comparisons: list[Comparison]) -> Iterable[Figure]:
    for (host, workload), cells in groups(study.quotable, lambda cell: (cell.host, cell.workload)).items():
        panels = _lines(
            [(cell, cell.concurrency, cell.tokens_per_s, (cell,)) for cell in cells],
            lambda cell: f"{cell.model} · TP{cell.tp}",
        )
        yield Figure(
            f"throughput-{host}-{workload}", "lines", f"Aggregate throughput against concurrency: {workload}, {host}",
            "Completion tokens over the window, all streams together. The baseline is grey.", "concurrency (streams)",
            "tokens/s", panels, log_x=True, workloads=(workload,), tps=tuple(sorted({cell.tp for cell in cells})),
        )  # fmt: skip


def _over_budget(study: Study, naming: "Naming", comparisons: list[Comparison]) -> Iterable[Figure]:
    for where, found in naming.by_series(comparisons):
        swept = [
            (family, members)
            for place in groups(found, lambda one: one.method.place).values()
            for family, members in families(place).items()
        ]
        if len(swept) > MANY_PANELS:
            lowest = min(members[0].method.concurrency for _, members in swept)
            swept = [(family, members) for family, members in swept if members[0].method.concurrency == lowest]
        budgets = sorted({one.method.budget for _, members in swept for one in members})
        panels = [
            Panel(
                f"{family} · {members[0].method.workload} · C={members[0].method.concurrency}",
                [Series(family, family, [
                    Point(budgets.index(one.method.budget), one.method.tokens_per_s, _names((one.method,)))
                    for one in members
                ])],
                members[0].baseline.tokens_per_s,
            )
            for family, members in swept
        ]  # fmt: skip
        yield Figure(
            f"budget-{where.short}", "lines", f"Throughput against budget: {where.title}",
            "Draft tokens a step. The dashed line and its band are the baseline's.", "budget (draft tokens)",
            "tokens/s", panels, ticks=tuple(map(str, budgets)),
            **_filters([one for _, members in swept for one in members]),
        )  # fmt: skip


def _over_tp(study: Study, naming: "Naming", comparisons: list[Comparison]) -> Iterable[Figure]:
    sweeps = [cell for cells in tp_sweeps(study) for cell in cells]
    for (host, model), cells in groups(sweeps, lambda cell: (cell.host, cell.model)).items():
        lowest = min(cell.concurrency for cell in cells)
        cells = [cell for cell in cells if cell.concurrency == lowest]
        tps = sorted({cell.tp for cell in cells})
        panels = _lines(
            [(cell, tps.index(cell.tp), cell.tokens_per_s, (cell,)) for cell in cells], lambda cell: cell.workload
        )
        yield Figure(
            f"tp-{host}-{model}", "lines", f"Throughput against tensor parallelism: {model}, C={lowest}, {host}",
            "Completion tokens over the window. The baseline is grey.", "tensor parallelism (GPUs)", "tokens/s", panels,
            ticks=tuple(f"TP{tp}" for tp in tps), workloads=tuple(dict.fromkeys(cell.workload for cell in cells)),
        )  # fmt: skip


def _over_context(study: Study, naming: "Naming", comparisons: list[Comparison]) -> Iterable[Figure]:
    sweeps = context_sweeps(study.quotable)
    for (*series, concurrency), found in groups(sweeps, lambda cells: (*cells[0].series, cells[0].concurrency)).items():
        where = naming.of(tuple(series))
        cells = [cell for sweep in found for cell in sweep]
        drafting = [cell for cell in cells if cell.acceptance.value > 0]
        panels = _lines(
            [(c, c.context, c.acceptance, (c,)) for c in drafting], lambda cell: "acceptance length (tokens)"
        )
        panels += _lines([(c, c.context, c.tokens_per_s, (c,)) for c in cells], lambda cell: "throughput (tokens/s)")
        yield Figure(
            f"context-{where.short}-c{concurrency}", "lines",
            f"Acceptance and throughput against context: {where.title}, C={concurrency}",
            "Prompts of exactly that many tokens. The baseline is grey.", "prompt (tokens)", "", panels, log_x=True,
            workloads=tuple(dict.fromkeys(cell.workload for cell in cells)), tps=(series[3],),
        )  # fmt: skip


def _survivals(study: Study, naming: "Naming", comparisons: list[Comparison]) -> Iterable[Figure]:
    told = [one for one in comparisons if len(one.method.survival) > 1]
    for where, found in naming.by_series(told):
        panels = []
        for workload, part in groups(found, lambda one: one.method.workload).items():
            lowest = min(one.method.concurrency for one in part)
            shown = [
                Series(one.method.method, one.method.family, [
                    Point(position, Estimate(share), _names((one.method,)))
                    for position, share in enumerate(one.method.survival, 1)
                ])
                for one in part
                if one.method.concurrency == lowest
            ]  # fmt: skip
            panels.append(Panel(f"{workload} · C={lowest}", shown))
        yield Figure(
            f"survival-{where.short}", "lines", f"Survival of drafted tokens by position: {where.title}",
            "Share of verify steps in which at least that many drafted tokens were accepted.", "position in the draft",
            "share of verify steps", panels[:MANY_PANELS], share_y=True, **_filters(found),
        )  # fmt: skip


def _lines(rows: list[tuple], panel_of, baseline: Estimate | None = None) -> list[Panel]:
    """(cell, x, value, cells) -> panels of series; a panel in which nothing varies along x is left out."""
    panels = []
    for title, part in groups(rows, lambda row: panel_of(row[0])).items():
        if len({x for _, x, _, _ in part}) > 1:
            series = groups(part, lambda row: (row[0].method, "" if row[0].baseline else row[0].family))
            panels.append(Panel(title, [
                Series(*name, sorted((Point(x, y, _names(cells)) for _, x, y, cells in one), key=lambda point: point.x))
                for name, one in series.items()
            ], baseline))  # fmt: skip
    return panels


@dataclass(frozen=True)
class Where:
    """What a figure is about, for a file name and for a title."""

    short: str
    title: str


class Naming:
    """Engine builds and conditions are named only where a host has several."""

    def __init__(self, study: Study):
        self._known = groups({cell.series: None for cell in study.cells}, lambda series: (series[0], *series[2:4]))

    def of(self, series: tuple) -> Where:
        host, conditions, model, tp, _, build = series
        others = self._known[host, model, tp]
        short, title = f"{host}-{model}-tp{tp}", f"{model}, TP{tp}, {host}"
        if len({other[5] for other in others}) > 1:
            short, title = f"{short}-{build}", f"{title}, {build}"
        if len({other[1] for other in others}) > 1:
            short, title = f"{short}-{conditions[:8]}", f"{title}, conditions {conditions[:8]}"
        return Where(short, title)

    def by_series(self, comparisons: list[Comparison]) -> Iterable[tuple[Where, list[Comparison]]]:
        for series, found in groups(comparisons, lambda one: one.method.series).items():
            yield self.of(series), found


def _filters(found: list[Comparison]) -> dict:
    return {
        "workloads": tuple(dict.fromkeys(one.method.workload for one in found)),
        "tps": tuple(sorted({one.method.tp for one in found})),
    }


def _names(cells: Iterable[Cell]) -> tuple[str, ...]:
    return tuple(cell.name for cell in cells)
