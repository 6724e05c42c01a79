"""supervisord behind the contract of `gauntlet.services`, for machines whose PID 1 is not systemd (rented containers).

A unit 'sglang@NAME.service' is a program of that name, made at its start from the template CONFIGURATION/sglang@.conf
(`%i` is NAME), as systemd makes an instance. Each start writes a log of its own, named by its invocation.
supervisord stamps no lines, so every line of a log carries the time of the log's last write. It cannot cap restarts of
a program that ran once, so a unit that ends stays ended.
"""

import fnmatch
import os
import shlex
import signal
import time
import uuid
import xmlrpc.client
from contextlib import suppress
from pathlib import Path

from gauntlet import ports
from gauntlet.errors import GauntletError

CONFIGURATION = Path("/etc/gauntlet/supervisor")
RUNTIME = Path("/run/gauntlet/supervisor")
LOGS = Path("/var/log/gauntlet")
SOCKET = RUNTIME / "supervisor.sock"
UP = ("STARTING", "RUNNING", "STOPPING", "BACKOFF")


class Supervisor:
    def __init__(self, configuration: Path = CONFIGURATION, runtime: Path = RUNTIME, logs: Path = LOGS):
        self.configuration, self.runtime, self.logs = configuration, runtime, logs

    def state(self, unit: str) -> dict:
        info = self._info(unit)
        if info is None:
            self._template(unit)
            info = {"statename": "STOPPED", "pid": 0, "start": 0, "exitstatus": 0}
        pid = info["pid"]
        ended_badly = info["statename"] == "EXITED" and info["exitstatus"] != 0
        return {
            "unit": unit,
            "active": info["statename"] in UP,
            "failed": info["statename"] in ("FATAL", "BACKOFF") or ended_badly,
            "phase": info["statename"].lower(),
            "pid": pid,
            "pids": family(pid) if pid else [],
            "invocation": self._invocation(unit),
            "result": "exit-code" if ended_badly else "success",
            "exit": info["exitstatus"],
            "restarts": 0,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(info["start"])) if info["start"] else None,
        }

    def start(self, unit: str) -> None:
        """A new invocation of the unit; what ran before under its name has ended."""
        self.run(unit, self._template(unit))

    def transient(self, unit: str, description: str, command: list[str]) -> None:
        """Runs a command as a unit of its own, which outlives whoever started it and whose end can be read."""
        self.run(unit, f"; {description}\ncommand={shlex.join(command)}")

    def clear(self, unit: str) -> None:
        """An ended program leaves nothing that would have to be forgotten."""

    def ended(self, unit: str) -> tuple[bool, int]:
        """(whether a transient unit has ended or never was, its exit status)."""
        info = self._info(unit)
        return (True, 0) if info is None else (info["statename"] not in UP, info["exitstatus"])

    def run(self, unit: str, program: str) -> None:
        """Starts a program from the text of its settings, `%i` and the log of the invocation filled in."""
        invocation = uuid.uuid4().hex
        folder = self.logs / unit
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / f"{invocation}.log"
        log.touch()
        settings = [
            f"[program:{unit}]",
            *program.replace("%i", _instance(unit)).strip().splitlines(),
            f"stdout_logfile={log}",
            "redirect_stderr=true",
            "stdout_logfile_maxbytes=0",
            "strip_ansi=true",
            "autostart=false",
            "autorestart=false",
            "startsecs=0",
            "startretries=0",
            "stopasgroup=true",
            "killasgroup=true",
        ]
        (self.runtime / f"{unit}.conf").write_text("\n".join(settings) + "\n")
        server = self._server()
        try:
            server.reloadConfig()
            with suppress(xmlrpc.client.Fault):
                server.removeProcessGroup(unit)
            server.addProcessGroup(unit)
            (folder / "current").unlink(missing_ok=True)
            (folder / "current").symlink_to(log.name)
            server.startProcess(unit, False)
        except xmlrpc.client.Fault as fault:
            raise GauntletError(f"{unit} cannot be started: {fault.faultString}") from None

    def stop(self, unit: str, timeout: float) -> None:
        """Asks all of the unit to end, then ends what is left of its processes."""
        pids = self.state(unit)["pids"]
        try:
            self._server().stopProcess(unit, True)
        except xmlrpc.client.Fault as fault:
            if "NOT_RUNNING" not in fault.faultString:
                raise GauntletError(f"{unit} cannot be stopped: {fault.faultString}") from None
        until = time.monotonic() + min(timeout, 5)
        while ports.alive(pids) and time.monotonic() < until:
            time.sleep(0.1)
        for pid in ports.alive(pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def running(self, patterns: list[str]) -> list[str]:
        return [
            info["name"]
            for info in self._server().getAllProcessInfo()
            if info["statename"] in UP and any(fnmatch.fnmatch(info["name"], pattern) for pattern in patterns)
        ]

    def unit_of(self, pid: int) -> str | None:
        for info in self._server().getAllProcessInfo():
            if info["pid"] and pid in family(info["pid"]):
                return info["name"]
        return None

    def journal(self, unit: str, invocation: str | None, lines: int = 2000) -> list[tuple[float, str]]:
        log = self.logs / unit / (f"{invocation}.log" if invocation else "current")
        try:
            text, written = log.read_text(errors="replace"), log.stat().st_mtime
        except OSError:
            return []
        return [(written, line) for line in text.splitlines()[-lines:]]

    def starts(self, pattern: str, lines: int = 5000) -> list[list[str]]:
        """What earlier starts of units whose names match said, one list a start."""
        logs = sorted(self.logs.glob(f"{pattern}/*.log"), key=lambda log: log.stat().st_mtime)
        return [log.read_text(errors="replace").splitlines()[-lines:] for log in logs]

    def _template(self, unit: str) -> str:
        path = self.configuration / f"{unit.partition('@')[0]}@.conf"
        if not path.is_file():
            raise GauntletError(f"{unit} is not a unit of this host (no {path}); run site.yml")
        return path.read_text()

    def _invocation(self, unit: str) -> str | None:
        current = self.logs / unit / "current"
        return current.readlink().stem if current.is_symlink() else None

    def _info(self, unit: str) -> dict | None:
        try:
            return self._server().getProcessInfo(unit)
        except xmlrpc.client.Fault as fault:
            if "BAD_NAME" in fault.faultString:
                return None
            raise GauntletError(f"supervisord does not say how {unit} is: {fault.faultString}") from None

    def _server(self):
        try:
            from supervisor.xmlrpc import SupervisorTransport
        except ImportError:
            raise GauntletError(
                "PID 1 of this host is not systemd and the agent has no supervisord: add requirements/supervisor.txt "
                "to serving_agent_locks and run site.yml"
            ) from None
        transport = SupervisorTransport(None, None, f"unix://{self.runtime / SOCKET.name}")
        server = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)
        try:
            server.supervisor.getState()
        except (OSError, xmlrpc.client.ProtocolError) as error:
            raise GauntletError(f"supervisord does not answer on this host ({error}); run site.yml") from None
        return server.supervisor


def _instance(unit: str) -> str:
    return unit.partition("@")[2].removesuffix(".service")


def family(leader: int, proc: Path = Path("/proc")) -> list[int]:
    """The processes of a program: its group (supervisord gives each program one of its own) and all descendants."""
    parents, found = {}, {leader}
    for process in proc.iterdir():
        if process.name.isdigit():
            try:
                state, parent, group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if state != "Z":
                parents[int(process.name)] = int(parent)
                if int(group) == leader:
                    found.add(int(process.name))
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found & parents.keys())
