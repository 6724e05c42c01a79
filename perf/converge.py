"""Seconds to converge hosts that are converged, beside the least that Ansible does on them (`-m ping`), in turns.

    python perf/converge.py [-i INVENTORY] [-p PLAYBOOK] [-n ROUNDS] HOST [HOST …]

One line for the first host and one for all of them: medians, seconds a host, and the ratio to ping, which is what
compares between machines. Refuses when a round changes something: that would time the change.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def timed(*command: str) -> tuple[float, str]:
    """(wall seconds, output) of an Ansible command. Exits with its output when it fails."""
    start = time.monotonic()
    plain = {**os.environ, "ANSIBLE_FORCE_COLOR": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "ansible", *command], cwd=ROOT, env=plain, capture_output=True, text=True
    )
    seconds = time.monotonic() - start
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return seconds, done.stdout


def measure(hosts: list[str], inventory: list[str], playbook: str, rounds: int) -> tuple[float, float]:
    """(ping, converge): medians of wall seconds over `rounds`, taken in turns."""
    limit = ",".join(hosts)
    pings, converges = [], []
    for _ in range(rounds):
        pings.append(timed("adhoc", *inventory, limit, "-m", "ansible.builtin.ping")[0])
        seconds, output = timed("playbook", *inventory, playbook, "--limit", f"{limit},localhost")
        changed = [line for line in output.splitlines() if re.search(r"changed=[1-9]", line)]
        if changed:
            sys.exit("not converged, so there is nothing to time yet:\n" + "\n".join(changed))
        converges.append(seconds)
    return statistics.median(pings), statistics.median(converges)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-i", "--inventory", action="append", default=[])
    parser.add_argument("-p", "--playbook", default="site.yml")
    parser.add_argument("-n", "--rounds", type=int, default=5)
    parser.add_argument("hosts", nargs="+", metavar="HOST")
    asked = parser.parse_args()
    inventory = [word for name in asked.inventory for word in ("-i", name)]
    timed("adhoc", *inventory, ",".join(asked.hosts), "-m", "ansible.builtin.ping")  # the first connection is not timed
    print(f"{'hosts':>5}  {'ping s':>7}  {'converge s':>10}  {'s/host':>7}  {'times ping':>10}")
    for hosts in dict.fromkeys([tuple(asked.hosts[:1]), tuple(asked.hosts)]):
        ping, converge = measure(list(hosts), inventory, asked.playbook, asked.rounds)
        print(f"{len(hosts):5}  {ping:7.2f}  {converge:10.2f}  {converge / len(hosts):7.2f}  {converge / ping:10.1f}")


if __name__ == "__main__":
    main()
