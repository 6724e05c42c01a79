"""How long a plan of 100,000 cells takes, and how much memory: python perf/plan.py [cells]

The campaign is the founding one made wide: methods, tp, workloads and concurrency, as many as it takes. Two runs:
nothing measured, and half of the first round at home. Printed are seconds of CPU (one process that waits for nothing),
its peak memory and the file's size.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

from gauntlet import catalog, plan
from gauntlet.identity import conditions_id

ROOT = Path(__file__).parents[1]
HOST = {"engine_builds": {"sglang": "sglang-0.5.23"}, "gpus": 8, "conditions": {"gpus": [], "kernel": "6.8"}}
TPS, WORKLOADS = (1, 2, 4, 8), 20


def wide(cells: int) -> catalog.Catalog:
    """Our catalog with a campaign `wide` of at least so many cells: 50 methods, 4 tp, 20 workloads."""
    ours = catalog.load([ROOT / "catalog"])
    mtp, short = ours.methods["mtp"], ours.workloads["short-512"]
    for steps in range(50):
        arguments = {**mtp["engines"]["sglang"]["arguments"], "speculative-num-steps": steps + 1}
        engines = {"sglang": {**mtp["engines"]["sglang"], "arguments": arguments}}
        ours.methods[f"mtp-s{steps}"] = {**mtp, "name": f"mtp-s{steps}", "family": "wide", "engines": engines}
    for length in range(WORKLOADS):
        name = f"short-{length}"
        ours.workloads[name] = {**short, "name": name, "output_tokens": 100 + length}
    concurrencies = list(range(1, 1 + -(-cells // (50 * len(TPS) * WORKLOADS))))
    block = {"workloads": [f"short-{n}" for n in range(WORKLOADS)], "concurrency": concurrencies}
    base = ours.campaigns["qwen3.6-27b"]
    matrix = [{**block, "methods": None, "tp": None}]
    ours.campaigns["wide"] = {**base, "name": "wide", "methods": ["wide"], "tp": list(TPS), "matrix": matrix}
    return ours


def attempts(made: dict) -> list[dict]:
    """The first repeat of every second cell."""
    known = {"conditions_id": conditions_id(HOST["conditions"]), "conditions": HOST["conditions"], "tuning": None}
    found = []
    for name, cell in list(made["cells"].items())[::2]:
        deployment = made["deployments"][cell["deployment"]]
        work = {"workload": cell["workload"], "concurrency": cell["concurrency"]}
        found.append({
            "host": "gpu", "cell_id": name, "spec_id": cell["spec_id"], "repeat": 0, "closing": False, "valid": True,
            "window_s": 30.0, "started_utc": "2026-11-29T12:00:00+00:00", **work, **known,
            **{key: deployment[key] for key in ("model", "method", "tp")},
        })  # fmt: skip
    return found


def main() -> None:
    cells = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    ours = wide(cells)
    measured: list[dict] = []
    for title in ("nothing measured", "half of the first round measured"):
        start = time.process_time()
        made = plan.make(ours, {"campaign": "wide"}, {"gpu": HOST}, measured)
        planned = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            plan.save(made, Path(folder) / "plan.json")
            size = (Path(folder) / "plan.json").stat().st_size
        saved = time.process_time()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        starts = len(made["hosts"]["gpu"]["activations"])
        print(f"{title}: {len(made['cells'])} cells, {starts} server starts")
        print(f"  planned in {planned - start:.1f} s, written in {saved - planned:.1f} s, {size / 1e6:.0f} MB")
        print(f"  peak memory so far {peak:.0f} MB")
        measured = attempts(made)


if __name__ == "__main__":
    main()
