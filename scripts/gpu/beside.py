#!/usr/bin/env python3
"""On the last card, while bench.yml measures on the first, what has no need of bench.yml.

usage: beside.py OUT_FOLDER     (on a machine with two cards, after site.yml of the campaigns named here)

Chunks of several tokens, recorded and measured; Gauntlet and SGLang's own benchmark on one server.
"""

import json
import subprocess
import sys
from pathlib import Path

import ansible.module_utils
import crosscheck
import record
from planned import HOST, ROOT, planned
from warm import down, guarded, say, up

from gauntlet import engines, identity, job

AGENT = "/opt/gauntlet/agent/bin/python"
RESULTS = Path("/var/lib/gauntlet/results")


def of(campaign: str, method: str) -> dict:
    return next(d for d in planned(campaign)["deployments"].values() if d["method"] == method)


def conditions() -> dict:
    """The stable part of this host's fingerprint, as bench.yml stores it."""
    ansible.module_utils.__path__.append(str(ROOT / "module_utils"))
    from ansible.module_utils.gauntlet_host.fingerprint import fingerprint
    from ansible.module_utils.gauntlet_host.host import Host

    return fingerprint(Host("/"))["stable"]


def simulated(out: Path, port: int) -> None:
    """Recorded byte by byte, and measured by the client of bench.yml; the next bench.yml brings the attempts home."""
    made = planned("simulated-acceptance")
    deployment = next(iter(made["deployments"].values()))
    stable = conditions()
    given = {
        "endpoint": {"base_url": f"http://127.0.0.1:{port}", "dialect": "sglang"},
        "unit": engines.instance(deployment),
        "limits": {"foreign_cpu_share": 0.5},
        "conditions": stable,
        "conditions_id": identity.conditions_id(stable),
        "results": str(RESULTS),
    }
    try:
        found = up(deployment, port)
        (out / "simulated.ready.json").write_text(json.dumps(found, default=str))
        (out / "recordings").mkdir(exist_ok=True)
        guarded("recorded", record.record, "eagle3-topk4-simulated", out / "recordings", port)
        path = out / "simulated.job.json"
        given["observed"] = {"memory": found["memory"]}
        path.write_text(json.dumps(job.make(made, HOST, deployment["name"], 0, **given)))
        subprocess.run([AGENT, "-m", "gauntlet.measure", str(path)], check=True)
    finally:
        down(deployment, port)


def both_benchmarks(out: Path, port: int) -> None:
    deployment = of("crosscheck", "autoregressive")
    try:
        up(deployment, port)
        crosscheck.compare(deployment, port, out)
    finally:
        down(deployment, port)


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    guarded("simulated", simulated, out, 30013)
    guarded("both benchmarks", both_benchmarks, out, 30014)
    say("end")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
