"""The state of weights on a host: what is in memory, where the rest can come from, and making it so."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gauntlet.errors import GauntletError
from gauntlet.weights import contents, manifest, space
from gauntlet.weights.ceiling import measure
from gauntlet.weights.options import Options
from gauntlet.weights.shelf import Shelf
from gauntlet.weights.sources import Offer, Places, Unusable, offers
from gauntlet.weights.transfer import Damaged, Lost


def report(weights: dict, state: str, **more) -> dict:
    """One line of the result: state is right, staged, would_stage, push, missing, damaged or absent."""
    empty = {"source": None, "where": None, "why": [], "wrong": {}, "resumed": [], "left_out": [], "notes": []}
    return {"id": weights["id"], "state": state, "bytes": 0, "seconds": 0.0, "gb_per_s": None} | empty | more


def inspect(
    shelf: Shelf, weights: dict, options: Options, *, deep: bool, files: dict | None = None
) -> dict[str, str] | None:
    """What is wrong with a published snapshot -> {name: why}, {} when it is right, None when there is none.

    `files`: entries that it must agree with besides the catalog's (those of the store's manifest).
    """
    try:
        record = shelf.manifest(weights["id"])
    except GauntletError as error:
        return {manifest.NAME: str(error)}
    if record is None:
        return None
    if record["source"] != weights["source"]:
        return {manifest.NAME: f"of another source: {record['source']}"}
    wrong = manifest.disagreements(record["files"], weights.get("files") or {})
    wrong |= manifest.disagreements(record["files"], files or {})
    return wrong | (shelf.check(weights["id"], deep=deep, jobs=options.jobs, progress=options.progress) or {})


@dataclass
class Plan:
    """What is to be done for one of the weights; `offer` is None when the controller must push first."""

    weights: dict
    wrong: dict[str, str] | None
    why: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)  # sources, the one in use last
    offer: Offer | None = None

    def about(self) -> dict:
        found = {"why": self.why, "wrong": self.wrong or {}, "source": "controller"}
        if self.offer:
            found |= {"source": self.offer.source, "where": self.offer.where, "bytes": self.offer.bytes()}
            found |= {"left_out": sorted(self.offer.left_out), "notes": self.offer.notes}
        return found


def present(weights: list[dict], mount: Shelf, places: Places, options: Options) -> dict:
    """Brings every snapshot into `mount` -> {"changed", "snapshots": [report], "evictable": {id: bytes}, "evicted"}.

    All of it is inspected, has a source and has room before the first byte moves. Raises GauntletError.
    """
    wanted = {w["id"]: w for w in weights}
    plans, reports = {}, {}
    for w in wanted.values():
        if (wrong := _memory(w, mount, places, options)) == {}:
            modes = mount.modes(w["id"], repair=not options.dry)
            reports[w["id"]] = report(w, "right", source="memory", where=str(mount.path(w["id"])), modes=modes)
        else:
            plans[w["id"]] = _plan(w, wrong, places, options)
    evictable = {i: mount.size(i) for i in mount.ids() if i not in wanted}
    evicted = evictable if options.evict else {}
    if not options.dry:
        for weights_id in evicted:
            mount.remove(weights_id)
    if mount.root.is_dir():  # not in check mode on a fresh host
        _require_room(plans, mount, places, evictable, options)
    for weights_id, plan in plans.items():
        reports[weights_id] = _carry_out(plan, mount, places, options)
    changed = bool(plans or evicted) or any(r.get("modes") for r in reports.values())
    for w in wanted.values():
        if reports[w["id"]]["state"] in ("right", "staged"):
            changed |= _keep_store(w, mount, places, options, reports[w["id"]])
    snapshots = [reports[weights_id] for weights_id in wanted]
    return {"changed": changed, "snapshots": snapshots, "evictable": evictable, "evicted": evicted}


def _memory(w: dict, mount: Shelf, places: Places, options: Options) -> dict[str, str] | None:
    try:
        stored = places.store.manifest(w["id"])
    except GauntletError:
        stored = None
    known = stored["files"] if stored and stored["source"] == w["source"] else None
    return inspect(mount, w, options, deep=options.verify == "always", files=known)


def _plan(w: dict, wrong: dict | None, places: Places, options: Options) -> Plan:
    plan = Plan(w, wrong, ["memory: nothing is staged" if wrong is None else "memory: " + _wrong(wrong)])
    _choose(plan, places, options)
    return plan


def _choose(plan: Plan, places: Places, options: Options) -> None:
    """Gives the plan the next source that has the whole snapshot, and a sentence for each that was asked."""
    w, plan.offer = plan.weights, None
    for source, ask in offers(w, places, options):
        if source in plan.tried:
            continue
        plan.tried.append(source)
        try:
            plan.offer = ask()
        except GauntletError as error:
            plan.why.append(f"{source}: {error}")
            if getattr(error, "push", False):
                return
            if getattr(error, "final", False):
                raise Unusable(f"{w['id']} is not staged; {plan.why[-1]}") from error
            continue
        plan.why.append(f"{source}: used, {plan.offer.where}")
        return
    raise Unusable(f"{w['id']} can be had from nowhere; " + "; ".join(plan.why))


def _require_room(plans: dict[str, Plan], mount: Shelf, places: Places, evictable: dict, options: Options) -> None:
    """For everything together, before the first byte. What a snapshot's own remains hold is counted as free."""
    needed = sum(
        max(0, (plan.offer.bytes() if plan.offer else plan.weights.get("size_bytes") or 0) - mount.size(weights_id))
        for weights_id, plan in plans.items()
    )
    try:
        if needed:
            space.require(needed, mount.root, ", ".join(plans), memory=True)
    except GauntletError as error:
        if not evictable or options.evict:
            raise
        names = ", ".join(f"{i} ({space.human(size)})" for i, size in evictable.items())
        raise GauntletError(f"{error}; not needed by what is planned: {names}; -e evict=true frees it") from error


def _carry_out(plan: Plan, mount: Shelf, places: Places, options: Options) -> dict:
    w, offer, began = plan.weights, plan.offer, time.monotonic()
    if options.dry:
        return report(w, "would_stage", **plan.about())
    if offer is None:
        return report(w, "push", **plan.about())
    if plan.wrong is not None:
        mount.withdraw(w["id"], plan.wrong)
    try:
        filled = mount.fill(
            w,
            offer.pieces,
            hashed=options.hashed,
            jobs=options.jobs,
            progress=options.progress,
            left_out=offer.left_out,
            notes=offer.notes,
            whole=lambda folder, names: contents.of_folder({name: folder / name for name in names}, w),
        )
    except (Damaged, Lost) as error:
        _pass_over(plan, error, places, options)
        return _carry_out(plan, mount, places, options)
    seconds = time.monotonic() - began
    if offer.outside and offer.source != "store" and options.hashed:
        places.store.record(w, offer, filled["manifest"])
    measured = {
        "unverified": not options.hashed,
        "bytes": filled["bytes"],
        "seconds": round(seconds, 3),
        "resumed": filled["resumed"],
    }
    measured["gb_per_s"] = round(filled["bytes"] / seconds / 1e9, 3) if filled["bytes"] else None
    return report(w, "staged", **plan.about() | measured)


def _pass_over(plan: Plan, error: Damaged | Lost, places: Places, options: Options) -> None:
    """Bytes that only reading showed to be wrong or gone: the next source has its turn, unless our own disk fails."""
    source = plan.tried[-1]
    where = source if source == plan.offer.where else f"{source} {plan.offer.where}"
    if isinstance(error, Lost):
        if source == "store":
            raise error
        plan.why.append(f"{where}: {error}")
        options.progress.say(f"{where}: {error}: to be had elsewhere")
        return _choose(plan, places, options)
    damage = Damaged(where, error.files)
    if source == "store" and not plan.offer.outside:
        if not options.repair_store:
            raise damage from error
        places.store.withdraw(plan.weights["id"], error.files)
    plan.why.append(str(damage))
    plan.wrong = {**(plan.wrong or {}), **error.files}
    options.progress.say(f"{damage}: to be had elsewhere")
    _choose(plan, places, options)


def _keep_store(w: dict, mount: Shelf, places: Places, options: Options, line: dict) -> bool:
    """A snapshot in memory whose store is gone or damaged is one reboot away from being lost: it is stored again."""
    if not (options.repair_store and options.hashed):
        return False
    stored = inspect(places.store, w, options, deep=False)
    if stored == {}:
        return False
    why = _wrong(stored) if stored else "nothing was there"
    if options.dry:
        line["notes"] = [*line["notes"], f"would be stored again from memory ({why})"]
        return True
    record = mount.manifest(w["id"])
    pieces = mount.pieces(mount.path(w["id"]), record["files"])
    more = {"left_out": record["left_out"], "notes": record["notes"]}
    try:
        if stored is not None:
            places.store.withdraw(w["id"], stored)
        places.store.fill(w, pieces, hashed=True, jobs=options.jobs, progress=options.progress, **more)
    except GauntletError as error:
        line["notes"] = [*line["notes"], f"not in the store ({why}), so a reboot loses it: {error}"]
        return False
    line["notes"] = [*line["notes"], f"stored again from memory ({why})"]
    return True


def _wrong(wrong: dict[str, str]) -> str:
    return "; ".join(f"{name} ({why})" for name, why in sorted(wrong.items()))


def ceiling(result: dict, mount: Shelf, store: Shelf, options: Options) -> float | None:
    """What a plain copy of what was just staged reaches, bytes a second; None when nothing was."""
    staged = [line["id"] for line in result["snapshots"] if line["state"] == "staged" and line["bytes"]]
    records = [(weights_id, store.manifest(weights_id)) for weights_id in staged]
    pieces = [p for i, r in records if r for p in store.pieces(Path(r["folder"] or store.path(i)), r["files"])]
    return measure([piece.path for piece in pieces], mount.root, options.jobs) if pieces else None


def said(result: dict) -> str:
    """What was moved and how long it took, beside the time that nobody can go below on this host."""
    lines = [line for line in result["snapshots"] if line["state"] == "staged"]
    size, seconds = sum(line["bytes"] for line in lines), sum(line["seconds"] for line in lines)
    if not size:
        return "nothing was copied"
    verified = "" if any(line["unverified"] for line in lines) else " and verified"
    sentence = f"{space.human(size)} copied{verified} in {seconds:.1f} s"
    if not (rate := result.get("ceiling")):
        return sentence
    return f"{sentence}; a plain parallel copy from disk, {space.human(rate)}/s here, would take {size / rate:.1f} s"


def sentences(result: dict) -> list[str]:
    """What a person is to be told of a result: where bytes came from, what was wrong, what is not needed."""
    told = []
    for line in result.get("snapshots", []):
        if line["state"] in ("staged", "would_stage"):
            verb = "staged" if line["state"] == "staged" else "would be staged"
            told.append(f"{line['id']}: {verb}, {space.human(line['bytes'])} from {line['source']}")
        told += [f"{line['id']}: {name} was wrong: {why}" for name, why in sorted(line["wrong"].items())]
        told += [f"{line['id']}: {name} had mode {mode}" for name, mode in sorted(line.get("modes", {}).items())]
        told += [f"{line['id']}: {note}" for note in line["notes"]]
    kept = {i: size for i, size in result.get("evictable", {}).items() if i not in result.get("evicted", {})}
    told += [f"{i} is not needed by what is planned: -e evict=true frees {space.human(kept[i])}" for i in sorted(kept)]
    told += [f"{i} is freed: {space.human(size)}" for i, size in sorted(result.get("evicted", {}).items())]
    return told


def verified(weights: list[dict], mount: Shelf, places: Places, options: Options) -> dict:
    """Looks at memory and store and changes nothing -> as `present`; states right, missing or damaged."""
    reports = []
    for w in weights:
        deep = options.verify == "always"
        memory, store = (inspect(shelf, w, options, deep=deep) for shelf in (mount, places.store))
        why = [
            f"{where}: {'nothing there' if bad is None else _wrong(bad) or 'right'}"
            for where, bad in (("memory", memory), ("store", store))
        ]
        state = "missing" if memory is None else "damaged" if memory or store else "right"
        reports.append(report(w, state, why=why, wrong={**(memory or {}), **(store or {})}))
    return {"changed": False, "snapshots": reports, "evictable": {}, "evicted": {}}


def absent(weights: list[dict], mount: Shelf, places: Places, options: Options) -> dict:
    """Frees memory; the store keeps its copy."""
    there = [w for w in weights if w["id"] in mount.ids()]
    if not options.dry:
        for w in there:
            mount.remove(w["id"])
    reports = [report(w, "absent") for w in weights]
    return {"changed": bool(there), "snapshots": reports, "evictable": {}, "evicted": {}}


STATES: dict[str, Callable] = {"present": present, "verified": verified, "absent": absent}
