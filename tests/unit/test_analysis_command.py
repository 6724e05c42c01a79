"""compare and explain: what a script relies on, exit status included."""

import pytest

from analysis.__main__ import main
from tests.synthetic import AUTOREGRESSIVE, Method, Workload, write


@pytest.fixture
def trees(tmp_path):
    """Two builds: the second one's method is 10 % slower, its baseline is the same."""
    for build, step in (("old", 1.2), ("new", 1.32)):
        methods = [AUTOREGRESSIVE, Method("ngram", 2.0, step)]
        for root in (tmp_path / build, tmp_path / "both"):
            write(root, methods, [Workload("edit")], engine_build=build, seed=len(build) + int(step > 1.2))
    return tmp_path


def run(capsys, *arguments):
    status = main(list(map(str, arguments)))
    out, err = capsys.readouterr()
    return status, out, err


def test_a_cell_that_got_slower_is_status_1_and_says_what_changed(trees, capsys):
    """CI wants one bit, people want the reason."""
    status, out, _ = run(capsys, "compare", trees / "old", trees / "new", "--synthetic")
    assert status == 1
    (moved,) = [line for line in out.splitlines() if line.endswith("slower")]
    assert moved.startswith("ngram")
    assert "engine_build: old → new" in out
    assert all(len(line) <= 100 for line in out.splitlines())


def test_faster_or_under_the_threshold_is_status_0(trees, capsys):
    """A gain is no failure, and a threshold is the team's tolerance."""
    assert run(capsys, "compare", trees / "new", trees / "old", "--synthetic")[0] == 0
    status, out, _ = run(capsys, "compare", trees / "old", trees / "new", "--synthetic", "--threshold", "20%")
    assert status == 0
    assert "under threshold" in out


def test_parts_of_one_tree_compare_by_selectors(trees, capsys):
    """Builds, hosts, campaigns or tuning profiles that share a results folder."""
    options = ("--results", trees / "both", "--synthetic")
    assert run(capsys, "compare", "engine_build=old", "engine_build=new", *options)[0] == 1
    status, _, err = run(capsys, "compare", "engine_build=old", "engine_build=never", *options)
    assert (status, "unknown engine_build 'never'" in err) == (2, True)
    status, _, err = run(capsys, "compare", "build=old", "build=new", *options)
    assert (status, "unknown selector 'build'" in err) == (2, True)


@pytest.mark.parametrize("threshold", ["five", "-1", "100", "nan"])
def test_a_threshold_that_is_no_percent_is_refused(threshold, trees, capsys):
    """A typo must not wave everything through."""
    status, _, err = run(capsys, "compare", trees / "old", trees / "new", "--synthetic", f"--threshold={threshold}")
    assert status == 2
    assert "threshold" in err


def test_nothing_in_common_and_nothing_to_judge_are_status_2(trees, tmp_path, capsys):
    """Silence would look like agreement."""
    write(tmp_path / "other", [AUTOREGRESSIVE], [Workload("prose")])
    status, _, err = run(capsys, "compare", trees / "old", tmp_path / "other", "--synthetic")
    assert (status, "no cell in common" in err) == (2, True)
    write(tmp_path / "one", [AUTOREGRESSIVE], [Workload("edit")], repeats=1)
    status, _, err = run(capsys, "compare", tmp_path / "one", tmp_path / "one", "--synthetic")
    assert (status, "measure more repeats" in err) == (2, True)


def test_explain_shows_the_parts_that_differ(trees, capsys):
    """Two cells, path by path; status 1 like diff."""
    results = ("--results", trees / "old")
    a, b = (next((trees / "old").rglob(f"*.{method}.*")).name for method in ("ngram", "autoregressive"))
    status, out, _ = run(capsys, "explain", a, b, *results)
    assert status == 1
    assert "arguments.method: ngram → autoregressive" in out
    assert run(capsys, "explain", a, a, *results)[0] == 0
    status, _, err = run(capsys, "explain", a, "nothing", *results)
    assert (status, "no cell begins with 'nothing'" in err) == (2, True)
    status, _, err = run(capsys, "explain", a, "smollm2", *results)
    assert (status, "2 cells begin with 'smollm2'" in err) == (2, True)
