"""report.tex: a paper-ready report whose plots are pgfplots with inline data; compiled where LaTeX is installed."""

import math
import os
import shutil
import subprocess
from pathlib import Path

import jinja2
from matplotlib import colormaps
from matplotlib.colors import to_hex

from analysis import statistics
from analysis.drawing import HEAT, Palette, heat_scale, is_dark, top
from analysis.figures import Figure, Panel
from analysis.findings import Findings
from analysis.grouping import natural
from analysis.html import KINDS, TEMPLATES, summary, warnings
from analysis.study import SYNTHETIC
from analysis.tables import Column, Table

TIMEOUT_S = 600
SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "'": r"\textquotesingle{}", "`": r"\textasciigrave{}", "-": "-{}",
    "×": r"\ensuremath{\times}", "·": r"\textperiodcentered{}", "–": "--", "—": "---", "…": r"\dots{}",
    "→": r"\ensuremath{\rightarrow}", "≤": r"\ensuremath{\leq}", "≥": r"\ensuremath{\geq}", "µ": r"\textmu{}",
    "−": r"\ensuremath{-}", "’": "'", "“": "``", "”": "''", "\t": " ", "\n": " ", "\r": " ",
}  # fmt: skip
WRAPPED = {"remarks": 5.2, "reasons": 9.0, "reason": 9.0, "path": 8.0, "survival": 4.5, "cell": 7.0}  # cm
MARKS = {
    "o": "*", "s": "square*", "D": "diamond*", "^": "triangle*", "v": "triangle*, mark options={rotate=180}",
    "P": "+", "X": "x", "*": "asterisk", "<": "triangle*, mark options={rotate=90}",
    ">": "triangle*, mark options={rotate=270}",
}  # fmt: skip


def escape(text: object) -> str:
    """Text that LaTeX prints as it is; a character that the fonts lack is named by its number."""
    return "".join(_letter(letter) for letter in str(text))


def breakable(text: object) -> str:
    """The same, with places to break long names at."""
    out = []
    for letter in str(text):
        out.append(_letter(letter))
        if letter in "/_-:;=":
            out.append(r"\allowbreak{}")
    return "".join(out)


def _letter(letter: str) -> str:
    if letter in SPECIAL:
        return SPECIAL[letter]
    if letter.isascii():
        return letter if letter.isprintable() else ""
    if letter.isprintable() and "\u00c0" <= letter <= "\u017f":
        return letter
    return rf"\texttt{{[U+{ord(letter):04X}]}}"


def render(findings: Findings, figures: list[Figure], palette: Palette, tables: list[Table]) -> str:
    """The LaTeX source; every name in it is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, block_start_string="<%", block_end_string="%>", variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#", comment_end_string="#>", autoescape=False, finalize=_finalize,
    )  # fmt: skip
    environment.filters["tex"] = lambda text: Source(escape(text))
    environment.filters["breakable"] = lambda text: Source(breakable(text))
    environment.filters["number"] = lambda value: Source(f"{value:.6g}")
    environment.filters["source"] = Source
    looks = {
        (series.name, series.family): palette[series]
        for figure in figures for panel in figure.panels for series in panel.series
    }  # fmt: skip
    colours = {look: f"method{number}" for number, look in enumerate(looks)}
    return environment.get_template("report.tex.j2").render(
        study=findings.study,
        synthetic=SYNTHETIC in findings.study.simulated,
        summary=summary(findings.study),
        warnings=warnings(findings),
        findings=findings.all(),
        claims=len(findings.claims),
        kinds=KINDS,
        figures=figures,
        tables=[Printed(table) for table in tables],
        colours=[(Source(colours[look]), Source(colour.lstrip("#").upper())) for look, (colour, _) in looks.items()],
        look=lambda series: Source(colours[series.name, series.family]),
        mark=lambda series: Source(MARKS[palette[series][1]]),
        axis=Axis,
        heat=heat,
        statistics=statistics,
    )


class Source(str):
    """LaTeX as it is, not text to escape."""


def _finalize(value: object) -> object:
    """Whatever the template did not say how to print is text."""
    return value if isinstance(value, Source | int) else escape(value)


class Printed:
    """A table without the columns that say the same in every row; those go into its caption."""

    def __init__(self, table: Table):
        self.name, self.title, self.rows = table.name, table.title, table.rows
        texts = {column.key: {column.text(row[column.key]) for row in table.rows} for column in table.columns}
        same = [column for column in table.columns if len(table.rows) > 1 and len(texts[column.key]) == 1]
        self.columns = [column for column in table.columns if column not in same]
        told = [f"{column.head} {column.text(table.rows[0][column.key])}" for column in same]
        self.note = table.note + (f" All rows: {', '.join(told)}." if told else "")
        wide = sum(self._width(column, texts[column.key]) for column in self.columns)
        self.landscape = wide > 92
        self.size = Source(r"\tiny" if wide > 160 else r"\scriptsize")
        self.layout = Source("".join(self._layout(column) for column in self.columns))

    @staticmethod
    def _width(column: Column, texts: set[str]) -> int:
        return 30 if column.key in WRAPPED else max(map(len, [column.head, *texts])) + 2

    def _layout(self, column: Column) -> str:
        if column.key in WRAPPED:
            return f">{{\\raggedright\\arraybackslash}}p{{{WRAPPED[column.key]}cm}}"
        return "l" if all(isinstance(row[column.key], str) for row in self.rows) else "r"

    def text(self, column: Column, row: dict) -> Source:
        text = column.text(row[column.key])
        return Source(breakable(text) if column.key in WRAPPED else escape(text))


class Axis:
    """Limits and ticks of one panel."""

    def __init__(self, figure: Figure, panel: Panel):
        shared = figure.panels if figure.share_y or figure.kind in ("dots", "plane") else [panel]
        points = [point for one in shared for series in one.series for point in series.points]
        self.top = top(shared)
        self.right = 1.12 * max([1.0, *(point.x for point in points)])
        ends = [1.0, *(end for p in points for end in (p.y.value, p.y.low, p.y.high) if not math.isnan(end))]
        margin = 0.05 * (max(ends) - min(ends)) or 0.05
        self.left_end, self.right_end = min(ends) - margin, max(ends) + margin
        at = sorted({point.x for series in panel.series for point in series.points})
        names = [figure.ticks[int(x)] if figure.ticks else f"{x / 1000:g}k" if x >= 1000 else f"{x:g}" for x in at]
        self.ticks = Source(",".join(f"{x:g}" for x in at))
        self.names = Source(",".join(f"{{{escape(name)}}}" for name in names))
        rows = sorted({series.name for one in figure.panels for series in one.series}, key=natural)
        self.rows = {name: -place for place, name in enumerate(rows)}
        self.row_ticks = Source(",".join(str(-place) for place in range(len(rows))))
        self.row_names = Source(",".join(f"{{{escape(name)}}}" for name in rows))
        self.lowest = -len(rows) + 0.4


def heat(figure: Figure) -> list[tuple[Source, list[tuple[Source, Source, Source]]]]:
    """(row's name, [(background, ink, value) of each method])."""
    panel = figure.panels[0]
    values = [p.y.value for series in panel.series for p in series.points if not math.isnan(p.y.value)]
    scale = heat_scale(values)
    rows = []
    for place, name in enumerate(figure.ticks):
        fields = []
        for series in panel.series:
            value = next((point.y for point in series.points if point.x == place), None)
            if value is None or math.isnan(value.value):
                fields.append((Source("FFFFFF"), Source("888888"), Source("--")))
                continue
            shade = float(scale(value.value))
            ink = ("FFFFFF" if is_dark(shade) else "111111") if value.excludes_one else "888888"
            ground = to_hex(colormaps[HEAT](shade)).lstrip("#").upper()
            fields.append((Source(ground), Source(ink), Source(f"{value.value:.2f}")))
        rows.append((Source(escape(name)), fields))
    return rows


def compile_pdf(source: Path) -> str:
    """Make the PDF beside `source`; returns '' or, in a sentence, why there is none and what to do."""
    by_hand = f"cd {source.parent} && latexmk -pdf {source.name}"
    if not (shutil.which("latexmk") and shutil.which("pdflatex")):
        return (
            f"{source} is ready, but latexmk and pdflatex are not installed here: apt install latexmk lmodern "
            f"texlive-latex-extra texlive-pictures texlive-fonts-recommended, then {by_hand}"
        )
    command = ["latexmk", "-pdf", "-interaction=nonstopmode", "-halt-on-error", "-silent", source.name]
    try:
        done = subprocess.run(
            command, cwd=source.parent, capture_output=True, text=True, timeout=TIMEOUT_S, errors="replace",
            env={**os.environ, "SOURCE_DATE_EPOCH": "0", "FORCE_SOURCE_DATE": "1", "max_print_line": "1000"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"LaTeX took more than {TIMEOUT_S} s on {source}; {by_hand} runs it without that limit"
    if done.returncode:
        log = source.with_suffix(".log")
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        errors = [line for line in lines if line.startswith("!")]
        return (
            f"LaTeX could not compile {source}: {errors[0] if errors else 'see ' + str(log)}; {by_hand} shows all of it"
        )
    for leftover in ("aux", "fdb_latexmk", "fls", "log", "out"):
        source.with_suffix(f".{leftover}").unlink(missing_ok=True)
    return ""
