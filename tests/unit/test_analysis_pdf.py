"""report.tex compiled for real: what no reading of the source can tell."""

import shutil
import subprocess

import pytest

from analysis import read, report, study
from tests import founding
from tests.synthetic import AUTOREGRESSIVE, HARM, Method, Workload, write

pytestmark = pytest.mark.tex


def text_of(pdf):
    return subprocess.run(["pdftotext", "-layout", pdf, "-"], capture_output=True, text=True, check=True).stdout


def compiled(root, output):
    assert shutil.which("latexmk"), "make tex installs it"
    said = report.write(study.make(read(root), synthetic=True), output, ("pdf",))
    assert str(output / "report.pdf") in said, said
    return output / "report.pdf"


def test_the_founding_figures_compile(tmp_path):
    """Every kind of plot and table, with the numbers that the study has."""
    pdf = compiled(founding.build(tmp_path / "results"), tmp_path / "report")
    text = text_of(pdf)
    for wanted in (
        "Speed-up by method and prompt", "Throughput against budget", "Throughput against tensor parallelism",
        "Aggregate throughput against concurrency", "Speed-up against concurrency", "against context", "100k",
        "Findings",
        "is fastest", "stops paying", "best budget of ddtree", "Losslessness",
    ):  # fmt: skip
        assert wanted in text, wanted


def test_names_that_mean_harm_compile(tmp_path):
    """Quotes, braces, backslashes, other alphabets: printed, not obeyed."""

    def edit(cell, rows):
        cell["workload"], cell["notes"] = HARM.replace("/", ":"), [HARM]
        for row in rows:
            row["prompt_id"] = f"{HARM} {row['index']}"

    write(
        tmp_path / "results",
        [AUTOREGRESSIVE, Method("ngram", 2.0, 1.2)],
        [Workload("edit", 4)],
        edit=edit,
        host="lab_1%",
    )
    text = text_of(compiled(tmp_path / "results", tmp_path / "report"))
    assert r"\input{" in text
    assert "lab_1%" in text


def test_the_same_results_give_the_same_pdf(tmp_path):
    """Dates and random identifiers are left out."""
    write(tmp_path / "results", [AUTOREGRESSIVE, Method("ngram", 2.0, 1.2)], [Workload("edit", 4)])
    one, two = (compiled(tmp_path / "results", tmp_path / name).read_bytes() for name in ("one", "two"))
    assert one == two
