"""A deployment brought up and taken down on this host: started, ready (it answered), stopped (nothing is left).

Readiness is a real completion. Whatever goes wrong is said with its cause where the catalog of diagnoses knows one,
else with the last lines of the journal and the unit's exit; never as a bare timeout.
"""

import time

from gauntlet import diagnose, engines, hoststate, launch, memory, ports
from gauntlet.diagnose import look
from gauntlet.errors import GauntletError
from gauntlet.preflight import run as preflight

TAIL = 15
PAUSE_S = 0.5
HANG_S = 300


def require_free(port: int, manager, unit: str = "") -> None:
    """GauntletError with who holds the port, and what is not started for it: this unit, or anything."""
    if held := look.port(port, manager):
        so = f"{unit} is not started" if unit else "nothing is started"
        raise GauntletError(f"{held}, so {so}; stop that first (a unit with: systemctl stop UNIT)")


def begin(deployment: dict, port: int, manager, owner: str = "") -> bool:
    """Starts the unit unless it runs already; True when it was started here. A taken port is refused, by whom.

    An `owner` needs a start of its own: a unit that somebody else started is refused.
    """
    unit = engines.instance(deployment)
    if manager.state(unit)["active"]:
        if owner and unit not in hoststate.owned(owner):
            raise GauntletError(
                f"{unit} runs already and {owner} did not start it; stop it with: systemctl stop {unit}"
            )
        return False
    require_free(port, manager, unit)
    if "sglang" in (left := look.gpu(manager=manager)):  # other people's processes are theirs to judge
        raise GauntletError(
            f"{left}; {unit} is not started beside it: end it by its pid, or stop the unit it belongs to"
        )
    if owner:
        hoststate.own(unit, owner)
    manager.start(unit)
    return True


def poll(deployment: dict, port: int, manager, seconds: float, diagnoses: dict) -> dict:
    """Watches a starting unit for at most `seconds`.

    {'ready': True, 'phase', 'completion', 'server', 'server_invocation', 'memory': see memory_of} or
    {'ready': False, 'phase': what it is doing, 'silent_s': since its last word, 'reason': why it does not answer}.
    Raises GauntletError with the cause as soon as the unit failed, or its ranks hang.
    """
    engine, unit = engines.get(deployment["engine"]), engines.instance(deployment)
    until = time.monotonic() + seconds
    while True:
        state = manager.state(unit)
        if state["failed"] or not state["active"]:
            raise GauntletError(explain(deployment, port, manager, state, diagnoses))
        try:
            answer = engine.ready(f"http://127.0.0.1:{port}", timeout=max(5.0, until - time.monotonic()))
        except GauntletError as error:
            reason = str(error)
        else:
            lines = [text for _, text in manager.journal(unit, state["invocation"])]
            return {
                "ready": True, "phase": "ready", "silent_s": 0.0, **answer, "server_invocation": invocation(state),
                "memory": memory_of(deployment["name"], lines),
            }  # fmt: skip
        if time.monotonic() >= until:
            return waiting(deployment, port, manager, state, diagnoses, reason)
        time.sleep(PAUSE_S)


def memory_of(name: str, lines: list[str]) -> dict:
    """{'printed', 'predicted': or None, 'differs': sentences on what is more than 5 % off}; {} for an engine that
    prints no figures."""
    if not (printed := memory.figures(lines)):
        return {}
    prediction = preflight.predicted(name)
    return {
        "printed": printed,
        "predicted": prediction,
        "differs": memory.compare(prediction, printed) if prediction else [],
    }


def waiting(deployment: dict, port: int, manager, state: dict, diagnoses: dict, reason: str) -> dict:
    entries = manager.journal(state["unit"], state["invocation"])
    silent = time.time() - entries[-1][0] if entries else 0.0
    if compiler := look.compiler(state["pids"]):  # one rank builds, the others spin until it is done: no hang
        return {"ready": False, "phase": f"compiling kernels ({compiler})", "silent_s": silent, "reason": reason}
    if silent > HANG_S and len(busy := look.busy_gpus()) > 1:
        gpus = ", ".join(map(str, busy))
        line = f"{launch.PREFIX}silent for {silent:.0f} s while GPUs {gpus} are busy"
        raise GauntletError(explain(deployment, port, manager, state, diagnoses, [line]))
    phase = engines.get(deployment["engine"]).phase([text for _, text in entries])
    return {"ready": False, "phase": phase, "silent_s": silent, "reason": reason}


def invocation(state: dict) -> dict:
    """Which start of the unit answered, as results store it."""
    return {
        "id": state["invocation"],
        "unit": state["unit"],
        "started_utc": state["started"],
        "exec_pid": state["pid"],
    }


def explain(deployment: dict, port: int, manager, state: dict, diagnoses: dict, seen: list[str] | None = None) -> str:
    """Why a deployment does not serve: the known cause and remedy, else the journal's last lines and the exit.

    seen: lines of our own that stand beside the journal.
    """
    lines = [text for _, text in manager.journal(state["unit"], state["invocation"])] + (seen or [])
    refused = [line for line in lines if line.startswith(launch.REFUSED)]
    if refused:
        return f"{state['unit']}: {refused[-1].removeprefix(launch.PREFIX)}"
    head = f"{state['unit']} is {state['phase']}, result '{state['result']}', exit status {state['exit']}"
    found = diagnose.find(lines, diagnoses)
    if found:
        return f"{head}: " + " ".join(_with_a_look(one, deployment, port, manager, state, lines) for one in found)
    tail = [text for text in lines if text.strip()][-TAIL:]
    return f"{head}; no known cause. Its last lines:\n" + "\n".join(f"  {line[:300]}" for line in tail)


def _with_a_look(found: dict, deployment: dict, port: int, manager, state: dict, lines: list[str]) -> str:
    """The diagnosis with what the host shows beside it; an advice that another start disproved is not given."""
    if found["look"] == "fraction":
        starts = [*manager.starts(engines.siblings(deployment)), lines]
        attempts = [(fraction, one) for one in starts if (fraction := memory.figures(one).get("fraction"))]
        if window := look.no_window(attempts):
            return f"{found['cause']}; {window}."
    shown = {
        "gpu": lambda: look.gpu(own=state["pids"], manager=manager),
        "port": lambda: look.port(int(found["groups"].get("port") or port), manager),
        "shm": look.shm,
    }.get(found["look"], str)()
    return diagnose.sentence(found) + (f" ({shown}.)" if shown else "")


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
    """Stops the unit; True when it ran. Returns only when no process, no listener and no GPU memory of it is left."""
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
    if holders := ports.listeners(port):
        return f"a listener on port {port}: " + " and ".join(ports.describe(pid) for pid in holders)
    held = [f"{one['process']} (pid {one['pid']}, {one['memory']})" for one in look.on_gpus() if one["pid"] in pids]
    return f"GPU memory of {', '.join(held)}" if held else ""
