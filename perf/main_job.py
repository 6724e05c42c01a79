"""Where the time of `make bench` goes, cold and warm: python -m perf.main_job

In a fresh clone. Cold: no cached lab root, no wheels, no weights, no results. Warm: the caches are there, the lab host
is taken away and the results are removed, so that provisioning and measuring are done again. Replaces its section in
perf/RESULTS.md. Takes the caches of this machine's user away.
"""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from perf import machine, results

ROOT = Path(__file__).parents[1]
CACHES = (Path("/var/cache/gauntlet-lab"), Path.home() / ".cache/gauntlet")


def job(clone: Path) -> dict[str, float]:
    """Seconds of each step of one `make bench`."""
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    log = subprocess.run(["make", "bench"], cwd=clone, env=environment, text=True, capture_output=True)
    if log.returncode:
        raise SystemExit(log.stdout[-3000:] + log.stderr[-1000:])
    return json.loads((clone / ".cache/steps.json").read_text())


def main() -> None:
    if (ROOT / ".venv").exists():  # on a fresh machine there is no lab to take away, and nothing to do it with
        subprocess.run(["make", "clean"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    for cache in CACHES:
        shutil.rmtree(cache, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="gauntlet-bench-") as folder:
        clone = Path(folder) / "gauntlet"
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        cold = job(clone)
        subprocess.run(["make", "clean"], cwd=clone, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(clone / "results")
        warm = job(clone)
        subprocess.run(["make", "clean"], cwd=clone, check=True, stdout=subprocess.DEVNULL)
    rows = [f"| {step} | {cold[step]:.0f} | {warm[step]:.0f} |" for step in cold]
    text = "\n".join([f"{machine.described()}, load {machine.load():.1f} at the end. Seconds:", "",
                      "| step | cold | warm |", "|---|--:|--:|", *rows])  # fmt: skip
    print(text)
    results.write("make bench, step by step", text)


if __name__ == "__main__":
    main()
