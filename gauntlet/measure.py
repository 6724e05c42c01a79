"""`python -m gauntlet.measure job.json`: measure the cells of a job against the server that runs.

Resumable: a finished attempt is not measured again, and a job killed anywhere loses only the cell in flight. Progress
goes to `<job>.progress.jsonl` for people; results go below the job's `results`.
"""

import json
import sys
import time
from pathlib import Path, PurePosixPath

from gauntlet import attempt, dialects, prompts, validity
from gauntlet.calibrate import lag
from gauntlet.cell import Measurement
from gauntlet.errors import GauntletError

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


class Run:
    """One run of a job: the server it talks to, the lag of its client, where things go."""

    def __init__(self, path: Path):
        self.job = load(path)
        self.results = Path(self.job["results"])
        self.progress = path.with_suffix(".progress.jsonl")
        self.answers = Path(self.job.get("answers") or self.results.with_name("answers"))
        self.limits = validity.limits(self.job.get("limits"))
        self.deployment = self.job["deployment"]
        # the closing attempt asks what round 0 asked: drift, and the baseline against itself, on equal prompts
        self.salt_repeat = 0 if self.job.get("closing") else self.job["repeat"]
        self.facts: dict = {}
        self.lag: dict | None = None

    def say(self, event: str, **more) -> None:
        """One line for people. Never called inside a window."""
        with self.progress.open("a") as file:
            file.write(json.dumps({"event": event, **more}) + "\n")

    def run(self) -> int:
        """Measure what is missing; returns the number of cells that failed."""
        cells = self.job["cells"]
        self.say("job_started", cells=len(cells), deployment=self.deployment["name"])
        failed = 0
        attempt.clean(self.results)
        try:
            to_measure = [cell for cell in cells if not self._done(cell)]
            if to_measure:
                self._meet_server()
                self._calibrate(max(cell["concurrency"] for cell in cells))
            for n, cell in enumerate(cells, 1):
                if cell in to_measure:
                    failed += not self._cell(cell, n, len(cells))
                else:
                    self.say("cell_skipped", cell=cell["id"], n=n, of=len(cells), reason="measured")
        except GauntletError as error:
            self.say("job_failed", reason=str(error))
            raise
        self.say("job_finished", failed=failed, measured=len(to_measure) - failed)
        return failed

    def _done(self, cell: dict) -> bool:
        """Whether an attempt stands: a valid one under the same conditions, or one that this very job made."""
        return any(
            made["spec_id"] == cell["spec_id"]
            and (
                (made["validity"]["valid"] and made["conditions_id"] == self.job.get("conditions_id"))
                or (made["job_id"] is not None and made["job_id"] == self.job.get("job_id"))
            )
            for made in attempt.finished(self.results, cell["id"], self.job["repeat"], self.job.get("closing", False))
        )

    def _meet_server(self) -> None:
        """Read the server's facts; refuse one that serves another model than was planned, or answers as another."""
        dialect = connect(self.job["endpoint"])
        self.facts = dialect.facts()
        served = self.facts.get("model")
        weights = (self.deployment.get("weights") or {}).get("model", {})
        planned = weights.get("id")
        if planned and served and planned not in PurePosixPath(served).parts:
            raise GauntletError(
                f"{dialect.base_url} serves {served}; {self.deployment['name']} is planned with {planned}. "
                "Nothing was measured; start the deployment that the plan names"
            )
        if record := weights.get("greedy"):
            found = dialect.complete(record["prompt"], len(record["tokens"])).output_ids
            if found is not None and found != record["tokens"]:  # None: this route has no ids
                raise GauntletError(
                    f"{dialect.base_url} serves {planned} and does not answer like it: {found} to "
                    f"{record['prompt']!r}, on record are {record['tokens']} (greedy, of its weights in the catalog). "
                    "Nothing was measured"
                )

    def _calibrate(self, concurrency: int) -> None:
        concurrency = max(concurrency, self.job.get("calibrate_concurrency") or 0)
        self.say("calibration_started", concurrency=concurrency)
        self.lag = lag.measure(concurrency)
        self.say("calibration_finished", lag_p50_ms=self.lag["p50"], lag_p99_ms=self.lag["p99"])

    def _cell(self, cell: dict, n: int, of: int) -> bool:
        """Measure and store one cell; False, said and survived, when that was not possible."""
        begun = time.monotonic()
        self.say("cell_started", cell=cell["id"], n=n, of=of, estimate_s=cell.get("estimate_s"))
        try:
            dialect = self._dialect(cell["workload_content"])
            measured = Measurement(self, cell, dialect, self._history(cell))
            made, records, chunks = measured.take()
        except GauntletError as error:
            self.say("cell_failed", cell=cell["id"], n=n, of=of, reason=str(error))
            return False
        folder = attempt.write(self.results, made, attempt.name(self.job["repeat"]), records, chunks)
        valid, figures = made["validity"]["valid"], made["summary"]
        if valid and self.deployment["baseline"] and _talks(cell):
            key = prompts.history_key(cell, self.deployment, self.salt_repeat)
            prompts.remember(self.answers, key, records, attempt.write_file)
        self.say(
            "cell_finished", cell=cell["id"], n=n, of=of, attempt=folder.name, valid=valid,
            reasons=made["validity"]["reasons"], tokens_per_s=figures["tokens_per_s"],
            acceptance_length=figures["acceptance_length"], elapsed_s=time.monotonic() - begun,
            remaining_s=sum(one.get("estimate_s") or 0 for one in self.job["cells"][n:]),
        )  # fmt: skip
        return True

    def _dialect(self, content: dict):
        """The job's dialect, or the chat route where the server cannot make token ids of messages."""
        chat = bool(content.get("chat")) or content.get("kind") == "multi_turn"
        dialect = connect(self.job["endpoint"])
        if chat and dialect.takes_ids and dialect.tokens({"messages": [{"role": "user", "content": "?"}]}) is None:
            dialect = connect({**self.job["endpoint"], "dialect": "openai"})
        dialect.chat, dialect.model = chat, self.facts.get("model")
        return dialect

    def _history(self, cell: dict) -> dict | None:
        """The answers that a comparison replays; None for the baseline itself, which makes them."""
        if self.deployment["baseline"] or not _talks(cell):
            return None
        answers = prompts.recall(self.answers, prompts.history_key(cell, self.deployment, self.salt_repeat))
        if answers is None:
            raise GauntletError(
                f"{cell['id']} replays the baseline's answers, and those of repeat {self.salt_repeat} are not in "
                f"{self.answers}; measure the baseline first"
            )
        return answers


def _talks(cell: dict) -> bool:
    return cell["workload_content"].get("kind") == "multi_turn"


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


def main() -> int:
    try:
        return 1 if Run(Path(sys.argv[1])).run() else 0
    except IndexError:
        print("usage: python -m gauntlet.measure job.json", file=sys.stderr)
    except GauntletError as error:
        print(error, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
