#!/usr/bin/python
"""Module: which options a tmpfs can have on this host, and how the one at a path is mounted."""

DOCUMENTATION = r"""
module: tmpfs_mount
short_description: Which tmpfs options this kernel and namespace take, and how a tmpfs is mounted now
description:
  - Tries each wanted option by a small mount in a mount namespace of its own that ends with the try. C(noswap) needs
    Linux 6.4 and is refused in a user namespace; C(mpol) needs a kernel with NUMA; C(huge) needs huge pages.
  - Compares the mount at O(path) with the size and the options that were accepted. Changes nothing.
  - The room of an earlier campaign stays, for room that nothing fills costs nothing; what was enlarged by hand, the
    mount or its O(unit), gets the size of the other back. None can shrink below what it holds, and other weights that
    lie in it beside O(folders) are added to the size that is wanted.
  - That nothing in it is a device or a program (C(nodev), C(nosuid), C(noexec)) is always wanted, and never tried.
  - Needs nothing on the host but Python.
attributes:
  check_mode:
    support: full
options:
  path:
    description: The mount point.
    type: path
    required: true
  size:
    description: Size in bytes; rounded up to whole pages of memory.
    type: int
    required: true
  unit:
    description: The mount unit's file, where there is one.
    type: path
  folders:
    description: Names of the folders in it that O(size) is for.
    type: list
    elements: str
    default: []
  options:
    description: Wanted options, each tried apart.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: What the tmpfs can have
  tmpfs_mount:
    path: /srv/gauntlet/models
    size: 64000000000
    unit: /etc/systemd/system/srv-gauntlet-models.mount
    folders: [qwen3.6-27b]
    options: [huge=within_size, mpol=interleave, noswap]
"""

RETURN = r"""
options:
  description: The options for the unit, size first.
  type: str
  returned: always
refused:
  description: Why each refused option was refused, by option.
  type: dict
  returned: always
mounted:
  description: Whether a tmpfs is mounted at the path.
  type: bool
  returned: always
systemd:
  description: Whether PID 1 is systemd, which keeps mounts as units.
  type: bool
  returned: always
in_the_way:
  description: The type of another filesystem that is mounted at the path.
  type: str
  returned: when there is one
different:
  description: How the mounted tmpfs differs from what is wanted.
  type: list
  elements: str
  returned: always
"""

import os
import re
import subprocess
import tempfile

from ansible.module_utils.basic import AnsibleModule

PAGE = os.sysconf("SC_PAGE_SIZE")
BLOCK = 512  # of st_blocks
ALWAYS = ["nodev", "nosuid", "noexec"]
MANIFEST = ".gauntlet-manifest.json"


def refusal(option):
    """Why the kernel does not take an option; None when it does."""
    with tempfile.TemporaryDirectory() as folder:
        # a namespace of its own: the mount is gone with the process, whatever happens
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k," + option, "gauntlet-probe", folder]
        done = subprocess.run(["unshare", "--mount", "--", *mount], capture_output=True, text=True)
    return None if done.returncode == 0 else (done.stderr.strip() or f"mount ended with {done.returncode}")


def mounted(path, mountinfo):
    """(filesystem type, set of its options) of what is mounted at a path last; None when nothing is."""
    found = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        if point == path:
            kind, _, options = after.split()
            found = kind, set(before.split()[5].split(",")) | set(options.split(","))
    return found


def differences(options, wanted, size, wanted_size):
    found = [] if size == wanted_size else [f"size is {size}, should be {wanted_size}"]
    found += ["it is read-only"] if "ro" in options else []
    # the kernel adds the nodes: mpol=interleave reads back as mpol=interleave:0-1
    return found + [
        f"{o} is not set" for o in wanted if o not in options and not any(p.startswith(o + ":") for p in options)
    ]


def pages(size):
    """Rounded up to whole pages of memory."""
    return -(-size // PAGE) * PAGE


def declared(unit):
    """The size in a mount unit; None where it has none."""
    try:
        with open(unit, encoding="utf-8", errors="replace") as file:
            size = re.search(r"^Options=.*\bsize=(\d+)(?:,|$)", file.read(), re.MULTILINE)
    except OSError:
        return None
    return int(size[1]) if size else None


def due(have, used, said, wanted):
    """The size to be: `have` is mounted, `said` the unit, `used` is filled."""
    return max(min(have, said or have), used, wanted)


def held_by_others(path, folders):
    """Bytes of memory that the weights at `path` outside these folders take; what is not Gauntlet's gets no room."""
    held = 0
    for entry in os.scandir(path):
        if entry.name not in folders and os.path.exists(os.path.join(entry.path, MANIFEST)):
            within = [os.path.join(above, name) for above, _, names in os.walk(entry.path) for name in names]
            held += sum(os.lstat(name).st_blocks * BLOCK for name in within)
    return held


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "size": {"type": "int", "required": True},
            "unit": {"type": "path"},
            "folders": {"type": "list", "elements": "str", "default": []},
            "options": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    path = module.params["path"].rstrip("/")
    refused = {option: why for option in module.params["options"] if (why := refusal(option))}
    accepted = [option for option in module.params["options"] if option not in refused]
    with open("/proc/self/mountinfo") as file:
        now = mounted(path, file.read())
    size, result = pages(module.params["size"]), {"refused": refused, "mounted": False, "different": []}
    if now and now[0] == "tmpfs":
        status = os.statvfs(path)
        have, used = (blocks * status.f_frsize for blocks in (status.f_blocks, status.f_blocks - status.f_bfree))
        wanted = pages(module.params["size"] + held_by_others(path, module.params["folders"]))
        size = due(have, used, declared(module.params["unit"] or ""), wanted)
        result |= {"mounted": True, "different": differences(now[1], [*accepted, *ALWAYS], have, size)}
    elif now:
        result["in_the_way"] = now[0]
    options = ",".join([f"size={size}", *accepted, "mode=0755", *ALWAYS])
    result |= {"options": options, "systemd": os.path.isdir("/run/systemd/system")}
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
