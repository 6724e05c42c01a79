"""`python -m gauntlet.measure job.json`: measure the cells of a job against the server that runs.

Resumable: a finished attempt is not measured again, and a job killed anywhere loses only the cell in flight. Progress
goes to `<job>.progress.jsonl` for people; results go below the job's `results`.
"""

import json
import os
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from gauntlet import attempt, dialects, observe, prompts, timing, validity
from gauntlet.calibrate import lag
from gauntlet.client import Window, closed_loop
from gauntlet.errors import GauntletError
from gauntlet.gpu_samples import Sampler

KEYS = ("host", "campaign", "deployment", "repeat", "cells", "endpoint", "results")


def load(path: Path) -> dict:
    """The job; GauntletError when it is not one."""
    try:
        job = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise GauntletError(f"{path} is not a job: {error}") from error
    if absent := [key for key in KEYS if key not in job]:
        raise GauntletError(f"{path} lacks {', '.join(absent)}")
    return job


class Job:
    """One run of a job: the server it talks to, the lag of its client, where things go."""

    def __init__(self, path: Path):
        self.job = load(path)
        self.results = Path(self.job["results"])
        self.progress = path.with_suffix(".progress.jsonl")
        self.answers = Path(self.job.get("answers") or self.results.with_name("answers"))
        self.limits = validity.limits(self.job.get("limits"))
        self.deployment = self.job["deployment"]
        self.speculates = not self.deployment["baseline"]
        self.dialect = connect(self.job["endpoint"])
        self.lag: dict | None = None
        self.facts: dict = {}

    def say(self, event: str, **more) -> None:
        """One line for people. Never called inside a window."""
        with self.progress.open("a") as file:
            file.write(json.dumps({"event": event, **more}) + "\n")

    def run(self) -> int:
        """Measure what is missing; returns the number of cells that failed."""
        cells = self.job["cells"]
        self.say("job_started", cells=len(cells), deployment=self.deployment["name"])
        failed = 0
        try:
            todo = [cell for cell in cells if not self._done(cell)]
            if todo:
                self._meet_server()
                self._calibrate(max(cell["concurrency"] for cell in cells))
            for n, cell in enumerate(cells, 1):
                if cell not in todo:
                    self.say("cell_skipped", cell=cell["id"], n=n, of=len(cells), reason="measured")
                else:
                    failed += self._cell(cell, n, len(cells))
        except GauntletError as error:
            self.say("job_failed", reason=str(error))
            raise
        self.say("job_finished", failed=failed, measured=len(todo) - failed)
        return failed

    def _done(self, cell: dict) -> bool:
        """Whether an attempt stands: a valid one under the same conditions, or one that this very job made."""
        attempt.clean(self.results, cell["id"])
        return any(
            made["spec_id"] == cell["spec_id"]
            and (
                (made["validity"]["valid"] and made["conditions_id"] == self.job.get("conditions_id"))
                or (made["job_id"] is not None and made["job_id"] == self.job.get("job_id"))
            )
            for made in attempt.finished(self.results, cell["id"], self.job["repeat"], self.job.get("closing", False))
        )

    def _meet_server(self) -> None:
        """Read the server's facts and refuse one that serves another model than was planned."""
        self.facts = self.dialect.facts()
        served = self.facts.get("model")
        planned = (self.deployment.get("weights") or {}).get("model", {}).get("id")
        if planned and served and planned not in PurePosixPath(served).parts:
            raise GauntletError(
                f"{self.dialect.base_url} serves {served}; {self.deployment['name']} is planned with {planned}. "
                "Nothing was measured; start the deployment that the plan names"
            )
        self.dialect.model = served if isinstance(self.dialect, dialects.OpenAI) else None

    def _calibrate(self, concurrency: int) -> None:
        concurrency = max(concurrency, self.job.get("calibrate_concurrency") or 0)
        self.say("calibration_started", concurrency=concurrency)
        self.lag = lag.measure(concurrency)
        self.say("calibration_finished", lag_p50_ms=self.lag["p50"], lag_p99_ms=self.lag["p99"])

    def _cell(self, cell: dict, n: int, of: int) -> int:
        begun = time.monotonic()
        self.say("cell_started", cell=cell["id"], n=n, of=of, estimate_s=cell.get("estimate_s"))
        try:
            made, records, chunks = self._measure(cell)
        except GauntletError as error:
            self.say("cell_failed", cell=cell["id"], n=n, of=of, reason=str(error))
            return 1
        folder = attempt.write(self.results, made, attempt.name(self.job["repeat"]), records, chunks)
        if self._records_history(cell) and made["validity"]["valid"]:
            key = prompts.history_key(cell, self.deployment, self.job["repeat"])
            prompts.remember(self.answers, key, records, attempt.write_file)
        self.say(
            "cell_finished", cell=cell["id"], n=n, of=of, attempt=folder.name, valid=made["validity"]["valid"],
            reasons=made["validity"]["reasons"], tokens_per_s=made["summary"]["tokens_per_s"],
            acceptance_length=made["summary"]["acceptance_length"], elapsed_s=time.monotonic() - begun,
        )  # fmt: skip
        return 0

    def _records_history(self, cell: dict) -> bool:
        return self.deployment["baseline"] and cell["workload_content"].get("kind") == "multi_turn"

    def _history(self, cell: dict) -> dict | None:
        """The answers that a comparison replays; None for the baseline itself, which makes them."""
        if cell["workload_content"].get("kind") != "multi_turn" or self.deployment["baseline"]:
            return None
        key = prompts.history_key(cell, self.deployment, self.job["repeat"])
        answers = prompts.recall(self.answers, key)
        if answers is None:
            raise GauntletError(
                f"{cell['id']} replays the baseline's answers, and those of repeat {self.job['repeat']} are not in "
                f"{self.answers}; measure the baseline first"
            )
        return answers

    def _measure(self, cell: dict) -> tuple[dict, list[dict], list[dict]]:
        """One attempt: prompts, warm-up, a cold cache, the window, and what was observed around it."""
        self.dialect.chat = bool(cell["workload_content"].get("chat"))
        context = self.facts.get("context_length") or self.deployment.get("context_length")
        made = prompts.Prompts(cell, self.deployment, self.dialect, context, self._history(cell))
        repeat, concurrency = self.job["repeat"], cell["concurrency"]
        asked = made.conversations(repeat)
        client = cell.get("client") or {}
        think_s, processes = float(client.get("think_s") or 0), client.get("processes")
        warmup = self._warm_up(cell, made, think_s, processes)
        flushed = self.dialect.flush()
        load_1m = os.getloadavg()[0]
        before = observe.invocation(self.job.get("unit"))
        counters = self.dialect.counters_now()
        started_utc, cpu = datetime.now(UTC), observe.cpu((before or {}).get("pids"))
        with Sampler() as gpu:
            window = closed_loop(self.dialect, asked, concurrency, think_s, processes)
        cpu_after = observe.cpu((before or {}).get("pids"))
        records, chunks = rows(window)
        figures = timing.summary(records, chunks, window.end - window.start, self.speculates)
        counted = observe.settled(self.dialect, counters, sums(figures), self.limits["counter_tolerance"])
        after = self._invocation_after(before)
        share = window.cpu_s / (cpu_after.at - cpu.at) / (os.cpu_count() or 1)
        found = {
            **self._identity(cell),
            "invocation": _without(before, "pids"),
            "server": {k: v for k, v in self.facts.items() if k != "model"}
            | {"model": _last_part(self.facts.get("model"))},
            "started_utc": started_utc.isoformat(timespec="seconds"),
            "window_s": window.end - window.start,
            "warmup": warmup,
            "cache": {
                "flushed": flushed,
                "salt": prompts.salt(cell["workload"], concurrency, repeat),
                "cached_tokens": figures["cached_tokens"],
            },
            "counters": counted,
            "client": {
                "lag_ms": self.lag and {**self.lag, "limit": self.limits["lag_p99_ms"]},
                "load_1m": load_1m,
                "cpus": os.cpu_count() or 1,
                "cpu_share": share,
                "foreign_cpu_share": observe.foreign_share(cpu, cpu_after, window.cpu_s),
                "load_reached": window.load,
                "processes": window.processes,
                "threads": window.threads,
            },
            "gpu": gpu.summary(),
            "summary": figures,
        }
        told = {
            **found,
            "same_server": observe.same_server(before, after, (counters, counted["after"])),
            "speculates": self.speculates,
            "ignore_eos": bool(cell["workload_content"].get("ignore_eos")),
        }
        found["validity"] = validity.judge(told, records, self.limits)
        return found, records, chunks

    def _identity(self, cell: dict) -> dict:
        deployment, job = self.deployment, self.job
        return {
            "schema": 1,
            "cell_id": cell["id"],
            "spec_id": cell["spec_id"],
            "job_id": job.get("job_id"),
            "host": job["host"],
            "campaign": job["campaign"],
            **{
                key: deployment[key]
                for key in ("model", "method", "family", "baseline", "tp", "engine", "engine_build")
            },
            "deployment": deployment["name"],
            "deployment_spec_id": deployment["spec_id"],
            "workload": cell["workload"],
            "concurrency": cell["concurrency"],
            "repeat": job["repeat"],
            "closing": job.get("closing", False),
            "notes": deployment.get("notes", []),
            "specification": cell["specification"],
            "conditions_id": job.get("conditions_id"),
            "conditions": job.get("conditions"),
            "observed": job.get("observed"),
            "simulated": sorted({*job.get("simulated", []), *deployment.get("simulated", []), *self._scripted()}),
        }

    def _scripted(self) -> list[str]:
        return ["scripted engine"] if self.facts.get("version") == "scripted" else []

    def _invocation_after(self, before: dict | None) -> dict | None:
        try:
            return observe.invocation(self.job.get("unit"))
        except GauntletError:
            return before and {**before, "id": None}

    def _warm_up(self, cell: dict, made: prompts.Prompts, think_s: float, processes: int | None) -> dict:
        """Windows of one round at full concurrency, until two consecutive ones agree in tokens/s. Each has the prompts of
        the one before under another salt, so that only the server's warmth can differ."""
        speeds: list[float] = []
        converged = False
        while not converged and len(speeds) < self.limits["warmup_windows"]:
            asked = made.conversations(self.job["repeat"], f"warm-up {len(speeds)}", cell["concurrency"])
            window = closed_loop(self.dialect, asked, cell["concurrency"], think_s, processes)
            errors = [a.reading.error for a in window.answers if a.reading.error]
            if errors:
                raise GauntletError(
                    f"{cell['id']}: a warm-up request failed: {errors[0]['kind']}: {errors[0]['message']}"
                )
            tokens = sum(a.reading.completion_tokens or 0 for a in window.answers)
            speeds.append(tokens / (window.end - window.start))
            converged = len(speeds) > 1 and agree(*speeds[-2:], self.limits["warmup_tolerance"])
            self.say("warmup", cell=cell["id"], window=len(speeds), tokens_per_s=speeds[-1], converged=converged)
        return {"windows": speeds, "converged": converged}


def agree(a: float, b: float, tolerance: float) -> bool:
    """Whether two speeds differ by no more than `tolerance` of their mean."""
    return abs(a - b) <= tolerance * (a + b) / 2


def connect(endpoint: dict):
    """The dialect of a job's endpoint {base_url, dialect, api_key_file}."""
    key, key_file = None, endpoint.get("api_key_file")
    if key_file:
        try:
            key = Path(key_file).read_text().strip()
        except OSError as error:
            raise GauntletError(
                f"the API key {key_file} (endpoint.api_key_file) cannot be read: {error.strerror}"
            ) from error
    return dialects.get(endpoint["dialect"])(endpoint["base_url"], key, key_file)


def rows(window: Window) -> tuple[list[dict], list[dict]]:
    """Request records and chunk lists, times from the start of the window."""
    records, chunks = [], []
    for index, answer in enumerate(window.answers):
        trace, reading = answer.trace, answer.reading
        told = asdict(reading)
        t, n = [at - window.start for at in told.pop("t")], told.pop("n")
        anomalies, error = told.pop("anomalies"), told.pop("error")
        records.append({
            "index": index, **answer.about, "worker": trace.worker,
            "scheduled": trace.scheduled - window.start, "sent": trace.sent - window.start,
            "connect_s": trace.connect_s,
            "first": t[0] if t else None, "last": t[-1] if t else None, "ended": trace.ended - window.start,
            "first_chunk_tokens": timing.first_chunk_tokens(reading), "chunks": len(t), **told,
            "output_sha256": prompts.sha256(reading.output_text if reading.output_ids is None else reading.output_ids),
            "error": error, "anomalies": anomalies,
        })  # fmt: skip
        chunks.append({"index": index, "t": t, "n": n})
    return records, chunks


def sums(figures: dict) -> dict[str, float | None]:
    """The sums over requests that counters must agree with; none when a request failed, for nobody knows its tokens."""
    if figures["failed"]:
        return {}
    return {
        "requests": figures["requests"],
        "prompt_tokens": figures["prompt_tokens"],
        "completion_tokens": figures["completion_tokens"],
        "verify_steps": figures["verify_steps"],
        "drafted": figures["drafted_tokens"],
        "accepted": figures["accepted_tokens"],
    }


def _without(values: dict | None, *names: str) -> dict | None:
    return values and {k: v for k, v in values.items() if k not in names}


def _last_part(path: str | None) -> str | None:
    return path and PurePosixPath(path).name


def main() -> int:
    try:
        return 1 if Job(Path(sys.argv[1])).run() else 0
    except IndexError:
        print("usage: python -m gauntlet.measure job.json", file=sys.stderr)
    except GauntletError as error:
        print(error, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
