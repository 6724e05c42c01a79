"""Host settings of the catalog with an inventory's choices in them: what is wanted of a host, and what is switched off.

An entry says what it is, why, what was measured, what it risks; the code that reads and sets it knows its `kind`
(module_utils/gauntlet_host/kinds.py). Entries of kind `environment` are profiles for deployments, not for hosts.
"""

from gauntlet.errors import GauntletError
from gauntlet.names import FALSE, TRUE, as_switch, unknown

PROSE = {"title", "why", "evidence", "risk"}
PLACE = {"folders", "file"}  # where the catalog found the entry
COMMON = {"name", "kind", "where", "default", *PROSE}
# what each kind needs beside these: (required, optional)
KINDS = {
    "sysctl": ({"key", "wanted"}, set()),
    "sysfs": ({"path", "wanted"}, set()),
    "max_read_request": ({"select", "wanted"}, set()),
    "gpu": ({"field", "wanted"}, set()),
    "systemd": ({"daemon", "key", "wanted"}, set()),
    "lxc_config": ({"containers", "lines"}, set()),
    "acs": ({"wanted"}, set()),
    "aspm": ({"wanted"}, set()),
    "link": ({"wanted"}, set()),
    "bar1": ({"wanted"}, set()),
    "iommu": ({"wanted"}, set()),
    "module_option": ({"module", "option", "wanted"}, set()),
    "command_line": (set(), {"wanted", "unwanted"}),
    "ceiling": ({"limit", "wanted"}, set()),
    "containers_running": (set(), set()),
    "device_nodes": (set(), set()),
    "environment": ({"environment"}, {"tp"}),
}
WHERE = ("hypervisor", "guest", "anywhere", "deployment")


def choose(entries: dict[str, dict], choices: dict | None) -> list[dict]:
    """Every host setting of the catalog, with `enabled` and, where the inventory named it, `asked`.

    A choice is true or false (also as text), another wanted value, or a mapping that replaces keys of the entry.
    Raises GauntletError for an unknown name, kind or key.
    """
    choices = choices or {}
    hosts = {name: check(entry) for name, entry in entries.items() if entry.get("kind") != "environment"}
    for name in choices:
        if name not in hosts:
            raise unknown("setting", name, hosts)
    return [_chosen(entry, choices.get(name), name in choices) for name, entry in sorted(hosts.items())]


def _chosen(entry: dict, choice: object, named: bool) -> dict:
    chosen = {key: value for key, value in entry.items() if key not in {"default", "why", "evidence", "risk", *PLACE}}
    enabled = entry["default"]
    if isinstance(choice, dict):
        enabled = True
        chosen.update(choice)
        check({**entry, **choice})
    elif isinstance(choice, bool) or str(choice).lower() in TRUE - {"1"} | FALSE - {"0"}:
        enabled = as_switch(f"host_tuning_settings: {entry['name']}", choice)
    elif choice is not None:
        if "wanted" not in entry:
            raise GauntletError(f"setting {entry['name']} takes true, false or a mapping, not '{choice}'")
        enabled = True
        chosen["wanted"] = choice
    return {**chosen, "enabled": enabled, "asked": named and enabled}


def check(entry: dict) -> dict:
    """The entry, when it is one. Raises GauntletError that names it and what is wrong."""
    at = f"setting {entry.get('name')}"
    if entry.get("kind") not in KINDS:
        raise unknown(f"kind of {at}", entry.get("kind"), KINDS)
    required, optional = KINDS[entry["kind"]]
    missing = (required | COMMON) - set(entry)
    if missing:
        raise GauntletError(f"{at} lacks {', '.join(sorted(missing))}")
    extra = set(entry) - COMMON - PLACE - required - optional
    if extra:
        raise GauntletError(f"{at}: kind {entry['kind']} has no {', '.join(sorted(extra))}")
    if entry["where"] not in WHERE:
        raise unknown(f"place ('where') of {at}", entry["where"], WHERE)
    if not isinstance(entry["default"], bool):
        raise GauntletError(f"{at}: default is '{entry['default']}'; it takes true or false")
    evidence = entry["evidence"]
    if evidence != "never measured" and not (isinstance(evidence, dict) and {"measured", "source"} <= set(evidence)):
        raise GauntletError(f"{at}: evidence is 'never measured' or says what was measured and its source")
    return entry
