#!/usr/bin/python
"""Set MaxReadReq of PCI Express devices, and read it back."""

DOCUMENTATION = r"""
module: pcie_max_read_request
short_description: Set and read back the PCIe MaxReadReq of selected devices
description:
  - Walks the capability list of each device under C(/sys/bus/pci/devices), writes bits 14 to 12 of its Device Control
    register and reads them back. No other bit is written.
  - The value is lost at a reboot; role host_tuning keeps it with a unit and a udev rule that call the same code.
options:
  size:
    description: The largest read that one request may ask for, in bytes. Without it, devices are only read.
    type: int
    choices: [128, 256, 512, 1024, 2048, 4096]
  select:
    description: Devices to set, each entry a pattern; a device is taken when all keys of any one entry match.
    type: list
    elements: dict
    required: true
    suboptions:
      vendor:
        description: Vendor, four hex digits, shell pattern.
        type: str
        default: "*"
      device_class:
        description: Class and subclass, four hex digits, shell pattern; C(03*) is every display controller.
        type: str
        default: "*"
      address:
        description: Address as lspci prints it, with or without its domain, shell pattern.
        type: str
        default: "*"
      driver:
        description: Name of the bound driver, shell pattern.
        type: str
        default: "*"
  root:
    description: Folder that stands for the host's own root.
    type: path
    default: /
attributes:
  check_mode:
    description: Says which devices would change.
    support: full
  diff_mode:
    description: One line a device.
    support: full
author: Gauntlet
"""

EXAMPLES = r"""
- name: Let every NVIDIA GPU ask for 4096 bytes at once
  pcie_max_read_request:
    size: 4096
    select:
      - vendor: 10de
        device_class: "03*"

- name: Read the ports above them
  pcie_max_read_request:
    select:
      - device_class: "0604"
"""

RETURN = r"""
devices:
  description:
    - One entry a device with address, id, driver, type, before, after (bytes), outcome and why.
    - Outcome is unchanged, changed, read-only, capped or skipped.
  returned: always
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gauntlet_host import read_request
from ansible.module_utils.gauntlet_host.host import Host
from ansible.module_utils.gauntlet_host.pci import READ_SIZES

PATTERN = {key: {"type": "str", "default": "*"} for key in ("vendor", "device_class", "address", "driver")}


def main():
    module = AnsibleModule(
        argument_spec={
            "size": {"type": "int", "choices": list(READ_SIZES)},
            "select": {"type": "list", "elements": "dict", "required": True, "options": PATTERN},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    host = Host(module.params["root"])
    size = module.params["size"]
    devices = [
        read_request.request(device, size, check=module.check_mode)
        for device in read_request.select(host, module.params["select"])
    ]
    for device in devices:
        if device["outcome"] in ("read-only", "capped"):
            module.warn(f"{device['address']} ({device['id']}): {device['why']}")
    if size:
        for warning in read_request.warnings(host):
            module.warn(warning)
    module.exit_json(
        changed=any(device["before"] != device["after"] for device in devices),
        devices=devices,
        diff={side: "".join(f"{d['address']} MaxReadReq {d[side]}\n" for d in devices) for side in ("before", "after")},
    )


if __name__ == "__main__":
    main()
