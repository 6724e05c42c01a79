"""The machine that a figure is from, and what a process tree uses of it."""

import os
import platform
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def load() -> float:
    return os.getloadavg()[0]


def described() -> str:
    """CPU, cores, memory, kernel and Python, in a line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    versions = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, {versions}"


def tree(pid: int) -> list[int]:
    """The process and all that it started and that still runs."""
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                todo += map(int, task.read_text().split())
            except OSError:
                continue
    return found


def cpu_s(pids: list[int]) -> float:
    """CPU seconds of the processes, and of those of their children that have ended."""
    used = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        used += sum(map(int, fields[11:15]))
    return used / TICKS


def pss_kib(pids: list[int]) -> int:
    """Proportional set size: memory that processes share is counted once."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
    return total
