"""Ansible passes module results through JSON to every later task: the plan's cells must stay in its file."""

import json
from pathlib import Path

import pytest
import yaml

from gauntlet import job, plan
from gauntlet.errors import GauntletError
from tests.loading import loaded

ROOT = Path(__file__).parents[2]
LAB = {"lab1": {"engine_builds": {"llamacpp": "xllamacpp-2026.10.11549"}, "conditions": {"kernel": "6.8"}}}


@pytest.fixture(scope="module")
def module():
    return loaded(ROOT / "library/campaign_plan.py")


def params(tmp_path, **selection):
    return {
        "catalog": [str(ROOT / "catalog")], "selection": {"campaign": "lab", **selection}, "hosts": LAB,
        "lost": [], "results": str(tmp_path / "results"), "plan": str(tmp_path / "plans/bench.json"),
    }  # fmt: skip


def test_what_returns_is_what_is_documented_and_the_file_has_the_rest(module, tmp_path):
    answer = module.run(params(tmp_path, method="ngram-simple"), write=True)
    assert answer.keys() == yaml.safe_load(module.RETURN).keys()
    assert answer["counts"]["lab1"]["to_measure"] == 8
    assert all(start["cells"] == 4 for start in answer["activations"]["lab1"])
    assert [d["method"] for d in answer["deployments"]["lab1"]] == ["autoregressive", "ngram-simple"]
    assert "prompts" not in json.dumps(answer["activations"])
    made = plan.load(answer["plan"])
    start = answer["activations"]["lab1"][0]
    carried = job.make(made, "lab1", start["deployment"], start["repeat"], start["closing"], results="/r")
    assert [cell["workload_content"]["requests"] for cell in carried["cells"]] == [4, 4, 4, 4]


def test_check_mode_leaves_no_file(module, tmp_path):
    answer = module.run(params(tmp_path), write=False)
    assert answer["counts"]["lab1"]["to_measure"] == 12
    assert not any(tmp_path.iterdir())


def test_a_results_folder_that_is_none_is_said(module, tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(GauntletError, match="cannot read the results folder"):
        module.run(params(tmp_path), write=False)


def test_a_results_folder_that_cannot_be_written_is_said_before_anything_is_measured(module, tmp_path, monkeypatch):
    """Root may write anywhere but below a file and on a read-only mount."""
    (tmp_path / "file").write_text("")
    asked = params(tmp_path) | {"results": str(tmp_path / "file/results")}
    with pytest.raises(GauntletError, match=r"results folder .*/results cannot be written: .*/file is no folder"):
        module.run(asked, write=True)
    monkeypatch.setattr(module.attempts.os, "access", lambda path, mode: False)
    with pytest.raises(GauntletError, match=r"cannot be written: .* is not writable \(gauntlet_results\)"):
        module.run(params(tmp_path), write=True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_plan_cannot_be_written_is_said(module, tmp_path):
    (tmp_path / "plans").write_text("")
    with pytest.raises(GauntletError, match="cannot write the plan"):
        module.run(params(tmp_path), write=True)
