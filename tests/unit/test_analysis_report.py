"""The report's files: the founding figures, every number with its cells, names that mean harm, the same bytes again."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from analysis import figures, latex, read, report, study
from analysis.__main__ import main
from analysis.findings import Findings
from tests import founding
from tests.synthetic import AUTOREGRESSIVE, HARM, Method, Workload, write

ROOT = Path(__file__).parents[2]
NGRAM = Method("ngram-simple", acceptance=2.0, step=1.2)


@pytest.fixture(scope="module")
def founded(tmp_path_factory):
    root = founding.build(tmp_path_factory.mktemp("founding"))
    return Findings(study.make(read(root), synthetic=True))


@pytest.fixture(scope="module")
def drawn(founded):
    return {figure.name: figure for figure in figures.make(founded)}


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def series(figure, panel=0):
    return {one.name: one for one in figure.panels[panel].series}


def test_speed_up_by_method_and_prompt_at_tp1(drawn):
    """Founding figure: 12 prompts × 7 methods, each with an interval of its own."""
    figure = drawn["prompts-ct200-qwen3.6-27b-tp1-code"]
    shown = series(figure)
    assert set(shown) == {"dflash", *(method.name for method in founding.DDTREE)}
    assert all(len(one.points) >= 12 and one.points[0].y.has_interval for one in shown.values())


def test_throughput_against_budget(drawn):
    """Founding figure: six budgets in order, the baseline beside them."""
    figure = drawn["budget-ct200-qwen3.6-27b-tp1"]
    assert figure.ticks == ("8", "12", "15", "16", "32", "64")
    (line,) = figure.panels[0].series
    assert [point.x for point in line.points] == list(range(6))
    assert figure.panels[0].baseline.value < min(point.y.value for point in line.points)


def test_tp_1_4_8_alone(drawn):
    """Founding figure: one stream over tensor parallelism, the baseline too."""
    figure = drawn["tp-ct200-qwen3.6-27b"]
    assert figure.ticks == ("TP1", "TP4", "TP8")
    assert "C=1" in figure.title
    assert len(series(figure)["autoregressive"].points) == 3


def test_aggregate_throughput_of_two_models(drawn):
    """Founding figure: a panel a model."""
    figure = drawn["throughput-ct200-code"]
    assert [panel.title for panel in figure.panels] == ["kimi-k2.6 · TP8", "qwen3.6-27b · TP1"]
    assert [point.x for point in series(figure)["eagle3"].points] == list(founding.CONCURRENCY)


def test_eagle3_speed_up_against_concurrency(drawn):
    """Founding figure: it pays alone and costs in a crowd; the line at 1 is there."""
    figure = drawn["concurrency-ct200-kimi-k2.6-tp8"]
    points = series(figure)["eagle3"].points
    assert points[0].y.low > 1 > points[-1].y.high
    assert figure.panels[0].baseline.value == 1


def test_acceptance_and_throughput_against_context(drawn):
    """Founding figure: 3k, 30k, 100k exact tokens, two panels."""
    figure = drawn["context-ct200-qwen3.6-27b-tp1-c1"]
    acceptance, throughput = figure.panels
    assert [point.x for point in series(figure)["dflash"].points] == [3000, 30000, 100000]
    assert "autoregressive" not in {one.name for one in acceptance.series}
    assert "autoregressive" in {one.name for one in throughput.series}


def test_every_point_names_its_cells(founded, drawn):
    """A point that leads nowhere cannot be checked."""
    known = {cell.name for cell in founded.study.cells}
    for figure in drawn.values():
        for row in csv.DictReader(figure.csv().splitlines()):
            assert set(row["cells"].split()) <= known
            assert row["cells"]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    root = tmp_path_factory.mktemp("small") / "results"

    def refuse(cell, rows):
        if cell["method"] == "ngram-simple" and cell["repeat"] == 2:
            cell["validity"] = {
                "valid": False,
                "reasons": [{"code": "host_load_high", "detail": "load 9"}],
                "limits": {},
            }

    write(root, [AUTOREGRESSIVE, NGRAM], [Workload("edit", 4)], repeats=4, edit=refuse)
    return root


def written(root, output, formats=("html", "tex"), plan=None):
    report.write(study.make(read(root), synthetic=True), output, formats, plan)
    return output


def test_the_same_results_give_the_same_bytes(small, tmp_path):
    """HTML, LaTeX, CSV, SVG and PNG, from a copy in another place, in another process with other hashes."""
    moved = tmp_path / "elsewhere"
    shutil.copytree(small, moved)
    for root, output, seed in ((small, "one", "1"), (moved, "two", "2")):
        command = [sys.executable, "-m", "analysis", "report", root, "--synthetic", "--format", "html,tex", "--output"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([*command, tmp_path / output], cwd=ROOT, env=environment, check=True, capture_output=True)
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []


def test_a_report_that_is_there_is_not_written_again(small, tmp_path):
    """report.yml says changed only when something changed."""
    made = study.make(read(small), synthetic=True)
    assert not report.write(made, tmp_path, ("html",))[0].endswith("unchanged")
    before = (tmp_path / "report.html").stat().st_mtime_ns
    assert report.write(made, tmp_path, ("html",))[0].endswith("report.html unchanged")
    assert (tmp_path / "report.html").stat().st_mtime_ns == before


def test_refused_attempts_and_cells_that_were_not_run_are_shown(small, tmp_path):
    """A report that drops what failed shows a better world."""
    plan = {"not_run": [
        {"cell_id": "m.eagle3.tp1.edit.c64-00000000", "host": "lab1", "state": "infeasible",
         "reason": "70 GiB of 24 GiB"},
        {"cell_id": "m.ngram.tp1.edit.c1-00000000", "host": "lab1", "state": "measured", "reason": ""},
    ]}  # fmt: skip
    page = (written(small, tmp_path, plan=plan) / "report.html").read_text()
    assert "host_load_high: load 9" in page
    assert "70 GiB of 24 GiB" in page
    rows = list(csv.DictReader((tmp_path / "tables/not-run.csv").open()))
    assert [row["state"] for row in rows] == ["infeasible"]


def test_a_refused_attempt_is_in_no_number(small, tmp_path):
    """Three of four starts count."""
    written(small, tmp_path)
    rows = {row["method"]: row for row in csv.DictReader((tmp_path / "tables/speedup.csv").open())}
    assert rows["ngram-simple"]["starts"] == "3"
    assert rows["autoregressive"]["starts"] == "4"
    assert rows["ngram-simple"]["requests"] == "12"


def test_synthetic_is_written_on_everything(small, tmp_path):
    """Page, LaTeX and every picture; and without being asked for there is no report at all."""
    written(small, tmp_path)
    assert "SYNTHETIC" in (tmp_path / "report.html").read_text()
    assert "SetWatermarkText{SYNTHETIC}" in (tmp_path / "report.tex").read_text()
    assert main(["report", str(small), "--output", str(tmp_path / "no")]) == 2
    assert not (tmp_path / "no").exists()


def test_what_was_simulated_is_said_without_being_refused(tmp_path):
    """A scripted engine makes a report with its mark on top."""

    def scripted(cell, rows):
        cell["simulated"] = ["scripted engine"]

    write(tmp_path / "results", [AUTOREGRESSIVE], [Workload("edit", 2)], edit=scripted)
    report.write(study.make(read(tmp_path / "results")), tmp_path / "report", ("html", "tex"))
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Not everything was real: scripted engine" in page
    assert "SYNTHETIC" not in page


class Page(HTMLParser):
    """Every element, attribute value and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.values, self.texts = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.values += attributes

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def harmful(tmp_path_factory):
    """Names and notes that try to leave their place."""
    root = tmp_path_factory.mktemp("harmful")

    def edit(cell, rows):
        cell["workload"], cell["notes"] = HARM.replace("/", ":"), [HARM]
        for row in rows:
            row["prompt_id"] = f"{HARM} {row['index']}"

    write(root / "results", [AUTOREGRESSIVE, NGRAM], [Workload("edit", 4)], edit=edit, host="lab_1%")
    return written(root / "results", root / "report")


def test_names_cannot_leave_the_html(harmful):
    """Two scripts and no more, no request to anywhere, and the name readable as it is."""
    text = (harmful / "report.html").read_text()
    page = Page(text)
    assert page.tags.count("script") == 2
    assert page.tags.count("b") == 4
    assert any("<b>" in part and "你" in part for part in page.texts)
    links = [value for name, value in page.values if name in ("src", "href")]
    assert all(link.startswith("data:") for link in links)
    script = text.split('id="data">')[1].split("</script>")[0]
    assert json.loads(script)["cells"]


def test_names_cannot_leave_the_latex(harmful):
    """No name reaches LaTeX as a command."""
    text = (harmful / "report.tex").read_text()
    assert r"\input{" not in text
    assert r"\textbackslash{}input\{" in text
    assert "[U+4F60]" in text


def test_latex_escapes_what_is_special():
    """One of each, as LaTeX prints it."""
    assert latex.escape("a_b & 50% #1 {x} ~^") == r"a\_b \& 50\% \#1 \{x\} \textasciitilde{}\textasciicircum{}"
    assert latex.escape("1.42×") == r"1.42\ensuremath{\times}"
    assert latex.escape("a\x00b\nc") == "ab c"


def test_without_latex_the_source_stays_with_a_sentence(small, tmp_path, monkeypatch):
    """Most hosts have no LaTeX: they get the .tex and the way on."""
    monkeypatch.setattr("analysis.latex.shutil.which", lambda name: None)
    said = report.write(study.make(read(small), synthetic=True), tmp_path, ("pdf",))
    assert any("latexmk -pdf report.tex" in line and "apt install" in line for line in said)
    assert (tmp_path / "report.tex").exists()


def test_a_report_of_one_repeat_says_what_is_missing(tmp_path):
    """One start: values, no interval, no finding, and the sentence on top."""
    write(tmp_path / "results", [AUTOREGRESSIVE, NGRAM], [Workload("edit", 4)], repeats=1)
    page = (written(tmp_path / "results", tmp_path / "report") / "report.html").read_text()
    assert "fewer than 3 repeats of ngram-simple or its baseline: no interval, no finding" in page
    assert "1 repeat: no interval from fewer than 3" in page


def test_a_method_without_baseline_names_the_command(tmp_path):
    """No speed-up is invented; what to run is said."""
    write(tmp_path / "results", [NGRAM], [Workload("edit", 4)])
    page = (written(tmp_path / "results", tmp_path / "report") / "report.html").read_text()
    assert "ansible-playbook bench.yml -e method=ngram-simple measures it" in page
    assert "no baseline" in page


def test_every_image_is_inside_the_page(small, tmp_path):
    """One file that works from a USB stick on a machine without a network."""
    text = (written(small, tmp_path) / "report.html").read_text()
    assert not re.search(r"https?://(?!www\.w3\.org)", text)


def test_bad_options_are_sentences(small, tmp_path, capsys):
    """A wrong format and a plan that is none."""
    assert main(["report", str(small), "--synthetic", "--format", "doc"]) == 2
    assert "unknown format 'doc'" in capsys.readouterr().err
    assert main(["report", str(small), "--synthetic", "--plan", str(tmp_path / "none")]) == 2
    assert "plan" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["report", str(small), "--synthetic", "--output", str(tmp_path / "file")]) == 2
    assert "--output names another folder" in capsys.readouterr().err
