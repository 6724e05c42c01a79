"""Who listens on a TCP port of this host: from /proc, so that nothing needs to be installed."""

import os
from contextlib import suppress
from pathlib import Path

LISTEN = "0A"


def _inodes(port: int, proc: Path) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            rows = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == LISTEN:
                found.add(fields[9])
    return found


def listeners(port: int, proc: Path = Path("/proc")) -> list[int] | None:
    """Process ids that listen on the port; None when it is free, [] when the owner cannot be seen from here."""
    inodes = _inodes(port, proc)
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    processes = [process for process in proc.iterdir() if process.name.isdigit()]
    return sorted(int(process.name) for process in processes if wanted & _open_files(process))


def _open_files(process: Path) -> set[str]:
    """What its descriptors are; one that closes while it is read was not a listener that stays."""
    found = set()
    with suppress(OSError):
        for link in (process / "fd").iterdir():
            with suppress(OSError):
                found.add(os.readlink(link))
    return found


def describe(pid: int, proc: Path = Path("/proc")) -> str:
    """'python3 -m sglang… (pid 4242, parent 1)' for messages."""
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        parent = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        return f"pid {pid}"
    return f"{words[:80] or '(no command line)'} (pid {pid}, parent {parent})"


def alive(pids: list[int], proc: Path = Path("/proc")) -> list[int]:
    """Those that still run; a zombie that waits for its parent holds nothing and does not count."""
    found = []
    for pid in pids:
        try:
            if (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(pid)
        except OSError:
            continue
    return found


def parent(pid: int, proc: Path = Path("/proc")) -> int | None:
    """The parent's process id, None for a process that is gone."""
    try:
        return int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
