#!/usr/bin/python
"""Module: the env files of a host's deployments."""

DOCUMENTATION = r"""
module: deployment_files
short_description: One env file for each deployment of a host, exactly as the plan says
description:
  - Writes /etc/gauntlet/deployments/NAME.env for each deployment and reads it back. Files of deployments that are not
    in the list are left alone, unless O(purge) is set.
  - In check mode it says what it would write; V(changed) then means that the host is not what the plan says.
  - The text of a file is made on the controller, so that the host needs nothing but Python, and a fresh host can be
    predicted.
attributes:
  check_mode:
    support: full
    description: Says what would change.
options:
  deployments:
    description: Deployments of the plan.
    type: list
    elements: dict
    required: true
  port:
    description: The loopback port that a deployment serves on.
    type: int
    required: true
  folder:
    description: Where the files lie.
    type: path
    default: /etc/gauntlet/deployments
  models:
    description: The mount that weights are staged in.
    type: path
    default: /srv/gauntlet/models
  engines:
    description: The folder of engine environments.
    type: path
    default: /opt/gauntlet/engines
  purge:
    description: Remove the env files of deployments that are not in the list.
    type: bool
    default: false
  texts:
    description: Set by the action plugin. The text of each file by deployment.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Every planned deployment has its env file
  deployment_files:
    deployments: "{{ plan.deployments[inventory_hostname] }}"
    port: 30000
"""

RETURN = r"""
files:
  description: The sha256 of each deployment's file as planned, by deployment.
  type: dict
  returned: always
different:
  description: Names of the deployments whose file was missing or different.
  type: list
  elements: str
  returned: always
"""

import hashlib
import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def read(path):
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def mode(path):
    status = path.stat()
    return (status.st_mode & 0o7777, status.st_uid, status.st_gid)


def write(path, data):
    """Whole or not at all, readable by everybody: an env file holds no secret."""
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".")
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.chmod(scratch, 0o644)
    os.replace(scratch, path)
    if read(path) != data:
        raise OSError(f"{path} does not read back as it was written")


def main():
    module = AnsibleModule(
        argument_spec={
            "deployments": {"type": "list", "elements": "dict", "required": True},
            "port": {"type": "int", "required": True},
            "folder": {"type": "path", "default": "/etc/gauntlet/deployments"},
            "models": {"type": "path", "default": "/srv/gauntlet/models"},
            "engines": {"type": "path", "default": "/opt/gauntlet/engines"},
            "purge": {"type": "bool", "default": False},
            "texts": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
        no_log=True,  # its arguments are long, and a poll would fill the journal
    )
    os.umask(0o022)  # whatever root's is: the service user reads what is made here
    folder = Path(module.params["folder"])
    planned = {name: text.encode() for name, text in module.params["texts"].items()}
    try:
        before = {name: read(folder / f"{name}.env") for name in planned}
        if module.params["purge"] and folder.is_dir():
            before |= {path.stem: read(path) for path in folder.glob("*.env") if path.stem not in planned}
        different = sorted(name for name, data in before.items() if data != planned.get(name))
        wrong_mode = sorted(
            name for name, data in before.items() if data is not None and mode(folder / f"{name}.env") != (0o644, 0, 0)
        )
        if not module.check_mode:
            folder.mkdir(parents=True, exist_ok=True)
            for name in different:
                path = folder / f"{name}.env"
                write(path, planned[name]) if name in planned else path.unlink()
            for name in set(wrong_mode) - set(different):
                os.chown(folder / f"{name}.env", 0, 0)
                os.chmod(folder / f"{name}.env", 0o644)
    except OSError as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=bool(different or wrong_mode),
        different=sorted({*different, *wrong_mode}),
        files={name: hashlib.sha256(data).hexdigest() for name, data in planned.items()},
        diff=[
            {
                "before_header": str(folder / f"{name}.env"),
                "after_header": str(folder / f"{name}.env"),
                "before": (before[name] or b"").decode(errors="replace"),
                "after": planned.get(name, b"").decode(),
            }
            for name in different
        ],
    )


if __name__ == "__main__":
    main()
