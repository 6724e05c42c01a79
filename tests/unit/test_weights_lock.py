"""Two stagings at once must not meet, and one that was killed must not stop the next."""

import json
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gauntlet.errors import GauntletError
from gauntlet.weights import lock
from gauntlet.weights.progress import Progress, sentence

HOLD = """
import sys, time
from pathlib import Path
from gauntlet.weights import lock
from gauntlet.weights.progress import Progress
with lock.held(Path(sys.argv[1]), 0, Progress()):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_who_comes_second_says_for_whom_it_waits_and_gives_up_at_the_deadline(holder, tmp_path):
    said = tmp_path / "progress"
    with (
        pytest.raises(GauntletError, match=rf"another staging is at work.*{holder.pid}.*within 0 s"),
        lock.held(tmp_path, 0.3, Progress(said)),
    ):
        pass
    (line,) = map(json.loads, said.read_text().splitlines())
    assert f'"pid": {holder.pid}' in sentence(line)
    assert "waiting for it" in sentence(line)


def test_a_killed_one_leaves_no_lock(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with lock.held(tmp_path, 0, Progress()):
        pass


def test_progress_tells_bytes_rate_remaining_and_which_file(tmp_path, monkeypatch):
    """A person watches 595 GB: how far, how fast, how long, file n of N."""
    now = iter([0.0, 0.0, 2.0, 2.0, 2.0])
    monkeypatch.setattr("gauntlet.weights.progress.time", SimpleNamespace(monotonic=lambda: next(now)))  # ours alone
    progress = Progress(tmp_path / "lines")
    progress.start("copy", "big", 4_000_000_000, 8)
    progress.file_done()
    progress.add(1_000_000_000)
    (line,) = map(json.loads, (tmp_path / "lines").read_text().splitlines())
    assert sentence(line) == "copy big: file 2 of 8, 1.0 GB of 4.0 GB, 0.50 GB/s, 6 s left"
