"""Service managers behind one contract: start, stop, what runs, what it said.

`manager()` finds the one of this host. A unit is named as systemd names it ('sglang@NAME.service').
State: {'active': bool, 'failed': bool, 'phase': word, 'pid': int, 'pids': [int], 'invocation': id or None,
'result': word, 'exit': int or None}.
"""

import json
import os
import subprocess
from pathlib import Path

from gauntlet.errors import GauntletError
from gauntlet.supervisor import Supervisor

# what people write is in their language; what is parsed must not be
PLAIN = {**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": "cat"}


def run(*command: str, timeout: float = 60) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout, env=PLAIN, check=False
        )
    except FileNotFoundError:
        raise GauntletError(f"this host has no {command[0]}") from None
    except subprocess.TimeoutExpired:
        raise GauntletError(f"'{' '.join(command)}' did not end within {timeout:.0f} s") from None


class Systemd:
    PROPERTIES = ("LoadState", "ActiveState", "SubState", "Result", "MainPID", "ExecMainStatus", "InvocationID",
                  "ControlGroup", "NRestarts", "Job", "ExecMainStartTimestamp")  # fmt: skip

    def state(self, unit: str) -> dict:
        shown = run("systemctl", "show", unit, "--timestamp=utc", "--property=" + ",".join(self.PROPERTIES))
        values = dict(line.partition("=")[::2] for line in shown.stdout.splitlines())
        if shown.returncode or values.get("LoadState") in (None, "not-found", "bad-setting", "error"):
            why = values.get("LoadState") or shown.stderr.strip()
            raise GauntletError(f"{unit} is not a unit of this host ({why}); run site.yml")
        # a start that systemd has not come to: what else is told is still of the start before
        queued = values["ActiveState"] in ("inactive", "failed") and values.get("Job", "0") not in ("", "0")
        failed = values["ActiveState"] == "failed" or values["SubState"] == "auto-restart"
        return {
            "unit": unit,
            "active": queued or values["ActiveState"] in ("active", "activating", "reloading"),
            "failed": failed and not queued,
            "phase": f"{values['ActiveState']} ({values['SubState']})",
            "pid": int(values["MainPID"]),
            "pids": self._pids(values["ControlGroup"]),
            "invocation": None if queued else values["InvocationID"] or None,
            "result": values["Result"],
            "exit": int(values["ExecMainStatus"]),
            "restarts": int(values["NRestarts"]),
            "started": _utc(values["ExecMainStartTimestamp"]),
        }

    def _pids(self, group: str) -> list[int]:
        if not group:
            return []
        found = set()
        for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup/unified")):
            for listing in root.joinpath(group.lstrip("/")).rglob("cgroup.procs"):
                try:
                    found.update(map(int, listing.read_text().split()))
                except OSError:
                    continue
        return sorted(found)

    def start(self, unit: str) -> None:
        run("systemctl", "reset-failed", unit)  # an earlier failure must not count against this start
        started = run("systemctl", "start", "--no-block", unit)
        if started.returncode:
            raise GauntletError(f"{unit} cannot be started: {started.stderr.strip()}")

    def stop(self, unit: str, timeout: float) -> None:
        stopped = run("systemctl", "stop", unit, timeout=timeout)
        if stopped.returncode:
            raise GauntletError(f"{unit} cannot be stopped: {stopped.stderr.strip()}")

    def transient(self, unit: str, description: str, command: list[str]) -> None:
        """Runs a command as a unit of its own, which outlives whoever started it and whose end can be read."""
        self.clear(unit)
        words = ["systemd-run", f"--unit={unit}", f"--description={description}", "--remain-after-exit"]
        words += ["--property=Type=exec", "--property=Restart=no", "--property=LimitNOFILE=65536"]
        started = run(*words, *command)
        if started.returncode:
            raise GauntletError(f"{description} cannot be started: {started.stderr.strip()}")

    def clear(self, unit: str) -> None:
        """Forgets an ended unit that is kept only so that its end can be read."""
        run("systemctl", "stop", unit)
        run("systemctl", "reset-failed", unit)

    def ended(self, unit: str) -> tuple[bool, int]:
        """(whether a transient unit has ended or never was, its exit status)."""
        names = "LoadState,ActiveState,SubState,ExecMainStatus"
        shown = run("systemctl", "show", unit, f"--property={names}")
        values = dict(line.partition("=")[::2] for line in shown.stdout.splitlines())
        # --remain-after-exit keeps an ended unit 'active (exited)'
        over = values.get("ActiveState") in (None, "inactive", "failed") or values.get("SubState") == "exited"
        return over, int(values.get("ExecMainStatus") or 0)

    def running(self, patterns: list[str]) -> list[str]:
        """Units of these patterns that are up or coming up."""
        listed = run("systemctl", "list-units", "--plain", "--no-legend", "--full", "--state=active,activating",
                     *patterns)  # fmt: skip
        return [line.split()[0] for line in listed.stdout.splitlines() if line.strip()]

    def unit_of(self, pid: int) -> str | None:
        """The unit whose process this is, or None for a process of no unit."""
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except OSError:
            return None
        for line in lines:
            name = line.rpartition("/")[2]
            if name.endswith((".service", ".scope")):
                return name
        return None

    def journal(self, unit: str, invocation: str | None, lines: int = 2000) -> list[tuple[float, str]]:
        """(Unix time, message) of one start of the unit, oldest first: its own words and systemd's about it; without
        a start systemd's alone, since a process can only have spoken in an earlier one."""
        matches = [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"] if invocation else []
        command = ["journalctl", "--output=json", "--no-pager", "--quiet", f"--lines={lines}"]
        shown = run(*command, *(matches or [f"UNIT={unit}", "_PID=1"]))
        entries = [json.loads(line) for line in shown.stdout.splitlines() if line.startswith("{")]
        return [(int(entry["__REALTIME_TIMESTAMP"]) / 1e6, _message(entry)) for entry in entries]

    def starts(self, pattern: str, lines: int = 5000) -> list[list[str]]:
        """The messages of earlier starts of units whose names match, one list a start."""
        shown = run("journalctl", "--output=json", "--no-pager", "--quiet", f"--lines={lines}", f"--unit={pattern}")
        found: dict[str, list[str]] = {}
        for line in shown.stdout.splitlines():
            entry = json.loads(line) if line.startswith("{") else {}
            if start := entry.get("_SYSTEMD_INVOCATION_ID"):
                found.setdefault(start, []).append(_message(entry))
        return list(found.values())


def _utc(stamp: str) -> str | None:
    """'Sun 2026-11-29 14:05:01 UTC' as systemd shows it -> '2026-11-29T14:05:01Z'."""
    words = stamp.split()
    return f"{words[1]}T{words[2]}Z" if len(words) == 4 else None


def _message(entry: dict) -> str:
    """MESSAGE is a string, or a list of bytes when it is not clean text."""
    message = entry.get("MESSAGE") or ""
    return bytes(message).decode(errors="replace") if isinstance(message, list) else str(message)


def manager() -> Systemd | Supervisor:
    """The service manager of this host."""
    return Systemd() if Path("/run/systemd/system").is_dir() else Supervisor()
