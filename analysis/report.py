"""The report's files from a study: report.html, report.tex, each figure as SVG, PNG and CSV, each table as CSV.

The same results give the same bytes."""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from analysis import figures, html, latex, tables
from analysis.drawing import Palette, draw
from analysis.findings import Findings
from analysis.study import SYNTHETIC, Study
from gauntlet.errors import GauntletError

FORMATS = ("html", "tex", "pdf")
PARALLEL_FROM = 12  # figures; below it one process is faster than starting more


def write(study: Study, output: Path, formats: tuple[str, ...] = FORMATS, plan: dict | None = None) -> list[str]:
    """Write the report into `output` (made when missing); returns a line for each thing made, or why it was not.

    `formats`: html; tex; pdf (the tex compiled, where LaTeX is installed). `plan` adds the cells that were not run.
    Raises GauntletError when the folder cannot be written.
    """
    findings = Findings(study)
    shown, listed = figures.make(findings), tables.make(findings, plan)
    palette = Palette(shown)
    watermark = "SYNTHETIC" if SYNTHETIC in study.simulated else ""
    drawn = _drawn(shown, palette, watermark)
    files = {}
    if "html" in formats:
        files["report.html"] = html.render(findings, shown, drawn, listed).encode()
    if "tex" in formats or "pdf" in formats:
        files["report.tex"] = latex.render(findings, shown, palette, listed).encode()
    pages = list(files)
    for figure in shown:
        svg, png = drawn[figure.name]
        files |= {f"figures/{figure.name}.svg": svg.encode(), f"figures/{figure.name}.png": png}
        files[f"figures/{figure.name}.csv"] = figure.csv().encode()
    files |= {f"tables/{table.name}.csv": table.csv().encode() for table in listed}
    changed = _write(output, files)
    said = [f"{output / name}{'' if name in changed else ' unchanged'}" for name in pages]
    if "pdf" in formats and not changed and (output / "report.pdf").exists():
        said.append(f"{output / 'report.pdf'} unchanged")
    elif "pdf" in formats:
        said.append(latex.compile_pdf(output / "report.tex") or str(output / "report.pdf"))
    said += [f"{output}/figures: {len(shown)} as svg, png and csv", f"{output}/tables: {len(listed)} as csv"]
    return said


def _drawn(shown: list[figures.Figure], palette: Palette, watermark: str) -> dict[str, tuple[str, bytes]]:
    """Each figure by name, drawn side by side when there are many."""
    one = partial(draw, palette=palette, watermark=watermark)
    if len(shown) < PARALLEL_FROM:
        return {figure.name: one(figure) for figure in shown}
    with ProcessPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        return dict(zip((figure.name for figure in shown), pool.map(one, shown), strict=True))


def _write(output: Path, files: dict[str, bytes]) -> set[str]:
    """Write what is not there already; returns the names of what was written."""
    changed = {name for name, content in files.items() if not _is(output / name, content)}
    try:
        for name in sorted(changed):
            path = output / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[name])
    except OSError as error:
        raise GauntletError(
            f"the report cannot be written to {output}: {error.strerror}; --output names another folder"
        ) from None
    return changed


def _is(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False
