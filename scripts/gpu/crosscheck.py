#!/usr/bin/env python3
"""Gauntlet and SGLang's own serving benchmark on one running server: tokens/s of the same load, side by side.

usage: crosscheck.py OUT_FOLDER     (on the GPU machine, after site.yml)
1,024 tokens in, 256 out, closed loop at concurrency 1 and 16; each tool twice, taking turns.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from planned import HOST, planned

from gauntlet import engines, job, services, serving

PORT = 30000
REQUESTS = {1: 4, 16: 32}
ROUNDS = 2
AGENT = "/opt/gauntlet/agent/bin/python"


def gauntlet(made: dict, deployment: str, port: int, out: Path, turn: int) -> dict[int, dict]:
    """{concurrency: figures} of one run of the measuring client."""
    results = out / f"crosscheck.{turn}"
    given = {
        "endpoint": {"base_url": f"http://127.0.0.1:{port}", "dialect": "sglang"},
        "unit": engines.instance(made["deployments"][deployment]),
        "limits": {},
        "conditions": {},
        "conditions_id": None,
        "observed": {},
        "results": str(results / "results"),
    }
    results.mkdir(parents=True, exist_ok=True)
    path = results / "job.json"
    path.write_text(json.dumps(job.make(made, HOST, deployment, 0, **given)))
    subprocess.run([AGENT, "-m", "gauntlet.measure", str(path)], check=False)
    found = {}
    for cell in (results / "results").glob("*/r*/cell.json"):
        told = json.loads(cell.read_text())
        found[told["concurrency"]] = {
            "tokens_per_s": told["summary"]["tokens_per_s"],
            "ttft_p50_ms": told["summary"]["ttft_ms"]["p50"],
            "tpot_mean_ms": told["summary"]["tpot_ms"]["mean"],
            "completion_tokens": told["summary"]["completion_tokens"],
            "valid": told["validity"],
        }
    return found


def sglang(deployment: dict, port: int, concurrency: int, out: Path, turn: int) -> dict:
    """SGLang's own figures of the same load."""
    file = out / f"bench_serving.{concurrency}.{turn}.jsonl"
    paths = engines.locate(deployment)
    command = [
        f"{paths['engine']}/bin/python", "-m", "sglang.bench_serving", "--backend", "sglang",
        "--host", "127.0.0.1", "--port", str(port), "--model", paths["model"], "--dataset-name", "random-ids",
        "--tokenize-prompt", "--random-input-len", "1024", "--random-output-len", "256", "--random-range-ratio", "1.0",
        "--num-prompts", str(REQUESTS[concurrency]), "--max-concurrency", str(concurrency), "--seed", str(turn),
        "--flush-cache", "--output-file", str(file), "--disable-tqdm",
    ]  # fmt: skip
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    (out / f"bench_serving.{concurrency}.{turn}.log").write_text(run.stdout + run.stderr)
    told = json.loads(file.read_text().splitlines()[-1])
    return {
        "tokens_per_s": told["output_throughput"],
        "ttft_p50_ms": told["median_ttft_ms"],
        "tpot_mean_ms": told["mean_tpot_ms"],
        "completion_tokens": told["total_output_tokens"],
        "completed": told["completed"],
    }


def compare(deployment: dict, port: int, out: Path, rounds: int = ROUNDS) -> list[dict]:
    """Rows of both tools on the server that runs at `port`; written to OUT/crosscheck.json as they come."""
    made, rows = planned("crosscheck", deployment["model"], deployment["method"]), []
    for turn in range(rounds):
        ours = gauntlet(made, deployment["name"], port, out, turn)
        for concurrency in REQUESTS:
            try:
                theirs = sglang(deployment, port, concurrency, out, turn)
            except (OSError, ValueError, KeyError, IndexError) as error:
                theirs = {"error": f"{type(error).__name__}: {error}"}
            rows.append({"concurrency": concurrency, "turn": turn, "gauntlet": ours.get(concurrency), "sglang": theirs})
            print(json.dumps(rows[-1]), flush=True)
            (out / "crosscheck.json").write_text(json.dumps(rows, indent=1))
    return rows


def main(out: Path) -> None:
    deployment = next(iter(planned("crosscheck")["deployments"].values()))
    manager, unit = services.manager(), engines.instance(deployment)
    serving.begin(deployment, PORT, manager)
    try:
        while not serving.poll(deployment, PORT, manager, 30, {})["ready"]:
            pass
        compare(deployment, PORT, out)
    finally:
        serving.end(unit, PORT, manager, 60)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
