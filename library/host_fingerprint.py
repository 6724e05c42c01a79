#!/usr/bin/python
"""What the host is, as read: the conditions of every measurement made on it."""

DOCUMENTATION = r"""
module: host_fingerprint
short_description: Read what makes a host comparable with others
description:
  - Reads CPU, memory, NUMA, kernel and command line, GPUs, PCIe tree, IOMMU, governor, container facts and limits.
  - Changes nothing, needs nothing installed, and runs unprivileged; what this user may not see is listed.
options:
  root:
    description: Folder to read instead of the host's own files, for a copy of another host's C(/proc) and C(/sys).
    type: path
    default: /
  store:
    description: Where weights lie on its disk.
    type: path
    default: /var/lib/gauntlet/store
  hypervisor:
    description: Result of this module on the machine under a container, to go along with the container's own.
    type: dict
attributes:
  check_mode:
    description: Reads only, in both modes.
    support: full
author: Gauntlet
"""

EXAMPLES = r"""
- name: Read the host
  host_fingerprint:
  register: observed

- name: Read the machine under a container, then the container
  host_fingerprint:
  delegate_to: pve1
  register: machine

- name: Both together
  host_fingerprint:
    hypervisor: "{{ machine }}"
"""

RETURN = r"""
stable:
  description: What makes hosts comparable; its hash is the conditions_id of an attempt.
  returned: always
  type: dict
volatile:
  description:
    - Load, clocks, temperatures, link speeds of the moment, names of this host and boot.
    - C(tuning_profile) is stock, tuned or mixed; C(simulated) names settings that are not a machine's own;
      C(restrictions) is what of the file systems stands in the way; C(hypervisor) is what was given as such.
  returned: always
  type: dict
store:
  description: Names of the weights in its store; no condition, for where weights lie changes no number.
  returned: always
  type: list
  elements: str
unreadable:
  description: What exists but could not be read, and why.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gauntlet_host.fingerprint import fingerprint
from ansible.module_utils.gauntlet_host.host import Host


def main():
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "store": {"type": "path", "default": "/var/lib/gauntlet/store"},
            "hypervisor": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    host, machine = Host(module.params["root"]), module.params["hypervisor"]
    if machine is not None:
        machine = {key: machine[key] for key in ("stable", "volatile", "unreadable")}
    store = [name for name in host.entries(module.params["store"]) if not name.startswith(".")]
    module.exit_json(changed=False, store=store, **fingerprint(host, machine))


if __name__ == "__main__":
    main()
