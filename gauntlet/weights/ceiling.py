"""How fast this host could copy at best: plain reads and writes, nothing hashed, nothing checked, several at a time."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gauntlet.weights import digests, space

SAMPLE = 1 << 30


def measure(files: list[Path], mount: Path, jobs: int, most: int = SAMPLE) -> float | None:
    """Bytes a second of copying `files` into a tmpfs, from a sample that fits beside what is there; None without room.

    What is copied is removed again. The page cache of the files is given up first, so that the disk is measured too.
    """
    share = min(most, space.filesystem_free(mount) // 2) // max(1, min(jobs, len(files)))
    chosen = sorted(files, key=lambda path: -path.stat().st_size)[: max(1, jobs)]
    if share < digests.PIECE or not chosen:
        return None
    for path in chosen:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    targets = [mount / f".ceiling-{n}" for n in range(len(chosen))]
    try:
        began = time.monotonic()
        with ThreadPoolExecutor(max_workers=len(chosen)) as pool:
            copied = sum(pool.map(_copy, chosen, targets, [share] * len(chosen)))
        return copied / (time.monotonic() - began)
    finally:
        for target in targets:
            target.unlink(missing_ok=True)


def _copy(source: Path, target: Path, most: int) -> int:
    buffer, done = digests.buffer(), 0
    with open(source, "rb", buffering=0) as read, open(target, "wb", buffering=0) as write:
        while done < most and (n := read.readinto(buffer)):
            write.write(buffer[:n])
            done += n
    return done
