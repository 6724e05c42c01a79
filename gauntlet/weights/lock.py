"""One staging at a time on a host; who comes second waits and says for whom."""

import fcntl
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path

from gauntlet.errors import GauntletError
from gauntlet.weights.progress import Progress

NAME = ".lock"


@contextmanager
def held(folder: Path, wait_s: float, progress: Progress):
    """Holds the lock of a store's folder; the kernel lets go of it when the process dies, however it dies."""
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / NAME, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        _wait(fd, wait_s, progress)
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps({"pid": os.getpid(), "since": time.strftime("%FT%TZ", time.gmtime())}).encode(), 0)
        yield
    finally:
        os.close(fd)


def _wait(fd: int, wait_s: float, progress: Progress) -> None:
    deadline, said = time.monotonic() + wait_s, False
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 4096, 0).decode(errors="replace")
            if time.monotonic() >= deadline:
                raise GauntletError(
                    f"another staging is at work on this host ({holder}) and did not end within {wait_s:.0f} s"
                ) from None
            if not said:
                progress.say(f"another staging is at work on this host ({holder}): waiting for it")
                said = True
            time.sleep(0.2)
