"""How long 1,000,000 requests of 10,000 attempts take to load, and how much memory: python -m perf.load [attempts]

Each request has 128 token ids and a text, as real ones do. Printed are wall and CPU seconds and an upper bound of the
memory (this process at its peak, and the largest worker as often as there are workers), for `analysis.load` and then
for the study and its table. The goal is 60 s and 4 GB on two cores; the latest run goes to perf/RESULTS.md.
"""

import gzip
import hashlib
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from analysis import read, study, terminal
from analysis.findings import Findings
from perf import machine, results
from tests.synthetic import AUTOREGRESSIVE, Method, Workload, attempts

REQUESTS = 100
TEXT = "The quick brown fox jumps over the lazy dog, and the dog did not mind it at all. " * 7


def build(root: Path, count: int) -> int:
    """A tree of `count` attempts of REQUESTS requests, three repeats a cell; returns its bytes."""
    methods, workloads = [AUTOREGRESSIVE, Method("ngram", 2.0, 1.2)], [Workload("edit", 20, passes=REQUESTS // 20)]
    patterns = list(attempts(methods, workloads))
    for _, rows in patterns:
        for row in rows:
            row |= {"output_ids": [(row["index"] * 31 + k * 7919) % 49152 for k in range(128)], "output_text": TEXT}
    size = 0
    for number in range(count):
        cell, rows = patterns[number % len(patterns)]
        group = number // len(patterns)
        for row in rows:
            row["prompt_sha256"] = hashlib.sha256(f"{group} {row['index']}".encode()).hexdigest()
            row["output_sha256"] = hashlib.sha256(row["prompt_sha256"].encode()).hexdigest()
        packed = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), 1, mtime=0)
        spec_id = hashlib.sha256(f"{group} {cell['spec_id']}".encode()).hexdigest()
        mine = cell | {
            "workload": f"edit-{group}", "spec_id": spec_id, "cell_id": f"{cell['cell_id']}-{group}",
            "files": {"requests.jsonl.gz": hashlib.sha256(packed).hexdigest()},
        }  # fmt: skip
        folder = root / cell["host"] / mine["cell_id"] / cell["attempt"]
        folder.mkdir(parents=True)
        (folder / "requests.jsonl.gz").write_bytes(packed)
        (folder / "cell.json").write_text(json.dumps(mine))
        size += len(packed)
    return size


def used() -> tuple[float, float, float]:
    """(wall, CPU of this process and its workers, GB at most) so far."""
    own, workers = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = own.ru_utime + own.ru_stime + workers.ru_utime + workers.ru_stime
    return time.monotonic(), cpu, (own.ru_maxrss + (os.cpu_count() or 1) * workers.ru_maxrss) * 1024 / 1e9


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        size = build(Path(folder), count)
        begun = used()
        found = read(folder)
        loaded = used()
        cells, requests = len(found.cells), len(found.requests)
        print(terminal.closing(Findings(study.make(found, synthetic=True)))[:200])
        tabled = used()
    lines = [
        f"{machine.described()}; load {machine.load():.1f} before the end.",
        "",
        f"{cells:,} attempts, {requests:,} requests, {size / 1e9:.2f} GB packed.",
        "",
        "| step | wall s | CPU s | GB at most |",
        "|---|---|---|---|",
    ]
    for name, (start, end) in {"load": (begun, loaded), "study and table": (loaded, tabled)}.items():
        lines.append(f"| {name} | {end[0] - start[0]:.1f} | {end[1] - start[1]:.1f} | {end[2]:.2f} |")
    text = "\n".join(lines)
    print(text)
    if count >= 10_000:
        results.write("Loading results", text)


if __name__ == "__main__":
    main()
