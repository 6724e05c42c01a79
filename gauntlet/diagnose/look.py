"""What a diagnosis wants to know of the host beside the journal: who holds a GPU or a port, how full /dev/shm is.

Sentences, or '' where there is nothing to say. Nothing is stopped here.
"""

import csv
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from gauntlet import ports, services
from gauntlet.errors import GauntletError

GPU_QUERY = ("nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader")
COMPILERS = ("nvcc", "ptxas", "cicc", "cc1plus", "hipcc", "ninja")
STEP = 0.025  # fractions closer than this leave no room between them
POOL = re.compile(
    r"Not enough memory\. Please try to increase --mem-fraction-static|Loaded weights leave no GPU memory"
)
RUNTIME = re.compile(r"CUDA out of memory")


def shm(path: str = "/dev/shm") -> str:
    """'/dev/shm has 64 MiB, 100 % used'."""
    status = os.statvfs(path)
    total = status.f_blocks * status.f_frsize
    used = 100 * (status.f_blocks - status.f_bfree) // max(status.f_blocks, 1)
    return f"{path} has {total >> 20} MiB, {used} % used"


def port(number: int, manager=None) -> str:
    """'port 30000 is held by python … (pid 42, parent 1) of x.service'."""
    holders = ports.listeners(number)
    if holders is None:
        return ""
    unit_of = (manager or services.manager()).unit_of
    named = [f"{ports.describe(pid)} of {unit_of(pid) or 'no unit'}" for pid in holders]
    return f"port {number} is held by {' and '.join(named) or 'a process that cannot be seen from here'}"


def gpu_processes(text: str) -> list[dict]:
    """[{'pid', 'process', 'memory'}] of nvidia-smi's compute apps, with or without header and GPU column."""
    found = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        numbers = [n for n, field in enumerate(row) if field.strip().isdigit()]
        if len(row) >= 3 and numbers:
            pid = numbers[-1]
            found.append({"pid": int(row[pid]), "process": row[pid + 1].strip(), "memory": row[-1].strip()})
    return found


def leftovers(processes: list[dict], parents: dict[int, int], own: Iterable[int] = ()) -> str:
    """GPU processes that belong to nobody any more: their parent is 1 and they are not of the unit."""
    orphans = [one for one in processes if parents.get(one["pid"]) == 1 and one["pid"] not in set(own)]
    if not orphans:
        return ""
    named = ", ".join(f"{one['process']} (pid {one['pid']}, parent 1, {one['memory']})" for one in orphans)
    return f"left behind by an earlier run and still on a GPU: {named}"


def on_gpus() -> list[dict]:
    """Processes that hold GPU memory; [] where there is no GPU."""
    try:
        return gpu_processes(services.run(*GPU_QUERY).stdout)
    except GauntletError:
        return []


def busy_gpus(percent: int = 90) -> list[int]:
    """GPUs that spin now."""
    try:
        shown = services.run("nvidia-smi", "--query-gpu=index,utilization.gpu", "--format=csv,noheader,nounits").stdout
    except GauntletError:
        return []
    rows = [row for row in csv.reader(shown.splitlines(), skipinitialspace=True) if len(row) == 2 and row[1].isdigit()]
    return [int(index) for index, utilization in rows if int(utilization) >= percent]


def compiler(pids: Iterable[int], proc: Path = Path("/proc")) -> str:
    """The compiler that runs among these processes: the first start of an engine builds kernels, without a word."""
    running = set()
    for pid in pids:
        with suppress(OSError):  # gone meanwhile
            running.add((proc / str(pid) / "comm").read_text().strip())
    return next((name for name in COMPILERS if name in running), "")


def gpu(own: Iterable[int] = (), manager=None, proc: Path = Path("/proc")) -> str:
    """Leftovers on this host's GPUs; a process of a unit that is up is none, though systemd is its parent."""
    processes = [one for one in on_gpus() if not _of_a_unit_that_is_up(one["pid"], manager)]
    return leftovers(processes, {one["pid"]: ports.parent(one["pid"], proc) for one in processes}, own)


def _of_a_unit_that_is_up(pid: int, manager) -> bool:
    unit = manager.unit_of(pid) if manager else None
    try:
        return bool(unit) and manager.state(unit)["active"]
    except GauntletError:  # a scope, or a unit that is gone
        return False


def no_window(attempts: list[tuple[float, Iterable[str]]]) -> str:
    """Two failures that ask for opposite changes, one step apart: no fraction fits. attempts: (fraction, journal)."""
    low = [fraction for fraction, lines in attempts if any(POOL.search(line) for line in lines)]
    high = [fraction for fraction, lines in attempts if any(RUNTIME.search(line) for line in lines)]
    if not low or not high or not 0 < min(high) - max(low) <= STEP:
        return ""
    return (
        f"no fraction fits: {max(low)} leaves no room for the pools and {min(high)} none for graphs and activations; "
        "use a smaller drafter or graph batch, quantised weights, or a larger tp"
    )
