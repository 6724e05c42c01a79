"""Tables as data, from which HTML, LaTeX and CSV are made: every row names the cells that it comes from."""

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from analysis import wording
from analysis.cell import Cell
from analysis.comparison import Comparison
from analysis.findings import Findings
from analysis.grouping import groups
from analysis.losslessness import divergence
from analysis.statistics import Estimate
from analysis.study import Study

P90_FROM, P99_FROM = 10, 100  # requests below which that percentile is one of the largest values and nothing else


@dataclass(frozen=True)
class Column:
    """`digits` of a number; a ratio (an Estimate) is written with its interval."""

    key: str
    head: str
    unit: str = ""
    digits: int = 3

    def text(self, value: object) -> str:
        """As people read it."""
        if value is None or value == "":
            return wording.NONE
        if isinstance(value, Estimate):
            return wording.ratio(value) if self.unit in ("×", "tokens") else wording.interval(value, self.digits)
        if isinstance(value, float):
            return wording.number(value, self.digits)
        return wording.listed_plainly(value) if isinstance(value, list | tuple) else str(value)

    def order(self, value: object) -> float | str:
        """What a sorted table sorts by; not measured comes last."""
        value = value.value if isinstance(value, Estimate) else value
        if isinstance(value, bool | int | float):
            return float("inf") if math.isnan(value) else float(value)
        return self.text(value)


@dataclass(frozen=True)
class Table:
    """Rows are dicts by column key; `cells` of a row are the names of the cells it rests on."""

    name: str
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: list[dict] = field(default_factory=list)

    def csv(self) -> str:
        """Raw values; an interval in columns of its own, the cells in the last one."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        intervals = {
            column.key for column in self.columns if any(isinstance(r[column.key], Estimate) for r in self.rows)
        }
        head = []
        for column in self.columns:
            unit = UNITS.get(column.unit, column.unit)
            key = column.key if not unit or column.key.endswith(unit) else f"{column.key}_{unit}"
            head += [key, f"{key}_low", f"{key}_high"] if column.key in intervals else [key]
        writer.writerow([*head, "cells"])
        for row in self.rows:
            values = []
            for column in self.columns:
                value = row[column.key]
                if column.key in intervals:
                    one = value if isinstance(value, Estimate) else Estimate(math.nan)
                    values += [_raw(one.value), _raw(one.low), _raw(one.high)]
                else:
                    values.append(_raw(value))
            writer.writerow([*values, " ".join(row["cells"])])
        return out.getvalue()


UNITS = {"×": "", "tokens/s": "tokens_per_s", "%": "percent"}
WHERE = (Column("host", "host"), Column("model", "model"), Column("tp", "TP"))
WHAT = (Column("workload", "workload"), Column("concurrency", "C"), Column("method", "method"))


def make(findings: Findings, plan: dict | None = None) -> list[Table]:
    """Every table that has a row; `plan` adds what was not run and why."""
    study = findings.study
    found = [
        _speedups(study), _latency(study), _acceptance(study), _budgets(findings), _break_even(findings),
        _scaling(study), _tp_scaling(study), _losslessness(study), _drift(study), _not_quoted(study), _not_run(plan),
        _unreadable(study),
    ]  # fmt: skip
    return [table for table in found if table.rows]


def _speedups(study: Study) -> Table:
    columns = (
        *WHERE, *WHAT, Column("tokens_per_s", "tokens/s", "tokens/s"), Column("speedup", "speed-up", "×"),
        Column("decode", "decode speed-up", "×"), Column("acceptance", "acceptance length", "tokens"),
        Column("step_ms", "step", "ms"), Column("baseline_step_ms", "baseline step", "ms"), Column("starts", "starts"),
        Column("prompts", "prompts"), Column("requests", "requests"), Column("remarks", "remarks"),
    )  # fmt: skip
    rows = []
    for cell in study.cells:
        if cell.valid and not cell.closing:
            one = study.comparison_of(cell)
            doubted = study.doubts.get(cell.name, [])
            step, baseline_step = one.step_ms if one else (math.nan, math.nan)
            rows.append(_row(
                cell, [cell, *([one.baseline] if one else [])], tokens_per_s=cell.tokens_per_s,
                speedup="baseline" if cell.baseline else speedup_of(study, cell),
                decode=one.decode_speedup if one and not doubted else None,
                acceptance=cell.acceptance, step_ms=step, baseline_step_ms=baseline_step, starts=len(cell.starts),
                prompts=len(cell.prompts), requests=cell.requests,
                remarks=[*doubted, *study.remarks.get(cell.name, []), *_no_interval(one), *cell.notes],
            ))  # fmt: skip
    return Table(
        "speedup", "Speed-up over the baseline",
        "Tokens per second of request (sent to last token), method over baseline on the same prompts, with its 95 % "
        "interval. Decode speed-up = acceptance length × baseline step / step.", columns, rows,
    )  # fmt: skip


def speedup_of(study: Study, cell: Cell) -> Estimate | str:
    """The speed-up, or in a word why there is none."""
    comparison = study.comparison_of(cell)
    if comparison is None:
        return "no baseline"
    return "doubted" if cell.name in study.doubts else comparison.speedup


def _no_interval(comparison: Comparison | None) -> list[str]:
    return [comparison.speedup.reason] if comparison and comparison.speedup.reason else []


def _latency(study: Study) -> Table:
    figures = (("ttft", "TTFT"), ("ttft_scheduled", "TTFT from scheduled"), ("tpot", "TPOT"), ("e2e", "request"))
    shares = (("p50", "p50", 1), ("p90", "p90", P90_FROM), ("p99", "p99", P99_FROM))
    columns = [*WHERE, *WHAT]
    columns += [Column(f"{key}_{share}", f"{head} {share}", "ms") for key, head in figures for share, _, _ in shares]
    columns += [Column("n", "n"), Column("lag_ms", "client lag p99", "ms")]
    rows = []
    for cell in study.cells:
        if cell.valid and not cell.closing:
            values: dict = {"n": cell.requests, "lag_ms": _lag(cell)}
            for key, _ in figures:
                n, *quantiles = cell.latency[key]
                for value, (share, _, least) in zip(quantiles, shares, strict=True):
                    values[f"{key}_{share}"] = value if n >= least else math.nan
            rows.append(_row(cell, [cell], **values))
    return Table(
        "latency", "Latency",
        f"All requests of the valid attempts. p90 from {P90_FROM} requests on, p99 from {P99_FROM}; the client's own "
        "lag stands beside it.", tuple(columns), rows,
    )  # fmt: skip


def _lag(cell: Cell) -> float:
    lags = [((document.get("client") or {}).get("lag_ms") or {}).get("p99") for document in cell.documents]
    return max([lag for lag in lags if lag is not None], default=math.nan)


def _acceptance(study: Study) -> Table:
    columns = (
        *WHERE, *WHAT, Column("prompt_tokens", "prompt", "tokens"), Column("acceptance", "acceptance length", "tokens"),
        Column("per_node", "accepted per verified node", "", 2), Column("survival", "survival by position"),
    )  # fmt: skip
    rows = [
        _row(
            cell, [cell], prompt_tokens=cell.prompt_tokens, acceptance=cell.acceptance,
            per_node=cell.estimate("per_node"), survival=[f"{share:.2f}" for share in cell.survival],
        )
        for cell in study.cells
        if cell.valid and not cell.closing and not math.isnan(cell.acceptance.value)
    ]  # fmt: skip
    return Table(
        "acceptance", "Acceptance",
        "Tokens of decode steps per verify step, the prefill's token apart. Survival: share of verify steps in which "
        "at least the first, second, … drafted token was accepted. Accepted per node falls as a tree grows.",
        columns, rows,
    )  # fmt: skip


def _budgets(findings: Findings) -> Table:
    columns = (
        *WHERE, *WHAT[:2], Column("family", "family"), Column("budget", "best budget"),
        Column("choosing", "prompts to choose"), Column("reporting", "prompts to report"),
        Column("speedup", "speed-up", "×"),
    )  # fmt: skip
    rows = [
        _row(
            budget.chosen.method, [budget.chosen.method, budget.chosen.baseline], family=budget.chosen.method.family,
            budget=budget.chosen.method.budget, choosing=budget.choosing, reporting=budget.reported.prompts,
            speedup=budget.reported,
        )
        for budget in findings.budgets
    ]  # fmt: skip
    return Table(
        "budgets", "Best budget",
        "Chosen on one half of the prompts, reported on the other: the best of many on the same prompts would flatter.",
        columns, rows,
    )  # fmt: skip


def _break_even(findings: Findings) -> Table:
    columns = (*WHERE, Column("workload", "workload"), Column("method", "method"), Column("at", "stops paying at C"))
    rows = [
        _row(sweep[0].method, [cell for one in sweep for cell in (one.method, one.baseline)], at=point)
        for sweep, point in findings.break_even
    ]
    return Table(
        "break-even", "Break-even concurrency",
        "Where the speed-up falls through 1, between measured concurrencies linear in the logarithms; given only where "
        "the method surely pays at one and surely costs at a higher one. inf: beyond the highest measured.",
        columns, rows,
    )  # fmt: skip


def _scaling(study: Study) -> Table:
    columns = (
        *WHERE, *WHAT, Column("aggregate", "all streams", "tokens/s"), Column("each", "one stream", "tokens/s"),
        Column("gain", "over the lowest C", "×"),
    )  # fmt: skip
    rows = []
    for cells in groups(study.quotable, lambda cell: (*cell.series, cell.method, cell.workload)).values():
        lowest = cells[0]
        for cell in cells if len(cells) > 1 else []:
            gain = cell.tokens_per_s.value / lowest.tokens_per_s.value
            each = cell.summary("request_tokens_per_s_p50")
            rows.append(_row(cell, [cell, lowest], aggregate=cell.tokens_per_s, each=each, gain=gain))
    return Table(
        "concurrency", "Concurrency scaling",
        "Completion tokens over the window, all streams together; the median request's own decode speed beside it.",
        columns, rows,
    )  # fmt: skip


def _tp_scaling(study: Study) -> Table:
    columns = (
        *WHERE, *WHAT, Column("aggregate", "all streams", "tokens/s"), Column("gain", "over the smallest TP", "×"),
        Column("efficiency", "efficiency", "%"),
    )  # fmt: skip
    rows = []
    for cells in tp_sweeps(study):
        for cell in cells:
            gain = cell.tokens_per_s.value / cells[0].tokens_per_s.value
            rows.append(_row(
                cell, [cell, cells[0]], aggregate=cell.tokens_per_s, gain=gain,
                efficiency=100 * gain * cells[0].tp / cell.tp,
            ))  # fmt: skip
    return Table(
        "tp", "TP scaling", "Efficiency: the gain over the smallest TP, divided by how many times more GPUs it takes.",
        columns, rows,
    )  # fmt: skip


def tp_sweeps(study: Study) -> list[list[Cell]]:
    """Cells that differ in tp alone, smallest first."""

    def key(cell: Cell) -> tuple:
        return (
            cell.host,
            cell.conditions_id,
            cell.model,
            cell.engine_build,
            cell.method,
            cell.workload,
            cell.concurrency,
        )

    sweeps = [sorted(cells, key=lambda cell: cell.tp) for cells in groups(study.quotable, key).values()]
    return [cells for cells in sweeps if len({cell.tp for cell in cells}) > 1]


def _losslessness(study: Study) -> Table:
    columns = (
        *WHERE, *WHAT, Column("asked", "outputs compared"), Column("identical", "identical"),
        Column("first", "earliest difference"), Column("matching", "matching prefix", "%"),
        Column("control", "control: baseline against itself"),
    )  # fmt: skip
    rows = []
    for one in study.comparisons:
        same = one.same_output
        if same.asked:
            first, matching = divergence(one) if same.differing else ("", 100.0)
            control = (
                f"{same.asked_again - same.varying} of {same.asked_again} identical"
                if same.asked_again
                else "not measured"
            )
            rows.append(_row(
                one.method, [one.method, one.baseline], asked=same.asked, identical=same.asked - len(same.differing),
                first=first, matching=matching, control=control,
            ))  # fmt: skip
    return Table(
        "losslessness", "Losslessness",
        "Outputs at temperature 0 to the same prompt as sent. Matching prefix: mean share of the output before the "
        "first difference, over the outputs that differ.", columns, rows,
    )  # fmt: skip


def _drift(study: Study) -> Table:
    columns = (
        *WHERE, Column("change", "end over rounds", "×"), Column("count", "cells"), Column("starts", "starts before"),
        Column("conditions", "conditions"),
    )  # fmt: skip
    rows = [
        {
            "host": drift.series[0], "model": drift.series[2], "tp": drift.series[3], "change": drift.change,
            "count": len(drift.cells), "starts": drift.change.starts[1], "cells": list(drift.cells), "workload": "",
            "conditions": "changed" if drift.conditions_changed else "the same",
        }
        for drift in study.drifts
    ]  # fmt: skip
    return Table("drift", "Drift of the baseline", "The baseline at the end over its rounds before.", columns, rows)


def _not_quoted(study: Study) -> Table:
    columns = (*WHERE, *WHAT, Column("attempts", "attempts refused"), Column("reasons", "why"))
    rows = [
        _row(cell, [cell], attempts=int((~cell.attempts["valid"]).sum()), reasons=cell.reasons)
        for cell in study.cells
        if not cell.attempts["valid"].all()
    ]
    return Table("invalid", "Attempts that are not quoted", "Kept and shown, never averaged in.", columns, rows)


def _not_run(plan: dict | None) -> Table:
    columns = (Column("host", "host"), Column("cell", "cell"), Column("state", "state"), Column("reason", "why"))
    left = [one for one in (plan or {}).get("not_run", []) if one["state"] != "measured"]
    rows = [
        {"host": one["host"], "cell": one["cell_id"], "state": one["state"], "reason": one["reason"], "cells": [],
         "workload": "", "tp": ""}
        for one in left
    ]  # fmt: skip
    return Table(
        "not-run", "Cells that were not run", "As the campaign's plan decided before a server started.", columns, rows
    )


def _unreadable(study: Study) -> Table:
    columns = (Column("path", "path"), Column("reason", "why"))
    rows = [
        {"path": problem.path, "reason": problem.reason, "cells": [], "workload": "", "tp": ""}
        for problem in study.problems
    ]
    return Table(
        "unreadable", "Not readable", "Files in the results tree that are not part of this report.", columns, rows
    )


def _row(cell: Cell, cells: Iterable[Cell], **values) -> dict:
    told = {name: getattr(cell, name) for name in ("host", "model", "tp", "workload", "concurrency", "method")}
    return told | values | {"cells": [one.name for one in dict.fromkeys(cells)]}


def _raw(value: object) -> object:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, Estimate):
        return _raw(value.value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return "; ".join(map(str, value)) if isinstance(value, list | tuple) else value
