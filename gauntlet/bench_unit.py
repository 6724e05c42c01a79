"""The measuring client as a transient unit: it outlives whoever started it, and a second run finds it."""

import json
import secrets
import time
from pathlib import Path

from gauntlet import attempt, ports, services
from gauntlet.errors import GauntletError


class Client:
    """The client of one host: at most one runs. `jobs` holds job.json and its progress."""

    def __init__(self, jobs: Path, unit: str, python: str):
        self.job_file, self.unit, self.python = jobs / "job.json", unit, python
        self.progress = jobs / "job.progress.jsonl"

    def job(self) -> dict | None:
        return json.loads(self.job_file.read_text()) if self.job_file.exists() else None

    def running(self) -> bool:
        return not services.manager().ended(self.unit)[0]

    def start(self, job: dict, check: bool = False) -> dict:
        """Start `job`, or attach to the client that measures the same start of the same deployment.

        Raises GauntletError when the client of another job runs.
        """
        known = self.job()
        if self.running():
            if known is None or _which(known) != _which(job):
                raise GauntletError(
                    f"{self.unit} measures {_said(known)} now; wait for it, or stop that unit (finished attempts stay)"
                )
            return {"changed": False, "attached": True, **self.status(0)}
        if check:
            return {
                "changed": True,
                "attached": False,
                "running": False,
                "finished": False,
                "attempts": [],
                "offset": 0,
            }
        self.job_file.parent.mkdir(parents=True, exist_ok=True)
        self.progress.unlink(missing_ok=True)
        attempt.write_file(self.job_file, json.dumps({**job, "job_id": secrets.token_hex(8)}).encode())
        command = [self.python, "-m", "gauntlet.measure", str(self.job_file)]
        services.manager().transient(self.unit, "Gauntlet measuring client", command)
        return {"changed": True, "attached": False, **self.status(0)}

    def stop(self, job_id: str | None = None, check: bool = False) -> dict:
        """Stop the client, or forget one that has ended; what it has stored stays. With `job_id` only that job's: who
        outlived a killed run and comes late must not stop the client of the next one."""
        if job_id and (self.job() or {}).get("job_id") != job_id:
            return {"changed": False, **self.status(0)}
        running = self.running()
        if running and not check:
            services.manager().stop(self.unit, timeout=120)
        elif not check:
            services.manager().clear(self.unit)
        return {"changed": running, **self.status(0)}

    def status(self, offset: int, wait: float = 0) -> dict:
        """New progress since `offset`, whether the client has ended and how, and the attempts of its job.

        Waits up to `wait` seconds for the client's next word or its death; looking at a file's size and at a process
        does not disturb a measurement.
        """
        until, client = time.monotonic() + wait, self._processes() if wait else []
        while time.monotonic() < until and self._size() <= offset and ports.alive(client):
            time.sleep(min(0.25, wait))
        (over, exit_status), job = services.manager().ended(self.unit), self.job() or {}
        lines, offset = self._lines(offset)
        return {
            "running": not over,
            "finished": over,
            "exit": exit_status,
            "lines": lines,
            "offset": offset,
            "attempts": self._attempts(job),
            "job_id": job.get("job_id"),
            "deployment": job.get("deployment"),
        }

    def _processes(self) -> list[int]:
        try:
            return services.manager().state(self.unit)["pids"]
        except GauntletError:  # never started, or forgotten
            return []

    def _size(self) -> int:
        return self.progress.stat().st_size if self.progress.exists() else 0

    def _lines(self, offset: int) -> tuple[list[dict], int]:
        """Whole lines only: the client may be in the middle of one."""
        if not self.progress.exists():
            return [], 0
        with self.progress.open("rb") as file:
            file.seek(offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        return [json.loads(line) for line in whole.splitlines()], offset + len(whole)

    def _attempts(self, job: dict) -> list[str]:
        found = []
        for cell in job.get("cells", []):
            results = Path(job["results"])
            for made in attempt.finished(results, cell["id"], job["repeat"], job.get("closing", False)):
                if made["job_id"] == job["job_id"]:
                    found.append(f"{cell['id']}/{made['attempt']}")
        return found


def _which(job: dict) -> tuple:
    return job["host"], job["deployment"]["name"], job["repeat"], job.get("closing", False)


def _said(job: dict | None) -> str:
    return f"{job['deployment']['name']} (start {job['repeat']})" if job else "something unknown"
