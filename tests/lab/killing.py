"""SIGKILL for what takes part in a campaign: the controller, the measuring client, the whole lab host. And what was
truly done, read from the host's disk and not from its results."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import threading
import time
from collections import defaultdict
from pathlib import Path

from module_utils import lab_record

from .runner import LABS, ROOT, Lab

CLIENT = "gauntlet-bench.service"
PATIENCE_S = 240  # how long something takes is not what is tested
# The banner that begins each phase. Under host_pinned, in the play that measures, a task's banner comes at its end.
PLAYS = {
    "PLAY [Take up what an earlier run left]": "taking up",
    "PLAY [Observe and plan]": "planning",
    "PLAY [Measure]": "starting",
    "PLAY [The closing table]": "closing",
}
ENDED = {
    "TASK [serving : The deployment answers]": "measuring",
    "TASK [benchmark : Measure its cells]": "stopping",
    "TASK [serving : What was started is stopped]": "bringing home",
    "TASK [benchmark : Bring the results home]": "starting",
}
# seconds that each takes, more or less
PHASES = {"taking up": 1.6, "planning": 1.1, "starting": 1.7, "measuring": 5.0, "stopping": 0.6, "bringing home": 0.4}


class Bench:
    """A bench.yml that a person started: in which phase it is, since when, and its death."""

    def __init__(self, command: list[str]):
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.output = ""
        self.phases: list[tuple[str, float]] = []  # with the moment of each beginning
        self._over = False
        self._seen = 0
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            banner = line.rstrip(" *\n")
            phase = PLAYS.get(banner)
            if phase is None and self.phases and self.phases[-1][0] not in ("taking up", "planning"):
                phase = ENDED.get(banner)
            with self._news:
                self.output += line
                if phase == "taking up" or (phase and self.phases):  # what comes before is restage.yml's
                    self.phases.append((phase, time.monotonic()))
                self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    def reach(self, phase: str, seconds: float) -> bool:
        """Waits until the phase begins, and then `seconds` more or until it ends; False when all is over before.
        Phases that an earlier call has waited for are over and done."""

        def begun():
            return next((n for n, (name, _) in enumerate(self.phases) if n >= self._seen and name == phase), None)

        with self._news:
            assert self._news.wait_for(lambda: begun() is not None or self._over, PATIENCE_S), self.output[-5000:]
            number = begun()
            if number is None:
                return False
            self._seen = number + 1
            until = self.phases[number][1] + seconds
            self._news.wait_for(lambda: len(self.phases) > number + 1 or self._over, timeout=until - time.monotonic())
            return True

    def hear(self, words: str) -> None:
        """Waits until the words are said."""
        with self._news:
            self._news.wait_for(lambda: words in self.output or self._over, PATIENCE_S)
            assert words in self.output, f"'{words}' was not said:\n{self.output[-5000:]}"

    def took(self) -> dict[str, float]:
        """Seconds of the phases that came to their end."""
        with self._news:
            return {name: end - since for (name, since), (_, end) in itertools.pairwise(self.phases)}

    def kill(self) -> None:
        """All of its processes at once: the workers and their ssh have sessions of their own."""
        for pid in (self.process.pid, *_descendants(self.process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.end()

    def end(self, timeout: float = PATIENCE_S) -> int:
        status = self.process.wait(timeout)
        self._reader.join(timeout)
        return status


def _descendants(pid: int) -> list[int]:
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            children[int(fields[1])].append(int(stat.parent.name))
    found, left = [], [pid]
    while left:
        found += (young := children[left.pop()])
        left += young
    return found


def kill_host(lab: Lab) -> None:
    """As a power failure: everything of it is gone at once."""
    machine = lab_record.find(LABS / lab.host)
    os.kill(machine.pid, signal.SIGKILL)
    while lab_record.find(LABS / lab.host):
        time.sleep(0.02)


def freeze_client(lab: Lab) -> None:
    """Stops the measuring client once it has begun a cell: what is done around it until it is thawed comes in the
    middle of a measurement, however slow this machine is."""
    runs = f'test "$(systemctl show --property SubState --value {CLIENT})" = running'
    begun = "grep -q cell_started /var/lib/gauntlet/jobs/job.progress.jsonl"
    lab.until(f"{runs} && {begun} && systemctl kill --signal STOP {CLIENT}")


def thaw_client(lab: Lab) -> None:
    lab.ssh(f"systemctl kill --signal CONT {CLIENT}")


def kill_client(lab: Lab) -> bool:
    """Every process of the measuring unit; False when it has none."""
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split() for line in file]
    top = next(Path(fields[4]) for fields in mounts if fields[fields.index("-") + 1] == "cgroup2")
    pids = [
        int(pid)
        for unit in (top / f"gauntlet-lab-{lab.host}").rglob(CLIENT)
        for pid in (unit / "cgroup.procs").read_text().split()
    ]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


class Witness:
    """What every measuring client of a lab host said; the next one takes the progress file of the last one away."""

    def __init__(self, lab: Lab):
        self._jobs = LABS / lab.host / "disk/var/lib/gauntlet/jobs"
        self._files: dict[int, tuple] = {}  # by inode, held open so that none is lost
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            with contextlib.suppress(FileNotFoundError):
                progress = self._jobs / "job.progress.jsonl"
                if progress.stat().st_ino not in self._files:
                    file = progress.open()
                    job = json.loads((self._jobs / "job.json").read_text())
                    self._files[os.fstat(file.fileno()).st_ino] = job, file

    def testimony(self) -> list[tuple[dict, list[dict]]]:
        """(job, events) of each client, in the order in which they were started. It ends the watch."""
        self._over.set()
        self._thread.join()
        told = []
        for job, file in self._files.values():
            with file:
                told.append((job, [json.loads(line) for line in file if line.endswith("\n")]))
        return told
