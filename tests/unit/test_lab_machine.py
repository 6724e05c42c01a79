"""What a run says that it changed must be what it did: a lab host that is only slow to greet is neither booted again
nor called changed."""

import json
import os
import shutil
from pathlib import Path

import ansible.module_utils
import pytest
from ansible.module_utils.testing import patch_module_args

from tests.loading import loaded

ROOT = Path(__file__).parents[2]


@pytest.fixture
def module(monkeypatch):
    monkeypatch.setattr(ansible.module_utils, "__path__", [*ansible.module_utils.__path__, str(ROOT / "module_utils")])
    return loaded(ROOT / "library/lab_machine.py")


@pytest.mark.parametrize("greets", [True, False])
def test_a_silent_host_is_changed_only_when_it_is_booted_again(module, monkeypatch, tmp_path, capsys, greets):
    booted = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(module, "observe", lambda folder: "silent")
    monkeypatch.setattr(module, "wait_for_ssh", lambda folder, timeout: greets)
    for step in ("remove_cgroups", "make"):
        monkeypatch.setattr(module, step, lambda *arguments: None)
    monkeypatch.setattr(module, "boot", lambda folder, name, *_: booted.append(name))
    asked = {"name": "lab7", "folder": str(tmp_path), "image": "/image", "supervisor": "/supervisor"}
    with patch_module_args(asked), pytest.raises(SystemExit):
        module.main()
    told = json.loads(capsys.readouterr().out)
    assert booted == ([] if greets else ["lab7"])
    assert (told["changed"], told["was"]) == (not greets, "silent")
    assert (told["diff"]["before"] != told["diff"]["after"]) == (not greets)
