"""Who a lab host is: the process that holds its namespaces, written down so that no other is ever taken for it.

Used by the modules of role lab_host and by its ssh ProxyCommand, which is on the path of every connection: stdlib only.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import socket
from pathlib import Path

CLONE_NEWNET = 0x40000000
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,40}[a-z0-9])?")

_libc = ctypes.CDLL(None, use_errno=True)


def boot_id() -> str:
    """This machine's boot: after a crash of it, a recorded pid means nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(stat: str) -> int:
    """Clock ticks from boot to the start of a process, from its /proc/<pid>/stat (proc(5), field 22)."""
    return int(stat.rpartition(")")[2].split()[19])


def write(folder: Path, pid: int) -> None:
    """Record `pid` as the process that holds the namespaces of the lab host in `folder`."""
    started = start_time(Path(f"/proc/{pid}/stat").read_text())
    partial = folder / "machine.json.partial"
    partial.write_text(json.dumps({"pid": pid, "started": started, "boot_id": boot_id()}) + "\n")
    partial.replace(folder / "machine.json")


class Machine:
    """A lab host that is up. Its /proc folder is held open, so that the pid cannot become another process's."""

    def __init__(self, pid: int, proc: int) -> None:
        self.pid = pid
        self._proc = proc

    def dial(self, port: int, timeout: float = 5.0) -> socket.socket:
        """A connection to 127.0.0.1:`port` inside the lab host; OSError where nothing listens there."""
        home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        there = os.open("ns/net", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        try:
            _enter(there)
            try:
                return socket.create_connection(("127.0.0.1", port), timeout)
            finally:
                _enter(home)
        finally:
            os.close(home)
            os.close(there)


def find(folder: Path) -> Machine | None:
    """The running machine that `folder` records, or None: never made, halted, killed, or of an earlier boot."""
    try:
        record = json.loads((folder / "machine.json").read_text())
        pid = int(record["pid"])
        proc = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    try:
        with open(os.open("stat", os.O_RDONLY, dir_fd=proc)) as file:
            stat = file.read()
    except OSError:
        stat = ""
    same = stat and stat.rpartition(")")[2].split()[0] not in "ZX" and start_time(stat) == record.get("started")
    if not same or record.get("boot_id") != boot_id():
        os.close(proc)
        return None
    return Machine(pid, proc)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter the lab host's network namespace: {os.strerror(number)}")
