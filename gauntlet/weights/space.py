"""What fits, asked before the first byte: the filesystem, the host's memory, the control group."""

import os
from pathlib import Path

from gauntlet.errors import GauntletError

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")


def human(size: float) -> str:
    """Bytes as people of this field say them: decimal units."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{int(size)} B"


def _numbers(text: str) -> dict[str, int]:
    pairs = (line.replace(":", " ").split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) >= 2 and pair[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def memory_available(proc: Path = PROC) -> int | None:
    """MemAvailable in bytes: free memory and the page cache that can be given up."""
    kib = _numbers(_text(proc / "meminfo")).get("MemAvailable")
    return None if kib is None else kib * 1024


def _headroom(folder: Path, limit: str, usage: str) -> int | None:
    allowed, used = _text(folder / limit).strip(), _text(folder / usage).strip()
    if not allowed.isdigit() or not used.isdigit() or int(allowed) >= 1 << 60:  # "max", or version 1's way to say it
        return None
    stat = _numbers(_text(folder / "memory.stat"))
    cache = stat.get("total_active_file", stat.get("active_file", 0)) + stat.get(
        "total_inactive_file", stat.get("inactive_file", 0)
    )
    return max(0, int(allowed) - int(used) + cache)


def cgroup_headroom(proc: Path = PROC, cgroup: Path = CGROUP) -> tuple[int, str] | None:
    """(bytes that the tightest control group above this process still allows, its path); None without a limit.

    File cache of the group counts as free: the kernel gives it up before it kills; tmpfs pages are not in it.
    """
    tightest = None
    for line in _text(proc / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, limit, usage = cgroup, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root, limit, usage = cgroup / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        folder = root / path.lstrip("/")
        for level in (folder, *folder.parents):
            if not level.is_relative_to(root):
                break
            room = _headroom(level, limit, usage)
            if room is not None and (tightest is None or room < tightest[0]):
                tightest = (room, str(level))
    return tightest


def filesystem_free(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def require(needed: int, folder: Path, what: str, *, memory: bool, proc: Path = PROC, cgroup: Path = CGROUP) -> None:
    """Raises GauntletError, with needed and free, when it does not fit in `folder` (`memory`: which is a tmpfs)."""
    limits = [(filesystem_free(folder), f"in {folder}")]
    if memory:
        if (available := memory_available(proc)) is not None:
            limits.append((available, "of the host's memory"))
        if group := cgroup_headroom(proc, cgroup):
            limits.append((group[0], f"under the memory limit of {group[1]}"))
    free, where = min(limits)
    if needed > free:
        raise GauntletError(f"no room for {what}: needed {human(needed)}, free {human(free)} {where}")
