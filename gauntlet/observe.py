"""What is read beside the server, before and after a window and never inside it: the unit, the CPU, the counters."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from gauntlet import services
from gauntlet.errors import GauntletError

TICKS = os.sysconf("SC_CLK_TCK")
SETTLE_S = 3.0


@dataclass(slots=True)
class Cpu:
    """CPU seconds so far: of the whole machine, and of the server's processes (None when they are not known)."""

    at: float
    machine: float
    server: float | None


def cpu(pids: list[int] | None) -> Cpu:
    busy = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, busy)
    server = sum(map(_process_cpu, pids)) if pids else None
    return Cpu(time.monotonic(), (user + nice + system + irq + softirq + steal) / TICKS, server)


def _process_cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def foreign_share(before: Cpu, after: Cpu, client_s: float) -> float | None:
    """Share of the machine's CPU time used by neither the server nor this client; None when the server is not known."""
    if before.server is None or after.server is None:
        return None
    cores = (os.cpu_count() or 1) * (after.at - before.at)
    ours = client_s + after.server - before.server
    # ticks of a short window may add up to more than the window
    return min(1.0, max(0.0, (after.machine - before.machine - ours) / cores))


def invocation(unit: str | None) -> dict | None:
    """{id, unit, started_utc, exec_pid, pids} of the server's unit; None where it is not run by a service manager."""
    if not unit:
        return None
    state = services.manager().state(unit)
    return {
        "id": state["invocation"],
        "unit": unit,
        "started_utc": state["started"],
        "exec_pid": state["pid"],
        "pids": state["pids"],
    }


def still(unit: str | None, before: dict | None) -> dict | None:
    """The invocation now; one without an id when the unit cannot be asked any more."""
    try:
        return invocation(unit)
    except GauntletError:
        return before and {**before, "id": None}


def same_server(before: dict | None, after: dict | None, counters: tuple[dict | None, dict | None]) -> bool:
    """Whether one invocation answered all along: same id, same process, and no counter ran backwards."""
    if before and after and (before["id"], before["exec_pid"]) != (after["id"], after["exec_pid"]):
        return False
    first, last = counters
    return not (first and last and any(last.get(name, value) < value for name, value in first.items()))


def compare(before: dict | None, after: dict | None, sums: dict[str, float | None], tolerance: float) -> dict:
    """The `counters` entry of an attempt: deltas against the sums over requests. `agree` is None without counters."""
    if before is None or after is None:
        return {"before": before, "after": after, "delta": None, "agree": None, "differ": []}
    delta = {name: after[name] - before.get(name, 0) for name in after}
    differ = [
        f"{name}: the server counted {delta[name]:g}, the requests {sums[name]:g}"
        for name in delta
        if sums.get(name) is not None and abs(delta[name] - sums[name]) > tolerance
    ]
    return {"before": before, "after": after, "delta": delta, "agree": not differ, "differ": differ}


def settled(dialect, before: dict | None, sums: dict, tolerance: float) -> dict:
    """Counters after the window. Servers count a request a moment after its last byte: read again until they agree."""
    until = time.monotonic() + SETTLE_S
    while True:
        try:
            found = compare(before, dialect.counters_now() if before is not None else None, sums, tolerance)
        except GauntletError:
            return compare(before, None, sums, tolerance)
        if found["agree"] is not False or time.monotonic() > until:
            return found
        time.sleep(0.2)
