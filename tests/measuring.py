"""What tests of the measuring core share: recordings as they arrived, jobs against a scripted engine."""

import gzip
import hashlib
import json
from pathlib import Path

RECORDINGS = Path(__file__).parent / "recordings" / "sglang-0.5.16-h200"
CASES = Path(__file__).parent / "cases"
FAST = {"ttft_s": 0.002, "step_s": 0.001}
# a busy machine that runs tests must not make cells invalid; each limit is tested where it matters
WIDE = {"lag_p99_ms": 1e6, "load_per_cpu": 1e6, "warmup_tolerance": 2, "load_reached": 0}


def recording(name):
    """(times, pieces) of a recorded stream: one piece a line, with the seconds at which it arrived."""
    times, pieces = [], []
    for line in (RECORDINGS / name).read_bytes().split(b"\n"):
        t, tab, data = line.partition(b"\t")
        if tab:
            times.append(float(t))
            pieces.append(data + b"\n")
    return times, pieces


def case(pattern):
    """(times, pieces) of a case's bytes, in one read."""
    (path,) = CASES.glob(pattern)
    return [1.0], [path.read_bytes()]


def deployment(method="autoregressive", **more):
    return {
        "name": f"m.{method}.tp1-00000000", "spec_id": "0" * 64, "model": "m", "method": method, "family": method,
        "baseline": method == "autoregressive", "tp": 1, "engine": "scripted", "engine_build": "scripted",
        "weights": {}, "notes": [], "simulated": ["scripted engine"], **more,
    }  # fmt: skip


def cell(workload="prose", concurrency=1, method="autoregressive", **content):
    prompts = content.pop("prompts", [{"id": f"p{i}", "text": f"Prompt number {i}."} for i in range(2)])
    requests = content.pop("requests", None)
    content = {
        "kind": "single", "prompts": prompts, "output_tokens": 8, "context_tokens": None,
        "sampling": {"temperature": 0, "top_p": 1, "seed": 0}, "ignore_eos": True, "chat": False, **content,
    }  # fmt: skip
    spec_id = hashlib.sha256(json.dumps([workload, concurrency, method, content]).encode()).hexdigest()
    return {
        "id": f"m.{method}.tp1.{workload}.c{concurrency}-{spec_id[:8]}", "spec_id": spec_id,
        "deployment": f"m.{method}.tp1-00000000", "workload": workload, "concurrency": concurrency,
        "specification": {"workload": workload}, "workload_content": content, "client": {}, "requests": requests,
    }  # fmt: skip


def job(folder, base_url, cells, method="autoregressive", dialect="sglang", **more):
    """The path of a job file in `folder` with these cells against `base_url`."""
    path = Path(folder) / "job.json"
    limits = {**WIDE, **more.pop("limits", {})}
    path.write_text(json.dumps({
        "schema": 1, "job_id": "job-1", "host": "lab1", "campaign": "test", "deployment": deployment(method),
        "repeat": 0, "closing": False, "cells": cells, "conditions_id": "c", "conditions": {}, "observed": {},
        "endpoint": {"base_url": base_url, "dialect": dialect, "api_key_file": None}, "limits": limits,
        "results": str(Path(folder) / "results"), "unit": None, "simulated": [], **more,
    }))  # fmt: skip
    return path


def attempts(folder):
    """The stored attempts: [(cell.json, requests, chunks)], in order of start."""
    found = []
    for path in sorted((Path(folder) / "results").glob("*/[!.]*/cell.json"), key=lambda p: p.stat().st_mtime_ns):
        found.append(
            (json.loads(path.read_text()), *(lines(path.parent / f"{n}.jsonl.gz") for n in ("requests", "chunks")))
        )
    return found


def lines(path):
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def progress(folder):
    return [json.loads(line) for line in (Path(folder) / "job.progress.jsonl").read_text().splitlines()]
