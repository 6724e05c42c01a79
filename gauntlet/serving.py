"""A deployment brought up and taken down on this host: started, ready (it answered), stopped (nothing is left).

Readiness is a real completion. Whatever goes wrong is said with its cause where the catalog of diagnoses knows one,
else with the last lines of the journal and the unit's exit; never as a bare timeout.
"""

import time

from gauntlet import diagnose, engines, hoststate, launch, ports
from gauntlet.errors import GauntletError

TAIL = 15
PAUSE_S = 0.5


def begin(deployment: dict, port: int, manager, owner: str = "") -> bool:
    """Starts the unit unless it runs already; True when it was started here. A taken port is refused, by whom.

    An `owner` needs a start of its own: a unit that somebody else started is refused.
    """
    unit = engines.instance(deployment)
    if manager.state(unit)["active"]:
        if owner and unit not in hoststate.owned(owner):
            raise GauntletError(f"{unit} runs already and {owner} did not start it; stop it with: systemctl stop {unit}")
        return False
    refuse_taken_port(port, unit, manager)
    if owner:
        hoststate.own(unit, owner)
    manager.start(unit)
    return True


def refuse_taken_port(port: int, unit: str, manager) -> None:
    holders = ports.listeners(port)
    if holders is None:
        return
    named = [f"{ports.describe(pid)} of {manager.unit_of(pid) or 'no unit'}" for pid in holders]
    raise GauntletError(
        f"port {port} is taken by {' and '.join(named) or 'a process that cannot be seen from here'}, so {unit} is not "
        "started; stop that first (a unit with: systemctl stop UNIT)"
    )


def poll(deployment: dict, port: int, manager, seconds: float, diagnoses: dict) -> dict:
    """Watches a starting unit for at most `seconds`.

    {'ready': bool, 'phase': what it is doing, 'silent_s': since its last word, 'server': …, 'server_invocation': …}.
    Raises GauntletError with the cause as soon as the unit failed.
    """
    engine, unit = engines.get(deployment["engine"]), engines.instance(deployment)
    until = time.monotonic() + seconds
    reason = ""
    while True:
        state = manager.state(unit)
        if state["failed"] or not state["active"]:
            raise GauntletError(explain(deployment, manager, state, diagnoses))
        try:
            answer = engine.ready(f"http://127.0.0.1:{port}", timeout=max(5.0, until - time.monotonic()))
            return {"ready": True, "phase": "ready", "silent_s": 0.0, **answer, "server_invocation": invocation(state)}
        except GauntletError as error:
            reason = str(error)
        if time.monotonic() >= until:
            entries = manager.journal(unit, state["invocation"])
            silent = time.time() - entries[-1][0] if entries else 0.0
            phase = engine.phase([text for _, text in entries])
            return {"ready": False, "phase": phase, "silent_s": silent, "reason": reason}
        time.sleep(PAUSE_S)


def invocation(state: dict) -> dict:
    """Which start of the unit answered, as results store it."""
    return {
        "id": state["invocation"],
        "unit": state["unit"],
        "started_utc": state["started"],
        "exec_pid": state["pid"],
    }


def explain(deployment: dict, manager, state: dict, diagnoses: dict, silent_s: float = 0.0) -> str:
    """Why a deployment does not serve: the known cause and remedy, else the journal's last lines and the exit."""
    entries = [text for _, text in manager.journal(state["unit"], state["invocation"])]
    if own := [line for line in entries if line.startswith(launch.PREFIX)]:
        return f"{state['unit']}: {own[-1].removeprefix(launch.PREFIX)}"
    found = diagnose.find(entries, diagnoses)
    head = f"{state['unit']} is {state['phase']}, result '{state['result']}', exit status {state['exit']}"
    if found:
        return f"{head}: " + " ".join(diagnose.sentence(one) for one in found)
    tail = [text for text in entries if text.strip()][-TAIL:]
    return f"{head}; no known cause. Its last lines:\n" + "\n".join(f"  {line[:300]}" for line in tail)


def end_owned(owner: str, port: int, manager, seconds: float, check: bool = False) -> list[str]:
    """Stops every unit that `owner` started; the units that ran."""
    units = hoststate.owned(owner)
    if check:
        return [unit for unit in units if manager.state(unit)["active"]]
    ended = [unit for unit in units if end(unit, port, manager, seconds)]
    for unit in units:
        hoststate.stopped(unit)  # a unit that never came up does not say so itself
    return ended


def end(unit: str, port: int, manager, seconds: float) -> bool:
    """Stops the unit; True when it ran. Returns only when none of its processes is left and the port is free."""
    before = manager.state(unit)
    if not before["active"] and not before["pids"]:
        return False
    manager.stop(unit, seconds)
    until = time.monotonic() + seconds
    while left := remains(port, manager.state(unit), before["pids"]):
        if time.monotonic() >= until:
            raise GauntletError(f"{unit} was stopped but {seconds:.0f} s later {left} is still there")
        time.sleep(PAUSE_S)
    return True


def remains(port: int, state: dict, pids: list[int]) -> str:
    """What a stopped unit left behind, or ''."""
    alive = sorted({*state["pids"], *ports.alive(pids)})
    if alive:
        return " and ".join(ports.describe(pid) for pid in alive)
    holders = ports.listeners(port)
    if holders:
        return f"a listener on port {port}: " + " and ".join(ports.describe(pid) for pid in holders)
    return ""
