"""The state of weights on a host: what is in memory, where the rest can come from, and making it so."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gauntlet.errors import GauntletError
from gauntlet.weights import contents, manifest, space
from gauntlet.weights.progress import Progress
from gauntlet.weights.shelf import Shelf
from gauntlet.weights.sources import Offer, Places, Unusable, offers
from gauntlet.weights.transfer import Damaged

VERIFY = ("always", "copy", "never")


@dataclass
class Options:
    """`verify`: always (hash what is staged on every run), copy (hash while copying, later look at inode and times),
    never (nothing is hashed, and the manifest says so). `repair_store`: a damaged store is filled again."""

    verify: str = "always"
    jobs: int = 0
    evict: bool = False
    repair_store: bool = True
    dry: bool = False
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self):
        self.jobs = self.jobs or min(16, 2 * (os.cpu_count() or 1))

    @property
    def hashed(self) -> bool:
        return self.verify != "never"


def report(weights: dict, state: str, **more) -> dict:
    """One line of the result: state is right, staged, would_stage, push, missing or damaged."""
    empty = {"source": None, "where": None, "why": [], "bytes": 0, "seconds": 0.0, "wrong": {}, "resumed": []}
    return {"id": weights["id"], "state": state} | empty | {"left_out": [], "notes": []} | more


def inspect(
    shelf: Shelf, weights: dict, options: Options, *, deep: bool, files: dict | None = None
) -> dict[str, str] | None:
    """What is wrong with a published snapshot -> {name: why}, {} when it is right, None when there is none.

    `files`: entries that it must agree with (the store's manifest, or the catalog's list).
    """
    try:
        record = shelf.manifest(weights["id"])
    except GauntletError as error:
        return {manifest.NAME: str(error)}
    if record is None:
        return None
    if record["source"] != weights["source"]:
        return dict.fromkeys(record["files"], f"of another source: {record['source']}") or {manifest.NAME: "empty"}
    wrong = manifest.disagreements(record["files"], weights.get("files") or {}) | manifest.disagreements(
        record["files"], files or {}
    )
    return wrong | (shelf.check(weights["id"], deep=deep, jobs=options.jobs, progress=options.progress) or {})


def present(weights: list[dict], mount: Shelf, places: Places, options: Options) -> dict:
    """Brings every snapshot into `mount` -> {"changed", "snapshots": [report], "evictable": {id: bytes}, "evicted"}.

    All of it is inspected and has a source and room before the first byte moves. Raises GauntletError.
    """
    reports, todo = [], []
    for w in weights:
        known = (places.store.manifest(w["id"]) or {}).get("files") if _readable(places.store, w) else None
        wrong = inspect(mount, w, options, deep=options.verify == "always", files=known)
        if wrong == {}:
            reports.append(report(w, "right", source="memory", where=str(mount.path(w["id"]))))
        else:
            reports.append(None)
            todo.append((len(reports) - 1, w, wrong))
    result = {"changed": bool(todo), "snapshots": reports, "evicted": {}}
    result["evictable"] = {i: mount.size(i) for i in mount.ids() if i not in {w["id"] for w in weights}}
    if options.evict and result["evictable"]:
        result["changed"] = True
        if not options.dry:
            result["evicted"] = {i: mount.remove(i) for i in result["evictable"]}
    for index, w, wrong in todo:
        reports[index] = _stage(w, wrong, mount, places, options, result["evictable"] if not options.evict else {})
    return result


def _readable(store: Shelf, weights: dict) -> bool:
    try:
        store.manifest(weights["id"])
    except GauntletError:
        return False
    return True


def _stage(w: dict, wrong: dict | None, mount: Shelf, places: Places, options: Options, evictable: dict) -> dict:
    why = ["memory: nothing is staged" if wrong is None else "memory: " + _wrong(wrong)]
    began = time.monotonic()
    try:
        offer = _choose(w, places, options, why)
    except Unusable as error:
        if error.push:
            state = "would_stage" if options.dry else "push"
            return report(w, state, source="controller", why=why, wrong=wrong or {})
        raise
    about = {"source": offer.source, "where": offer.where, "why": why, "wrong": wrong or {}}
    about |= {"left_out": sorted(offer.left_out), "notes": offer.notes}
    if options.dry:
        return report(w, "would_stage", bytes=offer.bytes(), **about)
    if wrong is not None:
        mount.withdraw(w["id"], wrong)
    try:
        filled = mount.fill(
            w,
            offer.pieces,
            hashed=options.hashed,
            jobs=options.jobs,
            progress=options.progress,
            left_out=offer.left_out,
            notes=offer.notes,
            whole=lambda folder: contents.require_whole(folder, w),
        )
    except Damaged as error:
        damage = Damaged(f"{offer.source} ({offer.where})", error.files)
        if offer.source != "store" or not options.repair_store:
            raise damage from error
        places.store.withdraw(w["id"], error.files)
        options.progress.say(f"{damage}: to be had anew")
        again = _stage(w, None, mount, places, options, evictable)
        return again | {"why": [*why, str(damage), *again["why"]], "wrong": {**(wrong or {}), **again["wrong"]}}
    except GauntletError as error:
        if evictable:
            names = ", ".join(f"{i} ({space.human(size)})" for i, size in evictable.items())
            raise GauntletError(f"{error}; not needed by what is planned: {names}: -e evict=true frees it") from error
        raise
    seconds = time.monotonic() - began
    return report(w, "staged", bytes=filled["bytes"], seconds=round(seconds, 3), resumed=filled["resumed"], **about)


def _choose(w: dict, places: Places, options: Options, why: list[str]) -> Offer:
    """The first source that can give the whole snapshot; `why` gets a sentence for each that was asked."""
    last: Unusable | None = None
    for source, ask in offers(w, places, options):
        try:
            offer = ask()
        except Unusable as error:
            why.append(f"{source}: {error}")
            last = error
            if error.final:
                raise
            continue
        why.append(f"{source}: used, {offer.where}")
        return offer
    if last and last.push:
        raise last
    raise Unusable(f"{w['id']} can be had from nowhere: " + "; ".join(why))


def _wrong(wrong: dict[str, str]) -> str:
    return "; ".join(f"{name} ({why})" for name, why in sorted(wrong.items()))


def verified(weights: list[dict], mount: Shelf, places: Places, options: Options) -> dict:
    """Looks and changes nothing: memory and store, by hash -> as `present`; states right, missing or damaged."""
    reports = []
    for w in weights:
        wrong = {
            where: inspect(shelf, w, options, deep=True)
            for where, shelf in (("memory", mount), ("store", places.store))
        }
        why = [f"{where}: {'nothing there' if bad is None else _wrong(bad) or 'right'}" for where, bad in wrong.items()]
        state = "missing" if wrong["memory"] is None else "damaged" if wrong["memory"] or wrong["store"] else "right"
        reports.append(report(w, state, why=why, wrong={**(wrong["memory"] or {}), **(wrong["store"] or {})}))
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
