"""Hashes of files: several in one pass, in pieces small enough to stay in the processor's cache."""

import hashlib
import mmap
import os
from collections.abc import Callable, Iterable
from pathlib import Path

PIECE = 2 << 20  # bytes at a time: a huge page of the tmpfs, which is cleared first where less of it is written

SHA256 = "sha256"  # what the hub, wheels and catalogs give; nobody can make a file to it
XXH3 = "xxh3_128"  # thirty times as fast, and as sure against decay and mistakes: what a proven copy is read by
GIT_BLOB = "git_blob_sha1"  # what the hub gives for small files

KNOWN_BY = (XXH3, SHA256, GIT_BLOB)  # the cheapest first


def _start(algorithm: str, size: int):
    if algorithm == XXH3:
        from xxhash import xxh3_128  # only where files are staged or verified

        return xxh3_128()
    if algorithm == GIT_BLOB:
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return hashlib.new(algorithm)


def buffer() -> memoryview:
    """PIECE bytes that begin on a page: the kernel copies into a bytearray, which does not, at half the speed."""
    return memoryview(mmap.mmap(-1, PIECE))


class Digests:
    """Feed bytes once, get every asked digest: `Digests(["sha256"], size)`; `update(b"…")`; `hex()`."""

    def __init__(self, algorithms: Iterable[str], size: int):
        self._running = {name: _start(name, size) for name in algorithms}

    def update(self, data) -> None:
        for digest in self._running.values():
            digest.update(data)

    def hex(self) -> dict[str, str]:
        return {name: digest.hexdigest() for name, digest in self._running.items()}


def of_file(path: Path, algorithms: Iterable[str], on_bytes: Callable[[int], None] = lambda n: None) -> dict[str, str]:
    """`{algorithm: hex}` of a regular file. Raises OSError."""
    piece = buffer()
    with open(path, "rb", buffering=0) as file:
        digests = Digests(algorithms, os.fstat(file.fileno()).st_size)
        while n := file.readinto(piece):
            digests.update(piece[:n])
            on_bytes(n)
    return digests.hex()


def cheapest(entry: dict) -> str | None:
    """The fastest algorithm for which a manifest's or a catalog's file entry has a digest."""
    return next((name for name in KNOWN_BY if entry.get(name)), None)


def of_entry(entry: dict) -> dict[str, str]:
    """The digests that a manifest's or a catalog's file entry has."""
    return {name: entry[name] for name in KNOWN_BY if entry.get(name)}
