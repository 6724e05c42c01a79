"""The report's files from a study: report.html, each figure as SVG and PNG. The same results give the same bytes."""

from pathlib import Path

import jinja2

from analysis import figures, tables
from analysis.study import Study
from gauntlet.errors import GauntletError

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"


def write(study: Study, output: Path) -> list[Path]:
    """Write the report into `output` (made when missing); returns its files, report.html first.

    Raises GauntletError when the folder cannot be written.
    """
    drawn = figures.make(study)
    files = {"report.html": _html(study, drawn).encode()}
    for figure in drawn:
        files[f"figures/{figure.name}.svg"] = figure.svg.encode()
        files[f"figures/{figure.name}.png"] = figure.png
    try:
        for name, content in files.items():
            path = output / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as error:
        raise GauntletError(
            f"report folder {output} cannot be written: {error.strerror}; --output names another"
        ) from None
    return [output / name for name in files]


def _html(study: Study, drawn: list[figures.Figure]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("report.html.j2").render(study=study, figures=drawn, tables=tables)
