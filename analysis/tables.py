"""Tables: as rows for HTML, LaTeX and CSV, and as text that fits a terminal of 100 columns."""

import math

from analysis.statistics import Estimate
from analysis.study import Cell, Comparison, Study

WIDTH = 100


def number(value: float, digits: int = 3) -> str:
    """A figure for reading: `digits` significant ones, '–' when it was not measured."""
    if value is None or math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def times(estimate: Estimate) -> str:
    """'1.42 [1.38, 1.47]', the value alone where there is no interval."""
    if math.isnan(estimate.value):
        return "–"
    if not estimate.has_interval:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def identical(comparison: Comparison | None) -> str:
    """Whether the method's outputs are the baseline's, prompt by prompt, with the control where that varies itself."""
    if comparison is None:
        return "–"
    same = comparison.same_output
    if not same.prompts:
        return "not stored"
    if not same.differing:
        return "identical"
    control = f" (control {len(same.varying)})" if same.varying else ""
    return f"differs {len(same.differing)}/{same.prompts}{control}"


def closing(study: Study) -> str:
    """Method × workload × concurrency: tokens/s, speed-up with interval, acceptance length, output identical or not."""
    lines, notes = [], []
    groups: dict[tuple, list[Cell]] = {}
    for cell in study.cells:
        if not cell.closing:
            groups.setdefault(
                (cell.host, cell.model, cell.tp, cell.engine, cell.engine_build, cell.conditions_id), []
            ).append(cell)
    for (host, model, tp, engine, build, _), cells in groups.items():
        lines.append(f"{host} · {model} · tp{tp} · {build if engine in build else f'{engine} {build}'}")
        head = ["method", "workload", "C", "tokens/s", "speed-up [95 %]", "acceptance", "output", "n"]
        rows = [_closing_row(study, cell, notes) for cell in cells]
        lines += text(head, rows, right={2, 3, 5, 7}) + [""]
    if study.simulated:
        lines.append(f"not real: {', '.join(study.simulated)}")
    lines += [f"{reason}" for reason in dict.fromkeys(notes)]
    if study.problems:
        lines.append(f"{len(study.problems)} not readable, first: {study.problems[0].path}: {study.problems[0].reason}")
    return "\n".join(line[: WIDTH * 3].rstrip() for line in lines).rstrip()


def _closing_row(study: Study, cell: Cell, notes: list[str]) -> list[str]:
    row = [cell.method, cell.workload, str(cell.concurrency)]
    if not cell.valid:
        notes.append(f"{cell.cell_id}: not quoted: {'; '.join(cell.reasons)}")
        return [*row, "–", "invalid", "–", "–", "0"]
    comparison = study.comparison_of(cell)
    if cell.baseline:
        shown = "baseline"
    elif comparison is None:
        shown = "no baseline"
        notes.append(
            f"no baseline for {cell.method} tp{cell.tp} {cell.workload} C={cell.concurrency}: "
            f"ansible-playbook bench.yml -e method={cell.method} measures it (unless -e baseline=false)"
        )
    else:
        shown = times(comparison.speedup)
        if comparison.speedup.reason:
            notes.append(f"{cell.method}: {comparison.speedup.reason}")
    return [
        *row, number(cell.tokens_per_s.value), shown, number(cell.acceptance.value), identical(comparison),
        str(len(cell.starts)),
    ]  # fmt: skip


def text(head: list[str], rows: list[list[str]], right: set[int] = frozenset(), width: int = WIDTH) -> list[str]:
    """Aligned lines no wider than `width`: the widest left-aligned columns give way, marked with '…'."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    while sum(widths) + 2 * (len(widths) - 1) > width:
        widest = max((i for i in range(len(widths)) if i not in right), key=lambda i: widths[i])
        widths[widest] -= 1
    lines = []
    for row in [head, *rows]:
        shown = []
        for column, (value, size) in enumerate(zip(row, widths, strict=True)):
            value = value if len(value) <= size else value[: size - 1] + "…"
            shown.append(value.rjust(size) if column in right else value.ljust(size))
        lines.append("  ".join(shown).rstrip())
    return lines
