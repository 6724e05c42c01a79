#!/usr/bin/python
"""A private link between two lab hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_link
short_description: Join the network namespaces of two lab hosts
description:
  - A veth pair with one end in each host's namespace; it is made inside them, so this machine never sees an interface.
  - Each host has one address, whatever the number of its links. A link lasts as long as both hosts are up and
    survives a reboot inside them.
options:
  name:
    description: The lab host.
    type: str
    required: true
  address:
    description: Its IPv4 address on its links.
    type: str
    required: true
  peer:
    description: The other lab host.
    type: str
    required: true
  peer_address:
    description: The other's IPv4 address.
    type: str
    required: true
  folder:
    description: Folder of all lab hosts.
    type: path
    default: /var/lib/gauntlet-lab
attributes:
  check_mode:
    description: Says whether the link would be made.
    support: full
author: Gauntlet
"""

EXAMPLES = r"""
- name: Link the two lab hosts
  lab_link:
    name: lab1
    address: 10.77.0.1
    peer: lab2
    peer_address: 10.77.0.2
"""

RETURN = r"""
interface:
  description: Name of the interface inside the host.
  type: str
  returned: always
"""

import contextlib
import fcntl
import json
import os
import subprocess
from pathlib import Path

from ansible.module_utils import lab_record
from ansible.module_utils.basic import AnsibleModule


class End:
    """One host's end of the link: `address` here, `other` there; named after the other's last two numbers."""

    def __init__(self, pid: int, address: str, other: str) -> None:
        self.pid, self.address, self.other = pid, address, other
        self.interface = "link-" + "-".join(other.split(".")[2:])

    def ip(self, *arguments: str) -> str:
        command = ["nsenter", f"--net=/proc/{self.pid}/ns/net", "ip", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def there(self) -> bool:
        return self.interface in (link["ifname"] for link in json.loads(self.ip("-json", "link")))

    def right(self) -> bool:
        """Whether the interface is up and carries exactly our addresses."""
        if not self.there():
            return False
        (found,) = json.loads(self.ip("-json", "-4", "address", "show", "dev", self.interface)) or [{}]
        addresses = [(entry["local"], entry.get("address")) for entry in found.get("addr_info", [])]
        return found.get("operstate") == "UP" and addresses == [(self.address, self.other)]

    def configure(self) -> None:
        self.ip("address", "add", self.address, "peer", f"{self.other}/32", "dev", self.interface)
        self.ip("link", "set", self.interface, "up")


def join(one: End, other: End) -> None:
    """Make the link anew, whatever is left of an earlier one."""
    for end in (one, other):
        if end.there():
            end.ip("link", "delete", end.interface)
    one.ip("link", "add", one.interface, "type", "veth", "peer", "name", other.interface, "netns", str(other.pid))
    one.configure()
    other.configure()


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "address": {"type": "str", "required": True},
            "peer": {"type": "str", "required": True},
            "peer_address": {"type": "str", "required": True},
            "folder": {"type": "path", "default": "/var/lib/gauntlet-lab"},
        },
        supports_check_mode=True,
    )
    params = module.params
    folder = Path(params["folder"])
    names = (params["name"], params["peer"])
    machines = [lab_record.find(folder / name) for name in names]
    if None in machines:
        down = names[machines.index(None)]
        if module.check_mode:  # they would be up by now
            module.exit_json(changed=True)
        module.fail_json(
            msg=f"lab host '{down}' is not up, so '{names[0]}' and '{names[1]}' cannot be linked; "
            "boot both in one run of playbooks/lab.yml"
        )
    one = End(machines[0].pid, params["address"], params["peer_address"])
    other = End(machines[1].pid, params["peer_address"], params["address"])
    try:
        with locked(folder):
            changed = not (one.right() and other.right())
            if changed and not module.check_mode:
                join(one, other)
    except subprocess.CalledProcessError as error:
        module.fail_json(msg=f"linking '{names[0]}' and '{names[1]}': {error.stderr.strip()}")
    module.exit_json(changed=changed, interface=one.interface)


@contextlib.contextmanager
def locked(folder: Path):
    """Both hosts of a pair may ask for their link at once."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


if __name__ == "__main__":
    main()
