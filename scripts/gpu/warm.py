#!/usr/bin/env python3
"""Deployments for one GPU, of some campaigns, started side by side and stopped: bench.yml finds their kernels compiled.

usage: warm.py CAMPAIGN…     (after site.yml of each; they are dealt to the cards in turn)

Each is given little memory, since several may share a card. One that does not start says so and leaves the others; its
first start in bench.yml is a long one then.
"""

import subprocess
import sys
import threading
import time
from pathlib import Path

from planned import known, planned

from gauntlet import engines, services, serving

MANAGER, DIAGNOSES = services.manager(), known().diagnoses
GPUS = len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.splitlines())
LITTLE = {"mem-fraction-static": 0.95, "max-total-tokens": 20000, "max-running-requests": 4, "max-mamba-cache-size": 24}


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


def up(deployment: dict, port: int, card: int = GPUS - 1, seconds: float = 240) -> dict:
    """Started on one card and a port of its own; what its server says once it answered."""
    deployment["environment"] = {**deployment["environment"], "CUDA_VISIBLE_DEVICES": str(card)}
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


def warm(deployment: dict, card: int) -> None:
    """Started once and stopped, under a name that no plan has."""
    port = 31000 + int(deployment["spec_id"][:6], 16) % 1000
    deployment |= {
        "name": f"warm.{deployment['method']}.tp1-{port:08d}",
        "arguments": {**deployment["arguments"], **LITTLE},
    }
    try:
        up(deployment, port, card)
    finally:
        down(deployment, port)


def main(*campaigns: str) -> None:
    plans = [planned(campaign)["deployments"] for campaign in campaigns]
    found = {name: deployment for plan in plans for name, deployment in plan.items() if deployment["tp"] == 1}
    threads = [
        threading.Thread(target=guarded, args=(f"warm {name}", warm, deployment, number % GPUS))
        for number, (name, deployment) in enumerate(sorted(found.items()))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
