#!/usr/bin/env python3
"""Forces the starts that preflight refuses, and writes what is said of each: the journal is SGLang's own.

usage: failures.py OUT.json     (on the GPU machine, after site.yml)
"""

import json
import sys
import time
from pathlib import Path

from planned import known, planned

from gauntlet import engines, services, serving
from gauntlet.errors import GauntletError

DEADLINE_S = 120
NO_NUMBERS = {"speculative-num-steps": None, "speculative-eagle-topk": None, "speculative-num-draft-tokens": None}
CASES = {  # campaign, method, what is changed in its arguments
    "eagle3-topk-only": ("shape-8b", "eagle3", {**NO_NUMBERS, "speculative-eagle-topk": 4}),
    "eagle3-steps-only": ("shape-8b", "eagle3", {**NO_NUMBERS, "speculative-num-steps": 3}),
    "no-slot-for-a-request": ("founding-failure", "dflash", {}),
    "out-of-memory": ("shape-8b", "autoregressive", {"mem-fraction-static": 0.999}),
}


def force(name: str, diagnoses: dict, manager, port: int = 30000, gpu: int = 0) -> dict:
    """What is said of one forced start, with the journal that it is said from."""
    campaign, method, changes = CASES[name]
    deployment = next(d for d in planned(campaign)["deployments"].values() if d["method"] == method)
    arguments = {**deployment["arguments"], **changes}
    deployment |= {"name": f"forced.{name}.tp1-00000000", "arguments": arguments}
    deployment["environment"] = {**deployment["environment"], "CUDA_VISIBLE_DEVICES": str(gpu)}
    text = engines.env_file(deployment, engines.locate(deployment), port)
    (Path(engines.DEPLOYMENTS) / f"{deployment['name']}.env").write_text(text)
    begun, said = time.monotonic(), None
    try:
        serving.begin(deployment, port, manager)
        while time.monotonic() - begun < DEADLINE_S:
            found = serving.poll(deployment, port, manager, 5, diagnoses)
            if found["ready"]:
                break
    except GauntletError as error:
        said = str(error)
    unit = engines.instance(deployment)
    serving.end(unit, port, manager, 30)
    journal = [line for _, line in manager.journal(unit, None)]
    return {"said": said, "seconds": round(time.monotonic() - begun, 1), "arguments": arguments, "journal": journal}


def main(out: Path) -> None:
    manager, diagnoses, found = services.manager(), known().diagnoses, {}
    for name in CASES:
        try:
            found[name] = force(name, diagnoses, manager)
        except Exception as error:  # the next case is worth as much as this one
            found[name] = {"said": f"{type(error).__name__}: {error}", "seconds": None, "journal": []}
        out.write_text(json.dumps(found, indent=1))
        print(f"{name} ({found[name]['seconds']} s): {found[name]['said']}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
