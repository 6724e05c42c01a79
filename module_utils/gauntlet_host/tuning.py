"""A host brought to its declared settings, and back."""

from __future__ import annotations

from . import place
from .files import keep, tell
from .host import Host, HostError
from .kinds import make
from .record import Change, Record, lock
from .settings import Setting


def here(host: Host, specs: list[dict], groups: list[str], hypervisor: str | None, simulated: bool) -> list[dict]:
    """The wanted settings that this host may be given. `groups` are its own among `hypervisors` and `inference`.

    A setting's `where` is `hypervisor` (the machine's kernel and hardware) or `guest` (the system that runs the
    engine); bare metal is both. What the host is gets detected. Raises HostError where the inventory asks a container
    for what only its machine has, or a Proxmox node for what its guests do.
    """
    inside = place.container(host)
    other = hypervisor or "its hypervisor"
    if inside and not simulated and "hypervisors" in groups:
        raise HostError(
            f"this host is a container ({inside}) and is in the inventory group hypervisors: kernel, PCIe and GPU "
            f"settings belong to the machine; put {other} into hypervisors and leave this host in inference"
        )
    if place.is_proxmox(host) and "inference" in groups and "hypervisors" not in groups:
        raise HostError(
            "this host is a Proxmox node and is only in the inventory group inference: engines run in its containers; "
            "put the container into inference and this node into hypervisors"
        )
    chosen = []
    for spec in specs:
        if not spec["enabled"]:
            continue
        if spec["where"] == "hypervisor" and "hypervisors" not in groups:
            if inside and spec.get("asked"):
                raise HostError(
                    f"setting {spec['name']} was asked of a container ({inside}), where it cannot be set: run it on "
                    f"{other} (host_tuning_settings of the group hypervisors)"
                )
            continue
        if spec["where"] == "guest" and "inference" not in groups:
            continue
        chosen.append(spec)
    return chosen


def apply(host: Host, specs: list[dict], check: bool = False, simulated: bool = False) -> Change:
    """Bring the host to `specs`, and to nothing else that Gauntlet ever set; an empty list is the way back.

    Every value is compared first and read back afterwards. What a host refuses is in `refused`, the rest is done.
    """
    wanted = [s for s in (make(host, spec) for spec in specs) if s.written]
    with lock(host, check):
        record = Record(host)
        change = Change(check, record)
        change.refused += [sentence for setting in wanted for sentence in setting.undone_by()]
        now = {setting.name: setting.found() for setting in wanted}
        _refuse_two_settings_of_one_target(wanted, now)
        unwanted = _unwanted(host, record, wanted, now)
        _remember(record, wanted, now, change)
        _give_back(record, unwanted, change)
        to_read_anew = keep(host, wanted, simulated, change)
        _set(wanted, now, change)
        if not check:
            tell(host, to_read_anew)
            _read_back(wanted, change)
        record.keep_only(now)
        record.simulated = sorted(s.name for s in wanted if simulated and _touches_the_machine(s, record))
        record.save(change)
    return change


def _touches_the_machine(setting: Setting, record: Record) -> bool:
    """A value that was as wanted before anybody came is nobody's doing."""
    originals = record.settings[setting.name]["originals"]
    moved = any(not setting.holds(target, original["value"]) for target, original in originals.items())
    return setting.spec["where"] == "hypervisor" and moved


def set_again(host: Host, specs: list[dict], simulated: bool) -> Change:
    """The values that a reboot or a new device lost; no file but the record is touched."""
    inside = place.container(host)
    if inside and not simulated:
        raise HostError(f"this host is a container ({inside}): its machine's settings are not set from here")
    wanted = [make(host, spec) for spec in specs]
    with lock(host, check=False):
        record = Record(host)
        change = Change(False, record)
        now = {setting.name: setting.found() for setting in wanted}
        _remember(record, wanted, now, change)
        _set(wanted, now, change)
        _read_back(wanted, change)
        record.save(change)
    return change


def _set(wanted: list, now: dict, change: Change) -> None:
    for setting in wanted:
        for target, value in now[setting.name].items():
            if isinstance(value, str) and not setting.holds(target, value):
                change.write(setting, target, value, setting.wanted(target))


def _refuse_two_settings_of_one_target(wanted: list, now: dict) -> None:
    owner: dict = {}
    for setting in wanted:
        for target in now[setting.name]:
            key = (setting.spec["kind"], setting.spec.get("field"), target)
            if key in owner:
                raise HostError(f"settings {owner[key]} and {setting.name} both set {target}; switch one of them off")
            owner[key] = setting.name


def _unwanted(host: Host, record: Record, wanted: list, now: dict) -> list:
    """(setting as it was set, target, original) of what was set once and is not wanted now: a whole setting, or a
    device that left its selection."""
    kind = {setting.name: setting.spec["kind"] for setting in wanted}
    found = []
    for name, entry in record.settings.items():
        old = make(host, entry["spec"])
        still = now[name] if kind.get(name) == entry["spec"]["kind"] else {}
        found += [(old, target, original) for target, original in entry["originals"].items() if target not in still]
    return found


def _remember(record: Record, wanted: list, now: dict, change: Change) -> None:
    """Write down what is found for the first time, before anything is set: a run may be killed in between."""
    for setting in wanted:
        entry = record.settings.setdefault(setting.name, {"originals": {}})
        entry["spec"] = setting.spec
        for target, value in now[setting.name].items():
            identity = setting.identity(target)
            known = entry["originals"].get(target)
            if isinstance(value, str) and (known is None or known["identity"] != identity):
                entry["originals"][target] = {"value": value, "identity": identity}
    record.save(change)


def _give_back(record: Record, unwanted: list, change: Change) -> None:
    found: dict = {}
    for setting, target, original in unwanted:
        if setting.name not in found:
            found[setting.name] = setting.found()
        value = found[setting.name].get(target)
        same = setting.identity(target) == original["identity"]
        if isinstance(value, str) and same and value != original["value"]:
            change.write(setting, target, value, original["value"])
        record.settings[setting.name]["originals"].pop(target, None)


def _read_back(wanted: list, change: Change) -> None:
    """What was written and is not there afterwards was refused without a word."""
    for setting in wanted:
        asked = [c for c in change.targets if c["setting"] == setting.name]
        found = setting.found() if asked else {}
        for one in asked:
            value = found.get(one["target"])
            # a target that is no longer the setting's was given back
            if value is not None and not (isinstance(value, str) and setting.holds(one["target"], value)):
                sentence = f"{setting.name}: {one['target']} reads {value} after {one['after']} was written"
                change.refuse(f"{setting.name} {one['target']}", one["after"], sentence)
                change.targets.remove(one)
