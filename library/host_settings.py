#!/usr/bin/python
"""The settings of a host: set and kept, given back, or only looked at."""

DOCUMENTATION = r"""
module: host_settings
short_description: Set, give back or verify the settings of a host
description:
  - Sets every wanted setting, reads it back, and writes what keeps it over a reboot, in one run.
  - Before the first change of a target its value is recorded on the host; I(state=absent) brings all of them back.
  - What a host refuses, or does not have, is reported by name and the others are set.
  - An action plugin of the same name fills I(settings). It takes I(catalog), a list of folders, and I(choices), what
    the inventory chooses by name; with I(show), C(table) or C(json), it prints the report and fails on faults.
options:
  state:
    description: C(verified) changes nothing and needs nothing on the host.
    type: str
    choices: [present, absent, verified]
    default: present
  settings:
    description: Entries of catalog/settings with the inventory's choices in them, see gauntlet/settings.py.
    type: list
    elements: dict
    default: []
  groups:
    description: The host's own among the inventory groups C(hypervisors) and C(inference).
    type: list
    elements: str
    default: []
  hypervisor:
    description: Inventory name of the machine under a container, for the sentences that say where to set what.
    type: str
  simulated:
    description: Set a machine's settings in a container all the same; for test hosts. Results carry it.
    type: bool
    default: false
  root:
    description: Folder that stands for the host's own root.
    type: path
    default: /
attributes:
  check_mode:
    description: Says what would change.
    support: full
  diff_mode:
    description: Files and values, before and after.
    support: full
author: Gauntlet
"""

EXAMPLES = r"""
- name: Settings as declared
  host_settings:
    catalog: "{{ gauntlet_catalog }}"
    choices: {swappiness: 0}
    groups: "{{ group_names }}"

- name: Everything as it was before the first time
  host_settings:
    state: absent
"""

RETURN = r"""
report:
  description:
    - One entry a setting with setting, title, where, written, verdict and items.
    - An item has target, wanted, found, verdict, why, kept (by what, over a reboot) and how (what would change it).
  returned: always
  type: list
  elements: dict
table:
  description: The report as text, one line a setting.
  returned: always
  type: str
profile:
  description: C(stock) when Gauntlet set nothing here, C(tuned) when all of it reads as it was set, else C(mixed).
  returned: always
  type: str
refused:
  description: What was to be set or written and did not take, each with its reason.
  returned: always
  type: list
  elements: str
faults:
  description: Why a verification fails; empty when all that is wanted is so.
  returned: always
  type: list
  elements: str
restrictions:
  description: File systems that are mounted read-only or noexec where that will stand in the way.
  returned: always
  type: list
  elements: str
simulated:
  description: Settings that stand for a machine's and were set in a container.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gauntlet_host import boot, place, table, tuning, verify  # noqa: F401 - boot goes along
from ansible.module_utils.gauntlet_host.files import LIBEXEC
from ansible.module_utils.gauntlet_host.host import Host, HostError
from ansible.module_utils.gauntlet_host.record import Record


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent", "verified"], "default": "present"},
            "settings": {"type": "list", "elements": "dict", "default": []},
            "groups": {"type": "list", "elements": "str", "default": []},
            "hypervisor": {"type": "str"},
            "simulated": {"type": "bool", "default": False},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    asked = module.params
    host = Host(asked["root"])
    try:
        result = {"changed": False, "refused": []}
        if asked["state"] != "verified":
            result = converge(host, asked, module.check_mode)
        shown = asked["settings"] if asked["state"] != "absent" else []
        for sentence in result["refused"]:
            module.warn(sentence)
        report = verify.verify(host, shown, asked["groups"])
        module.exit_json(
            **result,
            report=report,
            table=table.render(report),
            profile=verify.profile(host),
            faults=verify.faults(host, report, asked["hypervisor"]),
            simulated=Record(host).simulated,
            restrictions=place.restrictions(host),
        )
    except HostError as error:
        module.fail_json(msg=str(error))


def converge(host, asked, check):
    specs = []
    if asked["state"] == "present":
        specs = tuning.here(host, asked["settings"], asked["groups"], asked["hypervisor"], asked["simulated"])
    change = tuning.apply(host, specs, check=check, simulated=asked["simulated"])
    return {"changed": change.changed, "refused": change.refused, "diff": difference(change)}


def difference(change):
    """Files with their content, our own program by the names of its files, and the values that were set."""
    program = [f for f in change.files if f["path"].startswith(LIBEXEC)]
    shown = [(f["path"], f["before"] or "", f["after"] or "") for f in change.files if f not in program]
    if program:
        shown.append((f"{LIBEXEC}/gauntlet_host", listed(program, "before"), listed(program, "after")))
    if change.targets:
        sides = ("".join(f"{c['target']} = {c[side]}\n" for c in change.targets) for side in ("before", "after"))
        shown.append(("settings", *sides))
    return [{"before_header": name, "after_header": name, "before": b, "after": a} for name, b, a in shown]


def listed(program, side):
    return "".join(f"{f['path']}: {len(f[side])} characters\n" for f in program if f[side] is not None)


if __name__ == "__main__":
    main()
