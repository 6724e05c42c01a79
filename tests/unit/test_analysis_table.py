"""The closing table is what most people read: it must be right, fit a terminal and invent nothing."""

import pytest

from analysis import read, study, terminal
from analysis.findings import Findings
from gauntlet.errors import GauntletError
from tests.synthetic import AUTOREGRESSIVE, Method, Workload, write

NGRAM = Method("ngram-simple", acceptance=2.0, step=1.2, by_workload={"prose": 0.0})


def table(root):
    return terminal.closing(Findings(study.make(read(root), synthetic=True)))


def test_a_method_stands_beside_its_baseline(tmp_path):
    """A known truth of 2.0 / 1.2 must be shown with its interval, in 100 columns."""
    write(tmp_path, [AUTOREGRESSIVE, NGRAM], [Workload("edit"), Workload("prose")])
    lines = table(tmp_path).splitlines()
    assert max(map(len, lines)) <= 100
    assert any("autoregressive" in line and "baseline" in line for line in lines)
    (edit,) = [line for line in lines if line.startswith("ngram-simple") and " edit " in line]
    assert "identical" in edit and "[" in edit


def test_synthetic_results_are_refused_unless_asked_for(tmp_path):
    """A made-up number must never look like a measured one."""
    write(tmp_path, [AUTOREGRESSIVE], [Workload("edit")])
    with pytest.raises(GauntletError, match="--synthetic"):
        study.make(read(tmp_path))


def test_drift_stands_below_the_table(tmp_path):
    """Most people read no more than this table."""
    write(tmp_path, [AUTOREGRESSIVE], [Workload("edit")], closing=("autoregressive",), drift=0.9)
    assert "the baseline drifted on lab1" in table(tmp_path)


def test_long_names_stay_within_the_terminal(tmp_path):
    """Names give way, numbers do not."""
    long = Method("ngram-" + "x" * 80, acceptance=2.0, step=1.2)
    write(tmp_path, [AUTOREGRESSIVE, long], [Workload("edit-" + "y" * 60)], host="h" * 90)
    lines = table(tmp_path).splitlines()
    assert max(map(len, lines)) <= 100
    assert any("…" in line and "1.6" in line for line in lines)


def test_what_must_not_be_missed_stands_below(tmp_path):
    """Refused attempts, few repeats, a missing baseline and unreadable files: each in its sentence."""

    def refuse(cell, rows):
        if cell["workload"] == "prose":
            cell["validity"] = {"valid": False, "reasons": [{"code": "client_lag", "detail": "9 ms"}], "limits": {}}

    write(tmp_path, [AUTOREGRESSIVE, NGRAM], [Workload("edit"), Workload("prose")], repeats=2, edit=refuse)
    write(tmp_path, [Method("eagle3", 3.0, 1.3)], [Workload("other")])
    (tmp_path / "notes.txt").write_text("")
    text = " ".join(table(tmp_path).split())
    for wanted in (
        "not quoted: client_lag: 9 ms", "ngram-simple: 2 repeats: no interval from fewer than 3",
        "eagle3 has no baseline on lab1: ansible-playbook bench.yml -e method=eagle3 --limit lab1 measures it",
        "1 file not readable", "not real: synthetic",
    ):  # fmt: skip
        assert wanted in text
