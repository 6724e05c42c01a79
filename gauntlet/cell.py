"""One attempt at one cell: prompts, warm-up, a cold cache, the window, and what is observed around it."""

import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import PurePosixPath

from gauntlet import observe, prompts, timing, validity
from gauntlet.client import Window, closed_loop
from gauntlet.errors import GauntletError
from gauntlet.gpu_samples import Sampler


class Measurement:
    """`run` gives the job, the server's facts, the lag and the limits; `history` the answers that are replayed."""

    def __init__(self, run, cell: dict, dialect, history: dict | None):
        self.job, self.deployment, self.limits, self.facts, self.lag = (
            run.job, run.deployment, run.limits, run.facts, run.lag
        )  # fmt: skip
        self.say, self.cell, self.dialect = run.say, cell, dialect
        self.content = cell["workload_content"]
        context = self.facts.get("context_length") or self.deployment.get("context_length")
        self.prompts = prompts.Prompts(cell, self.deployment, dialect, context, run.salt_repeat, history)
        client = cell.get("client") or {}
        self.think_s, self.processes = float(client.get("think_s") or 0), client.get("processes")

    def take(self) -> tuple[dict, list[dict], list[dict]]:
        """cell.json (without its files), request records, chunk lists. Raises GauntletError when it cannot begin."""
        asked = self.prompts.conversations()
        warmup = self._warm_up()
        flushed = self.dialect.flush()
        load_1m, unit = os.getloadavg()[0], self.job.get("unit")
        server, counters = observe.invocation(unit), self.dialect.counters_now()
        pids = (server or {}).get("pids")
        started_utc, before = datetime.now(UTC), observe.cpu(pids)
        with Sampler() as gpu:
            window = self._loop(asked)
        after = observe.cpu(pids)
        records, chunks = rows(window)
        speculates = not self.deployment["baseline"]
        figures = timing.summary(records, chunks, window.end - window.start, speculates)
        counted = observe.settled(self.dialect, counters, sums(figures, records), self.limits["counter_tolerance"])
        if speculates:
            figures = timing.with_counters(figures, counted["delta"])
        cell = {
            **self._identity(),
            "invocation": server and {k: v for k, v in server.items() if k != "pids"},
            "server": {**self.facts, "model": PurePosixPath(self.facts.get("model") or "").name or None},
            "started_utc": started_utc.isoformat(timespec="seconds"),
            "window_s": window.end - window.start,
            "warmup": warmup,
            "cache": {
                "flushed": flushed,
                "salt": self.prompts.salt("measure"),
                "cached_tokens": figures["cached_tokens"],
            },
            "counters": counted,
            "client": {
                "lag_ms": self.lag and {**self.lag, "limit": self.limits["lag_p99_ms"]},
                "load_1m": load_1m,
                "cpus": os.cpu_count() or 1,
                "cpu_share": window.cpu_s / (after.at - before.at) / (os.cpu_count() or 1),
                "foreign_cpu_share": observe.foreign_share(before, after, window.cpu_s),
                "load_reached": window.load,
                "processes": window.processes,
                "threads": window.threads,
            },
            "gpu": gpu.summary(),
            "summary": figures,
        }
        observed = {
            **cell,
            "same_server": observe.same_server(server, observe.still(unit, server), (counters, counted["after"])),
            "speculates": speculates,
            "ignore_eos": bool(self.content.get("ignore_eos")),
        }
        return {**cell, "validity": validity.judge(observed, records, self.limits)}, records, chunks

    def _loop(self, asked: list) -> Window:
        return closed_loop(self.dialect, asked, self.cell["concurrency"], self.think_s, self.processes)

    def _warm_up(self) -> dict:
        """Windows of one round at full concurrency, until two consecutive ones agree in tokens/s. Each asks the same of
        an emptied cache, so that only the server's warmth can differ: under another salt a prompt has another answer,
        and a method that drafts from the text another speed. Without a door to empty the cache the salt must differ."""
        speeds: list[float] = []
        converged = False
        while not converged and len(speeds) < self.limits["warmup_windows"]:
            use = "warm-up" if self.dialect.flush() else f"warm-up {len(speeds)}"
            window = self._loop(self.prompts.conversations(use, self.cell["concurrency"]))
            errors = [a.reading.error for a in window.answers if a.reading.error]
            if errors:
                raise GauntletError(
                    f"{self.cell['id']}: a warm-up request failed: {errors[0]['kind']}: {errors[0]['message']}"
                )
            tokens = sum(a.reading.completion_tokens or 0 for a in window.answers)
            speeds.append(tokens / (window.end - window.start))
            converged = len(speeds) > 1 and agree(*speeds[-2:], self.limits["warmup_tolerance"])
            self.say("warmup", cell=self.cell["id"], window=len(speeds), tokens_per_s=speeds[-1], converged=converged)
        return {"windows": speeds, "converged": converged}

    def _identity(self) -> dict:
        cell, deployment, job = self.cell, self.deployment, self.job
        flat = ("model", "method", "family", "baseline", "tp", "engine", "engine_build")
        scripted = ["scripted engine"] if self.facts.get("version") == "scripted" else []
        return {
            "schema": 1,
            "cell_id": cell["id"],
            "spec_id": cell["spec_id"],
            "job_id": job.get("job_id"),
            "host": job["host"],
            "campaign": job["campaign"],
            **{key: deployment[key] for key in flat},
            "deployment": deployment["name"],
            "deployment_spec_id": deployment["spec_id"],
            "environment_profile": deployment.get("environment_profile"),
            "workload": cell["workload"],
            "concurrency": cell["concurrency"],
            "repeat": job["repeat"],
            "closing": job.get("closing", False),
            "notes": deployment.get("notes", []),
            "specification": cell["specification"],
            "conditions_id": job.get("conditions_id"),
            "conditions": job.get("conditions"),
            "observed": job.get("observed"),
            "simulated": sorted({*job.get("simulated", []), *deployment.get("simulated", []), *scripted}),
        }


def agree(a: float, b: float, tolerance: float) -> bool:
    """Whether two speeds differ by no more than `tolerance` of their mean."""
    return abs(a - b) <= tolerance * (a + b) / 2


def rows(window: Window) -> tuple[list[dict], list[dict]]:
    """Request records and chunk lists, times from the start of the window."""
    records, chunks = [], []
    for index, answer in enumerate(window.answers):
        trace, reading = answer.trace, answer.reading
        told = asdict(reading)
        t, n = [at - window.start for at in told.pop("t")], told.pop("n")
        ends = {"anomalies": told.pop("anomalies"), "error": told.pop("error")}
        output = reading.output_text if reading.output_ids is None else reading.output_ids
        records.append({
            "index": index, **answer.about, "worker": trace.worker,
            "scheduled": trace.scheduled - window.start, "sent": trace.sent - window.start,
            "connect_s": trace.connect_s,
            "first": t[0] if t else None, "last": t[-1] if t else None, "ended": trace.ended - window.start,
            "first_chunk_tokens": timing.first_chunk_tokens(reading), "chunks": len(t), **told,
            "output_sha256": prompts.sha256(output), **ends,
        })  # fmt: skip
        chunks.append({"index": index, "t": t, "n": n})
    return records, chunks


def sums(figures: dict, records: list[dict]) -> dict[str, float | None]:
    """The sums over requests that counters must agree with; none when there is a request whose tokens nobody knows."""
    if any(record["error"] or record["completion_tokens"] is None for record in records):
        return {}
    return {
        "requests": figures["requests"],
        "prompt_tokens": figures["prompt_tokens"],
        "completion_tokens": figures["completion_tokens"],
        "verify_steps": figures["verify_steps"],
        "drafted": figures["drafted_tokens"],
        "accepted": figures["accepted_tokens"],
    }
