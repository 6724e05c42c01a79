"""A run over no host ends well in Ansible's eyes; whoever mistyped a group or a path believes that all is done."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def play(playbook, inventory, *more):
    command = [sys.executable, "-m", "ansible", "playbook", playbook, "-i", str(inventory), *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("playbook", ["site.yml", "bench.yml", "restage.yml"])
def test_an_inventory_without_the_group_is_refused(tmp_path, playbook):
    hosts = tmp_path / "hosts.yml"
    hosts.write_text("inferense: {hosts: {a: }}\n")
    for more in ([], ["--limit", "a"]):
        status, said = play(playbook, hosts, *more)
        assert status and f"{hosts} has no host in the group inference; its groups are inferense" in said


def test_an_inventory_that_is_not_there_is_refused(tmp_path):
    status, said = play("site.yml", tmp_path / "typo")
    assert status and f"Completely failed to parse inventory source {tmp_path}/typo" in said
