"""Playbooks as people run them, through ansible-runner, on a lab host of the tests' own."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import ansible_runner
import pytest

ROOT = Path(__file__).parents[2]
INVENTORIES = ["-i", str(ROOT / "inventory/lab"), "-i", str(Path(__file__).parent / "inventory")]
LABS = Path("/var/lib/gauntlet-lab")
TROUBLE = re.compile(r"\[DEPRECATION WARNING\]|\[WARNING\]|\[ERROR\]: Unexpected")


def ssh(host: str, command: str) -> str:
    """A command's output, by nothing of Ansible's: a fresh connection through our ProxyCommand."""
    proxy = f"{sys.executable} -I {ROOT}/roles/lab_host/files/connect.py {LABS} {host} %p"
    known = LABS / host / "known_hosts"
    options = ["-F", "none", "-i", LABS / host / "id_ed25519", "-o", f"ProxyCommand={proxy}",
               "-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes"]  # fmt: skip
    done = subprocess.run(["ssh", *options, f"root@{host}", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


@dataclass
class Run:
    """What one ansible-playbook did: exit status, its output, how many tasks failed on each host in the end, and what
    changed and what failed, by host and task."""

    status: int
    output: str
    failed: dict[str, int]
    changes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def ok(self):
        assert self.status == 0, f"failed: {self.failures}\n{self.output[-6000:]}"
        noise = [line for line in self.output.splitlines() if TROUBLE.search(line)]
        assert not noise, f"warnings are faults to be fixed: {noise}"
        return self

    def unchanged(self):
        self.ok()
        assert self.changes == [], f"a second run changes nothing, this one did: {self.changes}"
        return self

    def refused(self, sentence):
        """It said no in one sentence, this one (a regular expression): the only failure of its host, and one line, with
        nothing below it but what it announces by a colon."""
        assert self.status != 0, f"it should have been refused:\n{self.output[-3000:]}"
        said = [failure for failure in self.failures if re.search(sentence, failure)]
        assert said, f"expected {sentence!r} in: {self.failures}\n{self.output[-4000:]}"
        head, _, below = said[-1].partition("\n")
        assert head.endswith(":") or not below, f"not one sentence: {said[-1]}"
        assert set(self.failed.values()) == {1}, f"more than one failure: {self.failures}"
        assert "Traceback" not in self.output + "".join(self.failures)
        return self


class Lab:
    """One lab host and its own results folder."""

    def __init__(self, host: str, folder: Path):
        self.host, self.folder = host, folder
        self.results = folder / "results"

    def play(self, playbook: str, *options: str, **extra) -> Run:
        extra = self._extra(extra)
        run = ansible_runner.run(
            private_data_dir=tempfile.mkdtemp(prefix="run-", dir=self.folder),  # an old one's extra vars would win
            project_dir=str(ROOT),
            playbook=playbook,
            inventory=INVENTORIES[1::2],
            extravars=extra,
            cmdline=" ".join(["--limit", f"{self.host},localhost", *options]),
            quiet=True,
            settings={"suppress_ansible_output": True},
            envvars={"PYTHONUNBUFFERED": "1"},
        )
        stats = run.stats or {}
        changes, failures = [], []
        for event in run.events:
            data = event.get("event_data", {})
            result = data.get("res") or {}
            task = data.get("task", "")
            if event["event"] in ("runner_on_ok", "runner_item_on_ok") and result.get("changed"):
                item = result.get("_ansible_item_label")
                changes.append(f"{data.get('host')}: {task}" + (f" ({item})" if item else ""))
            elif event["event"] in ("runner_on_failed", "runner_item_on_failed", "runner_on_unreachable"):
                failures.append(f"{data.get('host')}: {task}: {result.get('msg', json.dumps(result)[:800])}")
        output = Path(run.config.artifact_dir, "stdout").read_text(errors="replace")
        failed = Counter(stats.get("failures")) + Counter(stats.get("dark"))
        return Run(run.rc, output, failed, changes, failures)

    def command(self, *playbooks: str, **extra) -> list[str]:
        """The command line of a person who runs playbooks on this host."""
        extra = self._extra(extra)
        limit = ["--limit", f"{self.host},localhost", "-e", json.dumps(extra)]
        return [sys.executable, "-m", "ansible", "playbook", *INVENTORIES, *playbooks, *limit]

    def ssh(self, command: str, check: bool = True) -> str:
        """What a command says on the lab host; on each of several, one after another."""
        command = command if check else f"{command} || true"
        return "\n".join(ssh(host, command) for host in self.host.split(","))

    def until(self, command: str, seconds: int = 60) -> None:
        """Waits on the host until a command succeeds: how long something takes is not what is tested."""
        self.ssh(f"for n in $(seq {seconds * 10}); do ({command}) && exit; sleep 0.1; done; false")

    def reboot(self) -> None:
        """A real reboot; returns when ssh answers again."""
        command = [sys.executable, "-m", "ansible", "adhoc", *INVENTORIES, self.host, "-m", "ansible.builtin.reboot"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def _extra(self, extra: dict) -> dict:
        return {"gauntlet_results": str(self.results), "gauntlet_plans": str(self.folder / "plans")} | extra


@contextlib.contextmanager
def booted(hosts: str, folder: Path) -> Iterator[Lab]:
    """Lab hosts made fresh, and taken away whatever happens: also when one of them does not come up."""
    if os.geteuid():
        pytest.skip("needs root: a lab host is a systemd-nspawn machine")
    lab = Lab(hosts, folder)
    lab.play("playbooks/lab.yml", lab_state="absent").ok()
    try:
        lab.play("playbooks/lab.yml").ok()
        yield lab
    finally:
        lab.play("playbooks/lab.yml", lab_state="absent").ok()


def attempts(lab: Lab) -> list[Path]:
    """The folders of the attempts that came home."""
    return sorted(p.parent for p in (lab.results / lab.host).glob("[!.]*/[!.]*/cell.json"))
