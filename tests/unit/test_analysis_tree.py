"""Reading results: everything that is there and nothing that is not."""

import gzip
import hashlib
import json

import numpy as np
import pytest

from analysis import load, read
from analysis.__main__ import main
from gauntlet.errors import GauntletError
from tests.synthetic import AUTOREGRESSIVE, Method, Workload, attempts, save, write

NGRAM = Method("ngram-simple", acceptance=2.0, step=1.2)


@pytest.fixture
def tree(tmp_path):
    write(tmp_path, [AUTOREGRESSIVE, NGRAM], [Workload("edit", prompts=4)])
    return tmp_path


def attempt_of(tree, method):
    return sorted(path.parent for path in tree.rglob("cell.json") if f".{method}." in str(path))[0]


def change(folder, **values):
    path = folder / "cell.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_two_frames_with_units_in_their_names(tree):
    """Every attempt is a row, every request too, and a request points to its attempt."""
    cells, requests = load(tree)
    assert len(cells) == 6
    assert len(requests) == 24
    assert set(requests["attempt"]) == set(range(6))
    assert cells["ttft_ms_p50"].notna().all()
    one = requests[requests["attempt"] == 0]
    assert cells["requests"][0] == len(one)
    assert cells["completion_tokens"][0] == one["completion_tokens"].sum()


def test_null_is_not_zero(tree):
    """The baseline drafts nothing: its steps are unknown, not none."""
    cells, requests = load(tree)
    baseline = requests["attempt"].map(cells["baseline"])
    assert requests.loc[baseline, "verify_steps"].isna().all()
    assert requests.loc[~baseline, "verify_steps"].notna().all()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda folder: (folder / "cell.json").write_text('{"schema": 1, "cell'), "torn"),
        (lambda folder: (folder / "cell.json").write_text("[]"), "no schema"),
        (lambda folder: change(folder, schema=2), "schema 2 is newer"),
        (lambda folder: change(folder, concurrency="two"), "'concurrency' is 'two'"),
        (lambda folder: change(folder, conditions=None), "'conditions'"),
        (lambda folder: change(folder, validity={}), "valid"),
        (lambda folder: (folder / "requests.jsonl.gz").unlink(), "requests.jsonl.gz cannot be read"),
        (lambda folder: (folder / "requests.jsonl.gz").write_bytes(b"\x1f\x8b"), "damaged"),
        (lambda folder: (folder / "cell.json").unlink(), "no cell.json"),
    ],
)
def test_what_cannot_be_read_is_listed_and_does_not_hurt_the_rest(tree, harm, reason):
    """One torn attempt must neither crash a report nor vanish from it."""
    folder = attempt_of(tree, "ngram-simple")
    harm(folder)
    results = read(tree)
    assert len(results.cells) == 5
    (problem,) = results.problems
    assert str(folder) in problem.path
    assert reason in problem.reason


@pytest.mark.parametrize(
    "line", ["not json", "[1]", '{"completion_tokens": "many"}', '{"prompt_id": {"a": 1}}', '{"error": "text"}']
)
def test_a_line_that_is_no_request_makes_its_attempt_unreadable(tree, line):
    """Half an attempt would be another measurement than the one that was made."""
    folder = attempt_of(tree, "ngram-simple")
    packed = gzip.compress(f"{line}\n".encode())
    (folder / "requests.jsonl.gz").write_bytes(packed)
    change(folder, files={"requests.jsonl.gz": hashlib.sha256(packed).hexdigest()})
    results = read(tree)
    assert len(results.cells) == 5
    assert "not a request" in results.problems[0].reason


def test_foreign_files_are_listed_and_unfinished_ones_left_alone(tree):
    """A file that someone put there is named; what is being written is not touched and not counted."""
    (tree / "notes.txt").write_text("mine")
    (tree / "README.md").write_text("ours")
    (tree / "lab1" / ".r0.partial").mkdir()
    results = read(tree)
    assert [problem.reason for problem in results.problems] == ["not part of a results tree"]
    assert len(results.cells) == 6


def test_the_same_attempt_in_two_trees_counts_once(tmp_path):
    """A copied results folder beside the original must not double the number of repeats."""
    for name in ("one", "two"):
        write(tmp_path / name, [AUTOREGRESSIVE], [Workload("edit", prompts=2)])
    assert len(read(tmp_path / "one", tmp_path / "two").cells) == 3


def test_an_attempt_that_differs_from_its_namesake_is_named(tmp_path):
    """Two versions of one attempt: one of them was edited, and a report must say so."""
    for name in ("one", "two"):
        for cell, rows in attempts([AUTOREGRESSIVE], [Workload("edit", prompts=2)], repeats=1):
            save(tmp_path / name, cell, rows[: 1 if name == "two" else None])
    results = read(tmp_path / "one", tmp_path / "two")
    assert len(results.cells) == 1
    assert "differs from the attempt of that name" in results.problems[0].reason


def test_campaigns_hosts_and_builds_together(tmp_path):
    """Several trees make one study, each attempt once."""
    for host in ("lab1", "lab2"):
        write(tmp_path / host, [AUTOREGRESSIVE], [Workload("edit", prompts=2)], host=host, campaign=host)
    cells, _ = load(tmp_path / "lab1", tmp_path / "lab2")
    assert set(cells["host"]) == set(cells["campaign"]) == {"lab1", "lab2"}


def test_many_attempts_are_read_in_parallel_and_in_the_same_order(tmp_path, monkeypatch):
    """Two processes must give what one gives."""
    write(tmp_path, [AUTOREGRESSIVE, NGRAM], [Workload("edit", prompts=2)], concurrency=(1, 2))
    alone = read(tmp_path)
    monkeypatch.setattr("analysis.tree.PARALLEL_FROM", 1)
    monkeypatch.setattr("analysis.tree.BATCH", 5)
    together = read(tmp_path)
    assert alone.cells.drop(columns="document").equals(together.cells.drop(columns="document"))
    assert np.array_equal(alone.requests["last"], together.requests["last"])
    assert list(alone.requests["prompt_id"]) == list(together.requests["prompt_id"])


@pytest.mark.parametrize("command", ["table", "report"])
def test_bad_input_is_one_sentence_and_status_2(command, tmp_path, capsys):
    """People mistype paths; they get told what is wrong, not a traceback."""
    empty, file = tmp_path / "empty", tmp_path / "file"
    empty.mkdir()
    file.write_text("")
    for path, said in ((tmp_path / "none", "does not exist"), (file, "is a file"), (empty, "no results in")):
        assert main([command, str(path)]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_only_invalid_cells_is_one_sentence(tmp_path, capsys):
    """Nothing can be quoted, and the reasons say what to remove."""

    def refuse(cell, rows):
        cell["validity"] = {"valid": False, "reasons": [{"code": "client_lag", "detail": "9 ms"}], "limits": {}}

    write(tmp_path, [AUTOREGRESSIVE], [Workload("edit", prompts=2)], edit=refuse)
    assert main(["table", str(tmp_path), "--synthetic"]) == 2
    assert "no valid attempt among 3 (client_lag)" in capsys.readouterr().err


def test_only_unreadable_attempts_names_the_first(tree):
    """An empty report would hide that there was something."""
    for path in tree.rglob("cell.json"):
        path.write_text("{}")
    with pytest.raises(GauntletError, match="6 unreadable, first"):
        read(tree)
