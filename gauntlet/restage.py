"""After a reboot: what survived, what is lost, what is needed to be where the host was.

`observe` runs on the host and changes nothing; `assess` turns what it saw into a table for people and a list of needs.
"""

import os
import re
from pathlib import Path

from gauntlet import engines, hoststate
from gauntlet.engines import scripted
from gauntlet.errors import GauntletError
from gauntlet.weights import space, staging
from gauntlet.weights.options import Options
from gauntlet.weights.shelf import Shelf
from gauntlet.weights.sources import Places, offers

PROC = Path("/proc")
TUNED = hoststate.FOLDER / "host-tuning.json"  # there once settings were set on this host


def observe(deployments: list[dict], mount: Path, places: Places, results: Path, options: Options, manager) -> dict:
    """What this host has of what its deployments need -> a JSON-able dict, the input of `assess`.

    `manager` is the service manager (`gauntlet.services`); `results` the folder that attempts are written to.
    """
    return {
        "boot": {"id": hoststate.boot_id(), "utc": _booted(), "seen": hoststate.seen()},
        "memory": _memory(mount),
        "weights": [_weights(w, roles, Shelf(mount, memory=True), places, options) for w, roles in _used(deployments)],
        "builds": {build: os.path.exists(f"{engines.ENGINES}/{build}") for build in _builds(deployments)},
        "units": [_unit(record, deployments, manager) for record in hoststate.active()],
        "tuned": TUNED.exists(),
        "gpus": gpus(),
        "results": {"folder": str(results), "mount": mount_of(results), "attempts": attempts(results)},
    }


def _booted() -> str:
    """When PID 1 started: in a container the kernel's own boot time is that of the machine under it."""
    ticks = int((PROC / "1/stat").read_text().rpartition(")")[2].split()[19])
    kernel = int(re.search(r"^btime (\d+)", (PROC / "stat").read_text(), re.M)[1])
    return hoststate.utc(kernel + ticks // os.sysconf("SC_CLK_TCK"))


def _memory(mount: Path) -> dict:
    if not os.path.ismount(mount):
        return {"path": str(mount), "mounted": False}
    status = os.statvfs(mount)
    size, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    return {"path": str(mount), "mounted": True, "size": size, "free": free}


def _used(deployments: list[dict]) -> list[tuple[dict, list[str]]]:
    """Each of the weights once, with the roles it has."""
    found: dict[str, tuple[dict, list[str]]] = {}
    for deployment in deployments:
        for role, weights in deployment["weights"].items():
            if weights:
                _, roles = found.setdefault(weights["id"], (weights, []))
                if role not in roles:
                    roles.append(role)
    return list(found.values())


def _builds(deployments: list[dict]) -> list[str]:
    """What must be installed; the scripted engine in another's place is the agent's own."""
    return sorted({one["engine_build"] for one in deployments if not scripted.stands_in(one)})


def _weights(w: dict, roles: list[str], mount: Shelf, places: Places, options: Options) -> dict:
    """`memory` and `store`: {} right, {name: why} damaged, None not there; `else`: what the other sources say."""
    memory = staging.inspect(mount, w, options, deep=options.verify == "always")
    store = staging.inspect(places.store, w, options, deep=False)
    others = {}
    if memory != {} and store is None:
        for source, ask in list(offers(w, places, options))[1:]:
            try:
                others[source] = f"has it, {ask().where}"
            except GauntletError as error:
                others[source] = str(error)
    size = w.get("size_bytes") or 0
    return {"id": w["id"], "roles": roles, "bytes": size, "memory": memory, "store": store, "else": others}


def _unit(record: dict, deployments: list[dict], manager) -> dict:
    unit = record["unit"]
    name = next((d["name"] for d in deployments if engines.instance(d) == unit), None)
    try:
        phase, up = (state := manager.state(unit))["phase"], state["active"]
    except GauntletError as error:
        phase, up = str(error), False
    owner = hoststate.owner(unit)
    return {"unit": unit, "since": record["since"], "deployment": name, "phase": phase, "up": up, "owner": owner}


def gpus(proc: Path = PROC) -> int:
    """GPUs that the driver has; 0 where there is no driver."""
    folder = proc / "driver/nvidia/gpus"
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def mount_of(folder: Path) -> str:
    """The mount point that a folder, there or not, is on."""
    folder = Path(os.path.realpath(folder))
    return next(str(level) for level in (folder, *folder.parents) if os.path.ismount(level))


def attempts(results: Path) -> int:
    """Whole attempts in a results folder of one host."""
    return sum(1 for _ in Path(results).glob("*/*/cell.json"))


def assess(seen: dict, home: dict) -> dict:
    """-> {"rebooted", "rows": [[what, state, detail]], "needs": [sentences], "refused": [sentences], "start": [names],
    "settings_lost": bool}.

    `home`: what the controller adds, {"attempts": int, "unfinished": {campaign: cells still to measure},
    "settings": {"profile", "faults"} as read, or {}, "staged_by": the machine that stages for this container, or ""}.
    """
    rebooted, boot = _boot(seen["boot"])
    rows, needs, refused = [boot], [], []
    rows.append(_memory_row(seen["memory"], needs))
    for w in seen["weights"]:
        rows += _weights_rows(w, home["staged_by"], needs, refused)
    for build, there in seen["builds"].items():
        rows.append([f"engine build {build}", "there" if there else "lost", ""])
        if not there:
            refused.append(f"engine build {build} is gone; run site.yml")
    start = []
    for unit in seen["units"]:
        rows.append([unit["unit"], unit["phase"], f"active since {unit['since']}"])
        if unit["up"]:
            continue
        if unit["owner"]:  # it would be in the way of the start that its owner needs
            rows[-1][2] += f"; of {unit['owner']}, which starts what it needs"
        elif unit["deployment"]:
            start.append(unit["deployment"])
            needs.append(f"start {unit['unit']}")
        else:
            rows[-1][2] += "; no longer in the plan: systemctl start it, if it is still wanted"
    faults = []
    if settings := home["settings"]:
        faults = settings["faults"] if seen["tuned"] else []
        rows.append(["settings", settings["profile"], "; ".join(faults) if seen["tuned"] else "not tuned by Gauntlet"])
        if faults:
            needs.append(f"set {len(faults)} settings again")
    last = (seen["boot"]["seen"] or {}).get("facts", {})
    rows.append(_gpus_row(seen["gpus"], last.get("gpus"), refused))
    rows.append(_results_row(seen["results"], last.get("results_mount"), refused))
    rows.append(["results at home", f"{home['attempts']} attempts", ""])
    for campaign, cells in home["unfinished"].items():
        rows.append([f"campaign {campaign}", f"{cells} cells to measure" if cells else "finished", ""])
    result = {"rebooted": rebooted, "rows": rows, "needs": needs, "refused": refused if needs else []}
    return result | {"start": start, "settings_lost": bool(faults)}


def _boot(boot: dict) -> tuple[bool, list[str]]:
    seen = boot["seen"]
    if seen is None:
        return False, ["host", "never seen before", f"up since {boot['utc']}"]
    if seen["boot_id"] == boot["id"]:
        return False, ["host", "not rebooted", f"up since {boot['utc']}, last seen in this boot"]
    return True, ["host", "rebooted", f"up since {boot['utc']}; last seen {seen['utc']}, in another boot"]


def _memory_row(memory: dict, needs: list[str]) -> list[str]:
    if not memory["mounted"]:
        needs.append(f"mount {memory['path']}")
        return ["tmpfs", "not mounted", memory["path"]]
    return ["tmpfs", "mounted", f"{space.human(memory['size'])}, free {space.human(memory['free'])}"]


def _weights_rows(w: dict, staged_by: str, needs: list[str], refused: list[str]) -> list[list[str]]:
    name = f"{' and '.join(w['roles'])} {w['id']}"
    rows = [[f"{name} in memory", *_state(w["memory"])]]
    rows.append([f"{name} in the store", *([f"on {staged_by}", ""] if staged_by else _state(w["store"]))])
    if not staged_by:
        rows += [[f"{name} elsewhere", source, said] for source, said in w["else"].items()]
    if w["memory"] != {}:
        needs.append(f"stage {w['id']} ({space.human(w['bytes'])})")
        if w["store"] and not staged_by:
            refused.append(f"the store of {w['id']} is damaged: {_state(w['store'])[1]}; site.yml has it anew")
    return rows


def _state(wrong: dict[str, str] | None) -> list[str]:
    if wrong is None:
        return ["lost", "nothing there"]
    if wrong:
        return ["damaged", "; ".join(f"{name} ({why})" for name, why in sorted(wrong.items()))]
    return ["right", ""]


def _gpus_row(now: int, before: int | None, refused: list[str]) -> list[str]:
    if before is not None and now < before:
        refused.append(f"{now} GPUs are visible, {before} were when the host was last seen")
        return ["GPUs", f"{now} visible", f"{before} when last seen"]
    return ["GPUs", f"{now} visible", ""]


def _results_row(results: dict, before: str | None, refused: list[str]) -> list[str]:
    if before and before != results["mount"]:
        refused.append(f"{before} is not mounted: results would land on {results['mount']} instead of their own disk")
        return ["results on disk", "not mounted", f"{results['folder']} was on {before}"]
    return ["results on disk", f"{results['attempts']} attempts", results["folder"]]


def facts(results: Path) -> dict:
    """What is remembered of a healthy host, to tell later what it lost."""
    return {"gpus": gpus(), "results_mount": mount_of(results)}


def table(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in rows)
