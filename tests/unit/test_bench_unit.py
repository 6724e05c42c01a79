"""The client outlives whoever started it: a second run must find it, and never start another beside it."""

import json
import os
import subprocess
import time
from types import SimpleNamespace

import pytest

from gauntlet import bench_unit, services
from gauntlet.errors import GauntletError

JOB = {"host": "lab1", "deployment": {"name": "m.ngram.tp1-00000000"}, "repeat": 1, "cells": [], "results": "/nowhere"}


class Manager:
    """A service manager with one transient unit."""

    def __init__(self):
        self.up, self.status, self.commands, self.pid = False, 0, [], os.getpid()

    def transient(self, unit, description, command):
        self.up, self.commands = True, [*self.commands, command]

    def ended(self, unit):
        return not self.up, self.status

    def state(self, unit):
        return {"pids": [self.pid] if self.up else []}

    def stop(self, unit, timeout):
        self.up = False


@pytest.fixture
def manager(monkeypatch):
    one = Manager()
    monkeypatch.setattr(services, "manager", lambda: one)
    return one


@pytest.fixture
def client(tmp_path, manager):
    return bench_unit.Client(tmp_path, "gauntlet-bench.service", "/agent/python")


def test_a_second_start_attaches(client, manager):
    """The same start of the same deployment: one client, said to be found."""
    first, second = client.start(JOB), client.start(JOB)
    assert (first["changed"], first["attached"], second["changed"], second["attached"]) == (True, False, False, True)
    assert first["job_id"] == second["job_id"] and len(manager.commands) == 1
    assert manager.commands[0][:3] == ["/agent/python", "-m", "gauntlet.measure"]


@pytest.mark.parametrize("other", [{"repeat": 2}, {"closing": True}, {"deployment": {"name": "else"}}])
def test_another_job_is_refused_while_one_runs(client, other):
    """Two clients beside one server would measure each other."""
    client.start(JOB)
    with pytest.raises(GauntletError, match=r"measures m\.ngram\.tp1-00000000 \(start 1\) now"):
        client.start({**JOB, **other})


def test_a_new_start_is_a_new_job(client, manager):
    """After the end a start measures again what is invalid: another job id, and progress from the beginning."""
    first = client.start(JOB)["job_id"]
    client.progress.write_text('{"event": "old"}\n')
    manager.up = False
    assert client.start(JOB)["job_id"] != first and client.status(0)["lines"] == []


def test_progress_is_read_in_whole_lines(client, manager):
    """The client may be in the middle of a line; it is read when it is whole."""
    client.start(JOB)
    client.progress.write_text('{"event": "a"}\n{"eve')
    status = client.status(0)
    assert status["lines"] == [{"event": "a"}] and status["running"]
    client.progress.write_text('{"event": "a"}\n{"event": "b"}\n')
    manager.up, manager.status = False, 1
    status = client.status(status["offset"])
    assert status["lines"] == [{"event": "b"}] and status["finished"] and status["exit"] == 1


def test_a_death_is_noticed_at_once(client, manager, monkeypatch):
    """A killed client says no word that could end the wait: it dies while we sleep for the second time, and there is no
    third."""
    client.start(JOB)
    slept = []
    with subprocess.Popen(["sleep", "600"]) as process:
        manager.pid = process.pid

        def sleep(seconds):
            slept.append(seconds)
            if len(slept) == 2:
                process.kill()
                process.wait()

        monkeypatch.setattr(bench_unit, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
        client.status(0, wait=600)
    assert len(slept) == 2


def test_check_mode_starts_nothing(client, manager):
    """It says that it would."""
    assert client.start(JOB, check=True)["changed"] and manager.commands == [] and not client.job_file.exists()
    assert not client.stop(check=True)["changed"]


def test_stopping_a_job_leaves_the_next_one_alone(client, manager):
    """A worker that outlived its killed controller stops its own job, and may come when the next one is measured."""
    first = client.start(JOB)["job_id"]
    manager.up = False
    second = client.start({**JOB, "repeat": 2})["job_id"]
    assert not client.stop(first)["changed"] and manager.up
    assert client.stop(second)["changed"] and not manager.up


def test_stop_keeps_what_is_stored(client, manager, tmp_path):
    """Attempts of the job are listed after the stop as before."""
    job = {**JOB, "cells": [{"id": "cell-1"}], "results": str(tmp_path / "results")}
    job_id = client.start(job)["job_id"]
    for name, of in (("r1-a", job_id), ("r1-b", "another")):
        folder = tmp_path / "results" / "cell-1" / name
        folder.mkdir(parents=True)
        (folder / "cell.json").write_text(json.dumps({"closing": False, "job_id": of, "attempt": name}))
    stopped = client.stop()
    assert stopped["changed"] and stopped["attempts"] == ["cell-1/r1-a"] and not manager.up
