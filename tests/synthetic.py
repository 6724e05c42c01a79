"""Results trees with known truth, marked `simulated: ["synthetic"]` in every attempt: they judge the analysis.

A method's decode speed is acceptance length / step time; a server start, a prompt and a request each add their own
multiplicative noise, so that tests can ask whether an interval covers the truth that was put in.
"""

import gzip
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

MARK = "synthetic"


@dataclass(frozen=True)
class Method:
    """What is true of a method: `acceptance` tokens a step, `step` duration relative to the baseline's step."""

    name: str
    acceptance: float = 1.0
    step: float = 1.0
    family: str = ""
    baseline: bool = False
    by_workload: dict = field(default_factory=dict)  # workload -> factor on the acceptance length
    by_concurrency: dict = field(default_factory=dict)  # concurrency -> factor on the step time
    by_tp: dict = field(default_factory=dict)  # tp -> factor on the step time
    notes: tuple = ()
    drafted_per_step: int = 4
    arguments: dict = field(default_factory=dict)
    position_counts: bool = False


AUTOREGRESSIVE = Method("autoregressive", baseline=True)


@dataclass(frozen=True)
class Workload:
    """`prompts` distinct prompts, each asked `passes` times; `context` prompt tokens, `output` tokens wanted."""

    name: str
    prompts: int = 8
    passes: int = 1
    context: int = 64
    output: int = 128


@dataclass(frozen=True)
class Noise:
    """Standard deviations of log speed: between server starts, between prompts, between requests."""

    start: float = 0.004
    prompt: float = 0.05
    request: float = 0.01


def write(
    root,
    methods,
    workloads,
    *,
    concurrency=(1,),
    repeats=3,
    tp=(1,),
    host="lab1",
    model="smollm2-135m",
    campaign="lab",
    seed=0,
    noise=Noise(),
    step_ms=10.0,
    prefill_tokens_per_s=20000.0,
    closing=(),
    drift=1.0,
    edit=None,
    conditions=None,
    engine="llamacpp",
    engine_build="xllamacpp-2026.10",
):
    """A tree of `methods` × `workloads` × `concurrency` × `tp` × `repeats`; returns the attempts' folders.

    `closing`: methods measured once more at the end, their speed times `drift`. `edit(cell, rows)` changes an attempt
    before it is written. Seeds depend on what an attempt is, so a larger tree holds the smaller one unchanged.
    """
    folders = []
    rounds = [(repeat, False) for repeat in range(repeats)] + ([(repeats, True)] if closing else [])
    for width in tp:
        for repeat, last in rounds:
            for method in methods:
                if last and method.name not in closing:
                    continue
                start = np.random.default_rng(_seed(seed, host, model, method.name, width, repeat))
                luck = start.normal(0, noise.start)
                for workload in workloads:
                    for width_of_batch in concurrency:
                        cell, rows = _attempt(
                            method, workload, width_of_batch, width, repeat, last, luck,
                            host=host, model=model, campaign=campaign, seed=seed, noise=noise, step_ms=step_ms,
                            prefill=prefill_tokens_per_s, drift=drift if last else 1.0,
                            conditions=conditions or {"cpu": {"model": "synthetic", "count": 2}},
                            engine=engine, engine_build=engine_build,
                        )  # fmt: skip
                        if edit:
                            edit(cell, rows)
                        folders.append(save(root, cell, rows))
    return folders


def save(root, cell, rows, chunks=None):
    """One attempt, whole, with the hashes of its files."""
    stamp = cell["started_utc"].replace("-", "").replace(":", "")
    folder = Path(root) / cell["host"] / cell["cell_id"] / f"r{cell['repeat']}-{stamp}-{digest(cell['invocation'])[:4]}"
    folder.mkdir(parents=True, exist_ok=True)
    cell["files"] = {}
    for name, lines in (("requests.jsonl.gz", rows), ("chunks.jsonl.gz", chunks)):
        if lines is not None:
            packed = gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode(), 1, mtime=0)
            (folder / name).write_bytes(packed)
            cell["files"][name] = hashlib.sha256(packed).hexdigest()
    (folder / "cell.json").write_text(json.dumps(cell, indent=1))
    return folder


def digest(value):
    """64 hex of any JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _seed(*parts):
    return int(digest([str(part) for part in parts])[:15], 16)


def _attempt(method, workload, concurrency, tp, repeat, closing, luck, *, host, model, campaign, seed, noise, step_ms,
             prefill, drift, conditions, engine, engine_build):  # fmt: skip
    random = np.random.default_rng(_seed(seed, host, model, method.name, workload.name, concurrency, tp, repeat))
    acceptance = 1 + (method.acceptance - 1) * method.by_workload.get(workload.name, 1.0)
    step_s = step_ms / 1000 * method.step * method.by_concurrency.get(concurrency, 1.0) * method.by_tp.get(tp, 1 / tp)
    step_s *= (1 + 0.05 * (concurrency - 1)) * np.exp(-luck) / drift
    free = [0.0] * concurrency
    rows = []
    for index in range(workload.prompts * workload.passes):
        prompt = index % workload.prompts
        taste = np.random.default_rng(_seed(seed, method.name, workload.name, prompt)).normal(0, noise.prompt)
        own = acceptance * np.exp(taste) if method.acceptance > 1 else 1.0
        tokens = workload.output
        steps = max(1, round((tokens - 1) / max(own, 1.0)))
        worker = int(np.argmin(free))
        sent = free[worker]
        first = sent + workload.context / prefill + step_s
        last = first + steps * step_s * np.exp(random.normal(0, noise.request))
        free[worker] = last + 0.0002
        drafts = not method.baseline and method.acceptance > 1
        rows.append({
            "index": index, "prompt_id": f"{workload.name}-{prompt:02d}", "conversation": None, "turn": 0,
            "worker": worker, "scheduled": sent, "sent": sent, "connect_s": 0.0001, "first": first, "last": last,
            "ended": last + 0.0001, "prompt_tokens": workload.context, "completion_tokens": tokens, "cached_tokens": 0,
            "reasoning_tokens": None, "first_chunk_tokens": 1, "chunks": steps + 1,
            "verify_steps": steps if drafts else None, "drafted": steps * method.drafted_per_step if drafts else None,
            "accepted": tokens - 1 - steps if drafts else None,
            "accept_histogram": None, "finish_reason": "length", "expected_tokens": tokens, "token_source": "timings",
            "output_ids": [(prompt * 31 + k * 7) % 997 for k in range(tokens)], "output_text": f"text {prompt}",
            "output_sha256": digest([workload.name, prompt]), "error": None, "anomalies": [],
        })  # fmt: skip
    specification = {
        "weights": {"model": digest([model])}, "engine": engine, "engine_build": engine_build,
        "arguments": {"speculative": method.name, "tensor-parallel-size": tp} | method.arguments,
        "environment": {}, "workload": {"name": workload.name, "digest": digest([workload.name, workload.prompts])},
        "concurrency": concurrency,
    }  # fmt: skip
    spec_id = digest(specification)
    invocation = digest([seed, host, model, method.name, tp, repeat, closing])[:32]
    cell = {
        "schema": 1, "cell_id": f"{model}.{method.name}.tp{tp}.{workload.name}.c{concurrency}-{spec_id[:8]}",
        "spec_id": spec_id, "host": host, "campaign": campaign, "model": model, "method": method.name,
        "family": method.family or method.name, "baseline": method.baseline, "tp": tp, "engine": engine,
        "engine_build": engine_build, "deployment": f"{model}.{method.name}.tp{tp}-{digest(method.name)[:8]}",
        "deployment_spec_id": digest([model, method.name, tp]), "workload": workload.name, "concurrency": concurrency,
        "repeat": repeat, "closing": closing, "notes": list(method.notes), "specification": specification,
        "conditions_id": digest(conditions), "conditions": conditions, "observed": {}, "simulated": [MARK],
        "invocation": {"id": invocation, "unit": "synthetic", "started_utc": "2026-11-29T12:00:00Z", "exec_pid": 1},
        "server": {"version": "0", "max_total_num_tokens": 1_000_000, "max_running_requests": 64,
                   "context_length": 131072},
        "started_utc": f"2026-11-29T{12 + repeat:02d}:00:00Z", "window_s": max(free),
        "warmup": {"windows": [1.0, 1.0], "converged": True},
        "cache": {"flushed": True, "salt": "0", "cached_tokens": 0},
        "counters": {"before": None, "after": None, "delta": None, "agree": None},
        "client": {"lag_ms": {"p50": 0.1, "p99": 0.4, "limit": 5.0}, "load_1m": 0.3, "cpus": 2, "cpu_share": 0.1,
                   "processes": 1, "threads": concurrency},
        "gpu": None, "summary": summary(rows, max(free), drafts),
        "validity": {"valid": True, "reasons": [], "limits": {}},
    }  # fmt: skip
    if drafts and method.position_counts:
        steps = cell["summary"]["verify_steps"]
        cell["summary"]["acceptance_position_counts"] = [int(steps * 0.7**k) for k in range(method.drafted_per_step)]
    return cell, rows


def summary(rows, window_s, drafts):
    """The cell's figures from its requests, as docs/results-format.md names them."""
    total = {name: sum(row[name] or 0 for row in rows) for name in ("prompt_tokens", "completion_tokens")}
    decode = sum(row["last"] - row["first"] for row in rows)
    tokens = sum(row["completion_tokens"] - 1 for row in rows)
    steps = sum(row["verify_steps"] for row in rows) if drafts else None
    spread = {
        "ttft_ms": [row["first"] - row["sent"] for row in rows],
        "ttft_scheduled_ms": [row["first"] - row["scheduled"] for row in rows],
        "tpot_ms": [(row["last"] - row["first"]) / max(row["completion_tokens"] - 1, 1) for row in rows],
        "chunk_gap_ms": [(row["last"] - row["first"]) / max(row["chunks"] - 1, 1) for row in rows],
        "e2e_ms": [row["last"] - row["sent"] for row in rows],
    }
    return total | {
        "requests": len(rows), "completed": len(rows), "failed": 0, "cached_tokens": 0,
        "tokens_per_s": total["completion_tokens"] / window_s,
        "request_tokens_per_s_p50": float(np.median([1 / max(t, 1e-9) for t in spread["tpot_ms"]])),
        "verify_steps": steps,
        "drafted_tokens": sum(row["drafted"] for row in rows) if drafts else None,
        "accepted_tokens": sum(row["accepted"] for row in rows) if drafts else None,
        "acceptance_length": tokens / steps if drafts else None,
        "accepted_per_drafted": sum(r["accepted"] for r in rows) / sum(r["drafted"] for r in rows) if drafts else None,
        "step_ms": decode / (steps if drafts else tokens) * 1000,
        "acceptance_position_counts": None,
    } | {name: _percentiles(values) for name, values in spread.items()}  # fmt: skip


def _percentiles(seconds):
    values = np.array(seconds) * 1000
    p50, p90, p99 = np.percentile(values, [50, 90, 99])
    return {"p50": p50, "p90": p90, "p99": p99, "mean": values.mean(), "n": len(values)}
