"""What systemd says of a unit, read as `gauntlet.services` promises it."""

import json
import subprocess

import pytest

from gauntlet import services

UNIT = "sglang@m.eagle3.tp1-3f9a2c1e.service"
BEFORE = "7b2f0d2f5a4d4a0b9d6c1f0e8a3b5c7d"  # the invocation of an earlier start, which systemd goes on showing


@pytest.fixture
def systemd(monkeypatch):
    """systemd(ActiveState=…, …) -> a manager whose systemctl says so; what it was asked is in `.asked`."""

    def made(journal=(), **says):
        shown = {
            "LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead", "Result": "success", "MainPID": "0",
            "ExecMainStatus": "78", "InvocationID": BEFORE, "ControlGroup": "", "NRestarts": "0",
            "ExecMainStartTimestamp": "Sun 2026-11-29 14:05:01 UTC",
        } | says  # fmt: skip
        manager = services.Systemd()
        manager.asked = []

        def run(*command, timeout=60):
            manager.asked.append(command)
            lines = map(json.dumps, journal) if command[0] == "journalctl" else (f"{k}={v}" for k, v in shown.items())
            return subprocess.CompletedProcess(command, 0, "\n".join(lines), "")

        monkeypatch.setattr(services, "run", run)
        return manager

    return made


@pytest.mark.parametrize(("state", "sub"), [("inactive", "dead"), ("failed", "failed")])
def test_a_start_that_systemd_has_not_come_to_is_under_way_and_is_not_the_start_before(systemd, state, sub):
    """Seen on a busy host: asked at once after its start, a unit had failed, and with the cause of an earlier one."""
    found = systemd(ActiveState=state, SubState=sub, Job="4711").state(UNIT)
    assert (found["active"], found["failed"], found["invocation"]) == (True, False, None)
    over = systemd(ActiveState=state, SubState=sub).state(UNIT)
    assert (over["active"], over["failed"], over["invocation"]) == (False, state == "failed", BEFORE)


def test_without_a_start_there_are_systemds_words_alone(systemd):
    """The words of a process are of an earlier start: its cause would be taken for this one's."""
    entry = {"__REALTIME_TIMESTAMP": "1796000000000000", "MESSAGE": "Dependency failed for the engine."}
    manager = systemd(journal=[entry])
    assert manager.journal(UNIT, None) == [(1796000000.0, "Dependency failed for the engine.")]
    assert manager.asked[-1][-2:] == (f"UNIT={UNIT}", "_PID=1")
    manager.journal(UNIT, BEFORE)
    assert f"_SYSTEMD_INVOCATION_ID={BEFORE}" in manager.asked[-1]
