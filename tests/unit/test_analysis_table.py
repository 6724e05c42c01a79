"""The closing table is what most people read: it must be right, fit a terminal and invent nothing."""

import pytest

from analysis import read, study, terminal
from gauntlet.errors import GauntletError
from tests.synthetic import AUTOREGRESSIVE, Method, Workload, write

NGRAM = Method("ngram-simple", acceptance=2.0, step=1.2, by_workload={"prose": 0.0})


def table(root):
    return terminal.closing(study.make(read(root), synthetic=True))


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
