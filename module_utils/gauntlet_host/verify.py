"""A host looked at: every setting wanted, found, and kept where; the tuning profile that follows."""

from __future__ import annotations

import json

from . import place
from .files import WANTED
from .host import Absent, Host
from .kinds import make
from .record import Record
from .settings import BOOT_UNIT

OK, DIFFERS, UNREADABLE, NOT_HERE, OFF = "ok", "differs", "cannot be read here", "not here", "off"


def verify(host: Host, specs: list[dict], groups: list[str]) -> list[dict]:
    """One entry a setting: {"setting", "title", "where", "written", "verdict", "items": [item, …]}; changes nothing.

    item: {"target", "wanted", "found", "verdict", "why", "kept", "how"}. Verdicts: ok, differs, cannot be read here,
    not here (this host has no such key or device), off (not wanted, or a guest's on a machine that runs no engine). A
    setting's own is the worst of its items'. `groups` are the host's; a host of no group is judged by what it is.
    """
    engine_here = "inference" in groups or not (groups or place.is_proxmox(host))
    wanted_at_boot = json.loads(host.text(WANTED) or "{}").get("settings", [])
    at_boot = {spec["name"]: spec["wanted"] for spec in wanted_at_boot}
    report = []
    for spec in specs:
        setting = make(host, spec)
        enabled = spec["enabled"] and (spec["where"] != "guest" or engine_here)
        items = []
        for target, value in setting.found().items() if enabled else ():
            item = {"target": target, "wanted": setting.wanted(target), "found": None, "why": None, "how": None}
            if isinstance(value, str):
                item.update(found=value, verdict=OK if setting.holds(target, value) else DIFFERS)
            else:
                item.update(verdict=NOT_HERE if isinstance(value, Absent) else UNREADABLE, why=str(value))
            item["kept"] = setting.kept(target)
            if item["kept"] is None and setting.at_boot and at_boot.get(spec["name"]) == spec.get("wanted"):
                item["kept"] = BOOT_UNIT
            if item["verdict"] == DIFFERS:
                item["how"] = setting.how(target)
            items.append(item)
        report.append(
            {
                "setting": spec["name"],
                "title": spec.get("title", spec["name"]),
                "where": spec["where"],
                "written": setting.written,
                "verdict": _worst(items) if enabled else OFF,
                "items": items,
            }
        )
    return report


def _worst(items: list[dict]) -> str:
    verdicts = {item["verdict"] for item in items}
    for verdict in (DIFFERS, UNREADABLE, OK):
        if verdict in verdicts:
            return verdict
    return NOT_HERE


def profile(host: Host) -> str:
    """The tuning that is observed, by what Gauntlet set here: `stock` when it set nothing, `tuned` when all of it reads
    as it was set, `mixed` when some of it moved or can no longer be read."""
    set_here = Record(host).settings
    if not set_here:
        return "stock"
    report = verify(host, [entry["spec"] for entry in set_here.values()], ["hypervisors", "inference"])
    moved = [
        item
        for entry in report
        for item in entry["items"]
        if item["verdict"] == DIFFERS
        or item["verdict"] == UNREADABLE
        and item["target"] in set_here[entry["setting"]]["originals"]
    ]
    return "mixed" if moved else "tuned"


def faults(host: Host, report: list[dict], hypervisor: str | None) -> list[str]:
    """Why a verification fails: what differs, and what could not be read though this is the place to read it."""
    inside = place.container(host)
    sentences = []
    for entry in report:
        elsewhere = inside and entry["where"] == "hypervisor"
        at = f" (a setting of {hypervisor or 'its hypervisor'})" if elsewhere else ""
        wrong = [item for item in entry["items"] if item["verdict"] == DIFFERS]
        unseen = [item for item in entry["items"] if item["verdict"] == UNREADABLE and not elsewhere]
        for items, said in ((wrong, "is {found}, wanted {wanted}"), (unseen, "cannot be read here: {why}")):
            if items:
                more = f", and {len(items) - 1} more" if len(items) > 1 else ""
                sentences.append(f"{entry['setting']}: {items[0]['target']} {said.format(**items[0])}{more}{at}")
    return sentences
