#!/usr/bin/python
"""The Debian root that lab hosts stand on."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_image
short_description: Build and cache the Debian root of lab hosts
description:
  - Builds a Debian root with mmdebstrap, once for each set of inputs (suite, packages, mirror, customise script).
  - The finished root is C(<cache>/<suite>-<key>/root); the versions of its packages stand beside it in C(packages.txt),
    what it was made from in C(inputs.json). A build that was killed leaves nothing that would be taken for a root.
options:
  suite:
    description: Debian suite by its code name.
    type: str
    required: true
  packages:
    description: Packages beside those of mmdebstrap's variant minbase.
    type: list
    elements: str
    required: true
  mirror:
    description: Debian mirror; updates and security come from mmdebstrap's defaults when this is empty.
    type: str
    default: ""
  customise:
    description: Program that is run with the root as its argument when the packages are installed.
    type: path
    required: true
  cache:
    description: Folder of the cached roots, outside the repository.
    type: path
    default: /var/cache/gauntlet-lab
attributes:
  check_mode:
    description: Says whether the root would be built.
    support: full
author: Gauntlet
"""

EXAMPLES = r"""
- name: Build the root of the lab hosts
  lab_image:
    suite: bookworm
    packages: [systemd-sysv, openssh-server, python3]
    customise: "{{ role_path }}/files/customise"
"""

RETURN = r"""
path:
  description: Folder of the cached root.
  type: str
  returned: always
key:
  description: Suite and the first 12 hex digits of the inputs' SHA-256.
  type: str
  returned: always
seconds:
  description: Time the build took; 0 when it was there.
  type: float
  returned: always
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

# the lab is for running programs: documentation and translations are half of a minimal root
MMDEBSTRAP = [
    "mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory",
    "--aptopt=Acquire::Languages none",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
]  # fmt: skip


def inputs(suite: str, packages: list[str], mirror: str, customise: Path) -> dict:
    """All that the content of a root depends on, but for the day's package versions."""
    return {
        "suite": suite,
        "packages": sorted(set(packages)),
        "mirror": mirror,
        "command": MMDEBSTRAP,
        "customise": hashlib.sha256(customise.read_bytes()).hexdigest(),
    }


def key(made_from: dict) -> str:
    digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()
    return f"{made_from['suite']}-{digest[:12]}"


def build(target: Path, made_from: dict, customise: Path) -> None:
    """Build into a folder beside `target`, then rename; raises CalledProcessError with mmdebstrap's words."""
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a killed build: we hold the lock
    partial.mkdir()
    root = partial / "root"
    command = [
        *MMDEBSTRAP,
        f"--include={','.join(made_from['packages'])}",
        f"--customize-hook={customise} \"$1\"",
        made_from["suite"], str(root), *filter(None, [made_from["mirror"]]),
    ]  # fmt: skip
    # a hook inherits our environment: Debian's tools must not meet a virtual environment or a foreign locale in it
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
    environment |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    except subprocess.CalledProcessError:
        shutil.rmtree(partial)
        raise
    query = ["dpkg-query", f"--root={root}", "--show", "--showformat=${Package} ${Version}\\n"]
    versions = subprocess.run(query, check=True, capture_output=True, text=True).stdout
    (partial / "packages.txt").write_text(versions)
    (partial / "inputs.json").write_text(json.dumps(made_from, indent=1) + "\n")
    partial.rename(target)


def reason(said: str) -> str:
    """The first error that apt or dpkg reported; the later ones of mmdebstrap only say that something failed."""
    lines = said.strip().splitlines() or ["it said nothing"]
    return next((line.removeprefix("E: ") for line in lines if line.startswith("E: ")), lines[-1])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "suite": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "str", "required": True},
            "mirror": {"type": "str", "default": ""},
            "customise": {"type": "path", "required": True},
            "cache": {"type": "path", "default": "/var/cache/gauntlet-lab"},
        },
        supports_check_mode=True,
    )
    params = module.params
    customise, cache = Path(params["customise"]), Path(params["cache"])
    try:
        made_from = inputs(params["suite"], params["packages"], params["mirror"], customise)
    except OSError as error:
        module.fail_json(msg=f"customise: {error}")
    target = cache / key(made_from)
    result = {"path": str(target / "root"), "key": target.name, "seconds": 0.0}
    if target.is_dir():
        module.exit_json(changed=False, **result)
    if module.check_mode:
        module.exit_json(changed=True, **result)
    if os.geteuid() != 0:
        module.fail_json(msg="building a lab host's root needs root; run this as root")
    if not shutil.which("mmdebstrap"):
        module.fail_json(msg="mmdebstrap is not installed; scripts/bootstrap installs what lab hosts need")
    cache.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        changed = not target.is_dir()  # another run may have built it while we waited
        if changed:
            try:
                build(target, made_from, customise)
            except subprocess.CalledProcessError as error:
                module.fail_json(msg=f"mmdebstrap could not build {target.name}: {reason(error.stderr)}")
    module.exit_json(changed=changed, **{**result, "seconds": round(time.monotonic() - began, 1)})


if __name__ == "__main__":
    main()
