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

from gauntlet import identity, timing

MARK = "synthetic"
# a name that tries to leave the place it is written in
HARM = r"""</script><script>alert(1)</script> & "x" 'y' <b> \input{/etc/passwd} $a_b^c$ 100% #1 {~} ü 你 🙂"""


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
    drafted: int = 4  # tokens a step
    arguments: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)
    profile: str | None = None

    def histogram(self, steps, accepted):
        """Verify steps that accepted 0, 1, 2, … tokens, `accepted` in all; None for a method that drafts nothing."""
        if self.baseline:
            return None
        low, more = divmod(accepted, steps)
        return [0] * low + [steps - more, more]


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


def attempts(
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
    server=None,
):
    """(cell.json, requests) of `methods` × `workloads` × `concurrency` × `tp` × `repeats`.

    `closing`: methods measured once more at the end, their speed times `drift`. `edit(cell, rows)` changes an attempt.
    Seeds depend on what an attempt is, so a larger set holds the smaller one unchanged.
    """
    world = World(
        host, model, campaign, seed, noise, step_ms, prefill_tokens_per_s,
        conditions or {"cpu": {"model": "synthetic", "count": 2}}, engine, engine_build, server or {},
    )  # fmt: skip
    rounds = [(repeat, False) for repeat in range(repeats)] + ([(repeats, True)] if closing else [])
    for width in tp:
        for repeat, last in rounds:
            for method in methods:
                if last and method.name not in closing:
                    continue
                luck = world.random(method.name, width, repeat).normal(0, noise.start)
                speed = np.exp(luck) * (drift if last else 1.0)
                for workload in workloads:
                    for streams in concurrency:
                        cell, rows = world.attempt(method, workload, streams, width, repeat, last, speed)
                        if edit:
                            edit(cell, rows)
                        stamp = cell["started_utc"][:19].replace("-", "").replace(":", "")
                        name = f"r{cell['repeat']}-{stamp}Z-{identity.digest(cell['invocation'])[:4]}"
                        yield cell | {"attempt": name, "folder": ""}, rows


def write(root, *arguments, **options):
    """The tree of `attempts`; returns its folders."""
    return [save(root, cell, rows) for cell, rows in attempts(*arguments, **options)]


def save(root, cell, rows, chunks=()):
    """One attempt, whole, with the hashes of its files."""
    folder = Path(root) / cell["host"] / cell["cell_id"] / cell["attempt"]
    folder.mkdir(parents=True, exist_ok=True)
    stored = {key: value for key, value in cell.items() if key not in ("attempt", "folder")} | {"files": {}}
    for name, lines in (("requests.jsonl.gz", rows), ("chunks.jsonl.gz", chunks)):
        packed = gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode(), 1, mtime=0)
        (folder / name).write_bytes(packed)
        stored["files"][name] = hashlib.sha256(packed).hexdigest()
    (folder / "cell.json").write_text(json.dumps(stored, indent=1))
    return folder


@dataclass(frozen=True)
class World:
    """What all attempts of a set have in common."""

    host: str
    model: str
    campaign: str
    seed: int
    noise: Noise
    step_ms: float
    prefill: float
    conditions: dict
    engine: str
    engine_build: str
    server: dict

    def random(self, *what):
        """A generator that depends on nothing but what is drawn."""
        text = repr((self.seed, self.host, self.model, *what))
        return np.random.default_rng(int(hashlib.sha256(text.encode()).hexdigest()[:15], 16))

    def attempt(self, method, workload, concurrency, tp, repeat, closing, speed):
        """One attempt: a closed loop of `concurrency` streams."""
        drafts = not method.baseline
        rows = self.requests(method, workload, concurrency, tp, repeat, speed)
        window = max(row["ended"] for row in rows)
        deployment = {
            "engine": self.engine, "engine_build": self.engine_build, "tp": tp,
            "arguments": {"method": method.name} | method.arguments, "environment": dict(method.environment),
            "weights": {"model": {"id": self.model}},
        }  # fmt: skip
        asked = [workload.name, workload.prompts, workload.context]
        specification = deployment | {
            "workload": {"kind": "single", "prompts_sha256": identity.digest(asked), "requests": len(rows)},
            "sampling": {"temperature": 0, "top_p": 1, "seed": 0}, "concurrency": concurrency, "client": {},
        }  # fmt: skip
        spec_id, deployment_id = identity.spec_id(specification), identity.digest(deployment)
        invocation = identity.digest([self.seed, self.host, deployment_id, repeat, closing])[:32]
        chunks = [{"index": row["index"], "t": []} for row in rows]
        return {
            "schema": 1, "cell_id": f"{self.model}.{method.name}.tp{tp}.{workload.name}.c{concurrency}-{spec_id[:8]}",
            "spec_id": spec_id, "job_id": None, "host": self.host, "campaign": self.campaign, "model": self.model,
            "method": method.name, "family": method.family or method.name, "baseline": method.baseline, "tp": tp,
            "engine": self.engine, "engine_build": self.engine_build,
            "deployment": f"{self.model}.{method.name}.tp{tp}-{deployment_id[:8]}", "deployment_spec_id": deployment_id,
            "environment_profile": method.profile,
            "workload": workload.name, "concurrency": concurrency, "repeat": 0 if closing else repeat,
            "closing": closing, "notes": list(method.notes), "specification": specification,
            "conditions_id": identity.conditions_id(self.conditions), "conditions": self.conditions,
            "observed": {"tuning": "stock"}, "simulated": [MARK],
            "invocation": {"id": invocation, "unit": "synthetic", "started_utc": "2026-11-29T12:00:00Z", "exec_pid": 1},
            "server": {"version": "0", "max_total_num_tokens": 1_000_000, "max_running_requests": 64,
                       "context_length": 131072, "model": self.model} | self.server,
            "started_utc": f"2026-11-29T{12 + repeat:02d}:00:00+00:00", "window_s": window,
            "warmup": {"windows": [1.0, 1.0], "converged": True},
            "cache": {"flushed": True, "salt": "0", "cached_tokens": 0},
            "counters": {"before": None, "after": None, "delta": None, "agree": None},
            "client": {"lag_ms": {"p50": 0.1, "p99": 0.4, "limit": 5.0}, "load_1m": 0.3, "cpus": 2, "cpu_share": 0.1,
                       "foreign_cpu_share": 0.0, "load_reached": 1.0, "processes": 1, "threads": concurrency},
            "gpu": None, "summary": timing.summary(rows, chunks, window, drafts),
            "validity": {"valid": True, "reasons": [], "limits": {}}, "files": {},
        }, rows  # fmt: skip

    def requests(self, method, workload, concurrency, tp, repeat, speed):
        """Requests in the order in which streams become free."""
        random = self.random(method.name, workload.name, concurrency, tp, repeat, speed)
        length = 1 + (method.acceptance - 1) * method.by_workload.get(workload.name, 1.0)
        step_s = self.step_ms / 1000 * method.step * method.by_concurrency.get(concurrency, 1.0)
        step_s *= method.by_tp.get(tp, 1 / tp) * (1 + 0.05 * (concurrency - 1)) / speed
        free, rows = [0.0] * concurrency, []
        for index in range(workload.prompts * workload.passes):
            prompt = index % workload.prompts
            taste = self.random(method.name, workload.name, prompt).normal(0, self.noise.prompt)
            own = max(1.0, length * np.exp(taste)) if length > 1 else 1.0
            tokens = workload.output
            steps = max(1, round((tokens - 1) / own))
            worker = int(np.argmin(free))
            sent = free[worker]
            first = sent + workload.context / self.prefill + step_s
            last = first + steps * step_s * np.exp(random.normal(0, self.noise.request))
            free[worker] = last + 0.0002
            drafts = not method.baseline
            rows.append({
                "index": index, "prompt_id": f"{workload.name}-{prompt:02d}",
                "prompt_sha256": identity.digest([workload.name, concurrency, repeat % 3, index]), "conversation": None,
                "turn": 0, "worker": worker, "scheduled": sent, "sent": sent, "connect_s": 0.0001, "first": first,
                "last": last, "ended": last + 0.0001, "prompt_tokens": workload.context,
                "expected_prompt_tokens": workload.context, "completion_tokens": tokens, "cached_tokens": 0,
                "reasoning_tokens": None, "first_chunk_tokens": 1, "chunks": steps + 1,
                "verify_steps": steps if drafts else None, "drafted": steps * method.drafted if drafts else None,
                "accepted": tokens - 1 - steps if drafts else None,
                "accept_histogram": method.histogram(steps, tokens - 1 - steps), "finish_reason": "length",
                "expected_tokens": tokens, "token_source": "timings", "output_ids": None,
                "output_text": f"text {prompt}",
                "output_sha256": identity.digest([workload.name, prompt, repeat % 3]), "error": None, "anomalies": [],
            })  # fmt: skip
        return rows
