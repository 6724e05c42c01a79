"""What the boot unit runs: the settings that do not outlive a reboot, set as the last playbook left them.

python3 -m gauntlet_host.boot [ROOT]
"""

from __future__ import annotations

import json
import sys

from . import tuning
from .files import WANTED
from .host import Host, HostError


def main(root: str = "/") -> int:
    host = Host(root)
    asked = json.loads(host.text(WANTED) or "{}")
    try:
        change = tuning.set_again(host, asked.get("settings", []), asked.get("simulated", False))
    except HostError as error:
        print(error, file=sys.stderr)
        return 1
    for done in change.targets:
        print(f"{done['setting']}: {done['target']} {done['before']} -> {done['after']}")
    for refused in change.refused:
        print(refused, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
