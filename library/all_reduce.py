#!/usr/bin/python
"""Module: does an all-reduce between this host's GPUs work, and how fast."""

DOCUMENTATION = r"""
module: all_reduce
short_description: An all-reduce between the GPUs of a host, ended after a deadline
description:
  - Runs NCCL's all-reduce over 4 KiB to 64 MiB for each size of a tensor parallel group, on the PyTorch of an engine.
    A run that hangs is ended and reported with the usual suspects instead of holding the host.
  - What was found is kept in a file on the host, which the fingerprint reads.
  - Runs on the agent's interpreter (C(/opt/gauntlet/agent/bin/python)).
attributes:
  check_mode:
    support: full
    description: Runs nothing in check mode.
options:
  python:
    description: The interpreter of an engine build, which has PyTorch.
    type: path
    required: true
  worlds:
    description: Sizes of the groups.
    type: list
    elements: int
    required: true
  deadline:
    description: Seconds for one group, the start of its processes included.
    type: int
    default: 90
  environment:
    description: Variables for the run, as a profile of the catalog declares them (C(NCCL_PROTO), C(NCCL_ALGO), …).
    type: dict
    default: {}
  record:
    description: Where the result is kept.
    type: path
    default: /var/lib/gauntlet/all_reduce.json
author: Gauntlet
"""

EXAMPLES = r"""
- name: The GPUs can add up
  all_reduce:
    python: /opt/gauntlet/engines/sglang-0.5.16/bin/python
    worlds: [2, 4, 8]
  vars:
    ansible_python_interpreter: /opt/gauntlet/agent/bin/python
"""

RETURN = r"""
groups:
  description: For each size of a group whether it finished, the time and bus bandwidth by bytes, and why not.
  type: list
  elements: dict
  returned: always
  sample: [{world: 2, finished: true, nccl: 2.28.9, rows: [{bytes: 4096, us: 11.2, bus_gb_s: 0.37}], reason: null}]
"""

import json
import os

from ansible.module_utils.basic import AnsibleModule

from gauntlet import all_reduce


def main():
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "worlds": {"type": "list", "elements": "int", "required": True},
            "deadline": {"type": "int", "default": 90},
            "environment": {"type": "dict", "default": {}},
            "record": {"type": "path", "default": "/var/lib/gauntlet/all_reduce.json"},
        },
        supports_check_mode=True,
    )
    options = module.params
    if module.check_mode:
        module.exit_json(changed=False, groups=[])
    environment = {name: str(value) for name, value in options["environment"].items()}
    groups = [
        all_reduce.check(options["python"], world, options["deadline"], environment) for world in options["worlds"]
    ]
    with open(options["record"] + ".new", "w", encoding="utf-8") as file:
        json.dump({"environment": environment, "groups": groups}, file, indent=1)
    os.replace(options["record"] + ".new", options["record"])
    failed = [group for group in groups if not group["finished"]]
    if failed:
        text = "; ".join(f"an all-reduce of {group['world']} GPUs failed: {group['reason']}" for group in failed)
        module.fail_json(msg=f"{text}. Usual suspects: {'; '.join(all_reduce.SUSPECTS)}", groups=groups)
    module.exit_json(changed=False, groups=groups)


if __name__ == "__main__":
    main()
