#!/usr/bin/env python3
"""On the last card, while bench.yml measures on the first: what has no need of it, and what makes its starts shorter.

usage: beside.py OUT_FOLDER     (on a machine with two cards, after site.yml of the campaigns named here)

The kernels that EAGLE-3, DFlash and the hybrid shape compile at their first start, so that bench.yml finds them;
chunks of several tokens, recorded and measured; Gauntlet and SGLang's own benchmark on one server.
"""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import ansible.module_utils
import crosscheck
import record
from planned import HOST, ROOT, known, planned

from gauntlet import engines, identity, job, services, serving

AGENT = "/opt/gauntlet/agent/bin/python"
RESULTS = Path("/var/lib/gauntlet/results")
MANAGER, DIAGNOSES = services.manager(), known().diagnoses
FEW_TOKENS = {"max-total-tokens": 60000}  # two servers on one card
GPUS = len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.splitlines())


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def guarded(name: str, function, *arguments, **named):
    """A step that fails says so and leaves the others."""
    begun = time.monotonic()
    try:
        function(*arguments, **named)
        say(f"{name}: done in {time.monotonic() - begun:.1f} s")
    except Exception as error:
        say(f"{name}: {type(error).__name__}: {str(error)[:600]}")


def of(campaign: str, method: str) -> dict:
    return next(d for d in planned(campaign)["deployments"].values() if d["method"] == method)


def up(deployment: dict, port: int, seconds: float = 240) -> dict:
    """Started on the last card and a port of its own; what its server says once it answered."""
    deployment["environment"] = {**deployment["environment"], "CUDA_VISIBLE_DEVICES": str(GPUS - 1)}
    text = engines.env_file(deployment, engines.locate(deployment), port)
    (Path(engines.DEPLOYMENTS) / f"{deployment['name']}.env").write_text(text)
    serving.begin(deployment, port, MANAGER)
    until = time.monotonic() + seconds
    while not (found := serving.poll(deployment, port, MANAGER, 5, DIAGNOSES))["ready"]:
        if time.monotonic() > until:
            raise TimeoutError(f"{deployment['name']} is {found['phase']} after {seconds:.0f} s")
    return found


def down(deployment: dict, port: int) -> None:
    serving.end(engines.instance(deployment), port, MANAGER, 30)


def warm(campaign: str, method: str, port: int, **changes) -> None:
    """Started once and stopped: its kernels are in the cache then. Under a name that no plan has."""
    deployment = of(campaign, method)
    deployment |= {"name": f"warm.{method}.tp1-{port:08d}", "arguments": {**deployment["arguments"], **changes}}
    try:
        up(deployment, port)
    finally:
        down(deployment, port)


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
    pair = [
        threading.Thread(target=guarded, args=(f"warm {method}", warm, "shape-8b", method, port), kwargs=FEW_TOKENS)
        for method, port in (("eagle3", 30011), ("dflash", 30012))
    ]
    for thread in pair:
        thread.start()
    for thread in pair:
        thread.join()
    guarded("simulated", simulated, out, 30013)
    guarded("both benchmarks", both_benchmarks, out, 30014)
    for method, port in (("dflash", 30015), ("autoregressive", 30016)):
        guarded(f"warm hybrid {method}", warm, "tp", method, port)
    say("end")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
