"""The closing table: compact text that fits a terminal of 100 columns."""

import textwrap
from collections import Counter

from analysis import wording
from analysis.cell import Cell
from analysis.comparison import Comparison
from analysis.findings import Findings
from analysis.statistics import Estimate
from analysis.study import Study
from analysis.tables import speedup_of

WIDTH = 100
HEAD = ["method", "workload", "C", "tokens/s", "speed-up [95 %]", "acceptance", "output", "n"]
RIGHT = {2, 3, 5, 7}


def closing(findings: Findings) -> str:
    """Method × workload × concurrency: tokens/s, speed-up with interval, acceptance length, output identical or not."""
    study = findings.study
    groups: dict[tuple, list[Cell]] = {}
    for cell in study.cells:
        if not cell.closing:
            groups.setdefault(cell.series, []).append(cell)
    several = Counter((host, *rest) for host, _, *rest in groups)
    lines = []
    for (host, conditions, *rest), cells in groups.items():
        model, tp, engine, build = rest
        head = f"{host} · {model} · tp{tp} · {build if engine in build else f'{engine} {build}'}"
        lines += wrapped(head + (f" · conditions {conditions[:8]}" if several[host, *rest] > 1 else ""))
        lines += aligned(HEAD, [_row(study, cell) for cell in cells], RIGHT) + [""]
    lines += [line for note in _notes(findings) for line in wrapped(note)]
    return "\n".join(lines).rstrip()


def _row(study: Study, cell: Cell) -> list[str]:
    what = [cell.method, cell.workload, str(cell.concurrency)]
    if not cell.valid:
        return [*what, wording.NONE, "invalid", wording.NONE, wording.NONE, "0"]
    speedup = "baseline" if cell.baseline else speedup_of(study, cell)
    return [
        *what,
        wording.number(cell.tokens_per_s.value),
        wording.ratio(speedup) if isinstance(speedup, Estimate) else speedup,
        wording.number(cell.acceptance.value),
        _output(study.comparison_of(cell)),
        str(len(cell.starts)),
    ]


def _output(comparison: Comparison | None) -> str:
    """Whether the method's outputs are the baseline's, prompt by prompt."""
    if comparison is None:
        return wording.NONE
    same = comparison.same_output
    if not same.asked:
        return "not stored"
    return f"differs {len(same.differing)}/{same.asked}" if same.differing else "identical"


def _notes(findings: Findings) -> list[str]:
    """What must not be missed, each thing once."""
    study = findings.study
    notes = [f"not real: {', '.join(study.simulated)}"] if study.simulated else []
    notes += [one.text for one in findings.all() if one.kind == "drift"]
    for cell in study.cells:
        if cell.reasons:
            notes.append(
                f"{cell.cell_id}: {'an attempt is ' if cell.valid else ''}not quoted: {'; '.join(cell.reasons)}"
            )
    for names in (study.doubts, study.remarks):
        notes += [f"{name}: {'; '.join(found)}" for name, found in names.items()]
    few = [comparison for comparison in study.comparisons if comparison.speedup.reason]
    notes += sorted({f"{one.method.method}: {one.speedup.reason}" for one in few})
    alone = sorted({(cell.document["method"], cell.host) for cell in study.without_baseline})
    notes += [
        f"{method} has no baseline on {host}: ansible-playbook bench.yml -e method={method} --limit {host} measures it"
        for method, host in alone
    ]
    if study.problems:
        first = study.problems[0]
        notes.append(
            f"{wording.plural(len(study.problems), 'file')} not readable, the first: {first.path}: {first.reason}"
        )
    return list(dict.fromkeys(notes))


def aligned(head: list[str], rows: list[list[str]], right: set[int] = frozenset(), width: int = WIDTH) -> list[str]:
    """Aligned lines no wider than `width`: the widest columns of text give way, cut with '…'."""
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


def wrapped(text: str, width: int = WIDTH) -> list[str]:
    """A sentence over as many lines as it takes, the later ones indented; words longer than a line are broken."""
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)
