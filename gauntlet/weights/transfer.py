"""Bytes from a source into a folder: files in parallel, hashed on the way, each named whole only when it is right."""

import errno
import io
import os
import stat
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from gauntlet.errors import GauntletError
from gauntlet.weights import digests, manifest
from gauntlet.weights.progress import Progress

PART = ".part"  # a file that is being written; never mistaken for a whole one
DROP = 64 << 20  # bytes after which the page cache of the source is given back


class Damaged(GauntletError):
    """Files that are not what they should be: `.files` is {name: why}."""

    def __init__(self, where: str, files: dict[str, str]):
        self.files = files
        super().__init__(f"damaged in {where}: " + "; ".join(f"{name} ({why})" for name, why in sorted(files.items())))


class Lost(GauntletError):
    """A source that could not be read to its end."""


@dataclass(frozen=True)
class Piece:
    """One file to bring: `expected` maps algorithms to digests known beforehand; `open` gives its bytes."""

    name: str
    size: int
    open: Callable[[], BinaryIO]
    expected: dict = field(default_factory=dict)
    path: Path | None = None  # of a file of this host

    def algorithms(self, hashed: bool) -> list[str]:
        """What is computed on the way: what proves the file; the first time also what it is known by from then on."""
        if not hashed:
            return []
        proof = digests.cheapest(self.expected) or digests.SHA256
        return [proof] if proof == digests.XXH3 else sorted({proof, digests.SHA256, digests.XXH3})


def local(name: str, path: Path, size: int, expected: dict) -> Piece:
    """A piece read from a regular file of this host; a link in its place is refused when it is opened."""

    def open_it() -> BinaryIO:
        return open(path, "rb", buffering=0, opener=lambda p, flags: os.open(p, flags | os.O_NOFOLLOW))

    return Piece(name, size, open_it, expected, path)


def mismatch(found: dict, expected: dict) -> str | None:
    """Why a file's digests are not the expected ones; None when they are, or when nothing was expected."""
    for algorithm, wanted in expected.items():
        if wanted and algorithm in found and found[algorithm] != wanted:
            return f"{algorithm} is {found[algorithm][:16]}…, should be {wanted[:16]}…"
    return None


def hole(fd: int, size: int) -> int | None:
    """Offset of the first hole of a file: bytes that were reserved and never written. None when it has none."""
    try:
        start = os.lseek(fd, 0, os.SEEK_HOLE)
    except OSError:
        return None
    finally:
        os.lseek(fd, 0, os.SEEK_SET)
    return start if start < size else None


def _reserve(path: Path, size: int) -> None:
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    try:
        if size:
            os.ftruncate(fd, size)  # huge=within_size goes by the size that the file has when it gets its pages
            os.posix_fallocate(fd, 0, size)
    finally:
        os.close(fd)


def _copy(piece: Piece, target: Path, hashed: bool, progress: Progress, stop: threading.Event) -> dict:
    running = digests.Digests(piece.algorithms(hashed), piece.size)
    buffer = digests.buffer()
    done = dropped = 0
    fd = os.open(target, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o644)
    try:
        with closing(_asked(piece, piece.open)) as source:
            regular = _is_file(source)
            if regular and not piece.expected and (at := hole(source.fileno(), piece.size)) is not None:
                raise Damaged(piece.name, {piece.name: f"sparse: nothing was written at byte {at}"})
            while n := _asked(piece, source.readinto, buffer):
                if stop.is_set():
                    return {}
                if done + n > piece.size:
                    raise Damaged(piece.name, {piece.name: f"longer than {piece.size} bytes"})
                running.update(buffer[:n])
                _write(fd, buffer[:n])
                done += n
                progress.add(n)
                if regular and done - dropped >= DROP:
                    os.posix_fadvise(source.fileno(), dropped, done - dropped, os.POSIX_FADV_DONTNEED)
                    dropped = done
            if regular:
                os.posix_fadvise(source.fileno(), dropped, 0, os.POSIX_FADV_DONTNEED)
        if done != piece.size:
            raise Damaged(piece.name, {piece.name: f"{done} bytes, should be {piece.size}"})
    finally:
        os.close(fd)
    return running.hex()


def _asked(piece: Piece, ask: Callable, *arguments):
    """What the source gives; its failures are told from those of the disk that is written to."""
    try:
        return ask(*arguments)
    except OSError as error:
        raise Lost(f"{piece.name} could not be copied: {error}") from error


def _is_file(source: BinaryIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(source.fileno()).st_mode)
    except io.UnsupportedOperation:
        return False


def _write(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def run(
    pieces: list[Piece], folder: Path, *, hashed: bool, jobs: int, progress: Progress, durable: bool
) -> dict[str, dict]:
    """Brings the pieces into `folder` -> {name: {"size", algorithm: hex}}.

    A file gets its name only when size and digests are right, so what a crash leaves behind is either right or
    ends in `.part`. `durable`: each file is on the disk before it gets its name.
    Raises Damaged with every wrong file, Lost when the source cannot be read, GauntletError when space runs out.
    """
    stop, damaged, done = threading.Event(), {}, {}

    def part(piece: Piece) -> Path:
        return folder / (piece.name + PART)

    def reserve(piece: Piece) -> None:
        part(piece).parent.mkdir(parents=True, exist_ok=True)
        if not durable:
            _reserve(part(piece), piece.size)

    def bring(piece: Piece) -> None:
        found = _copy(piece, part(piece), hashed, progress, stop)
        if stop.is_set():
            return
        if why := mismatch(found, piece.expected):
            raise Damaged(piece.name, {piece.name: why})
        if durable:
            sync(part(piece))
        os.replace(part(piece), folder / piece.name)
        done[piece.name] = {"size": piece.size, **piece.expected, **found}
        progress.file_done()

    def each(work: Callable) -> None:
        def one(piece: Piece) -> None:
            try:
                if not stop.is_set():
                    work(piece)
            except Damaged as error:
                damaged.update(error.files)
            except Lost:
                stop.set()
                raise
            except OSError as error:
                stop.set()
                raise _failure(error, piece.name, folder) from error

        # the largest first: no thread is left alone with a long file at the end
        _each(one, sorted(pieces, key=lambda piece: -piece.size), jobs)

    try:
        each(reserve)  # memory: all of it, before the first byte
        each(bring)
    finally:
        for piece in pieces:  # what is not whole is of no use, and holds memory
            part(piece).unlink(missing_ok=True)
    if damaged:
        raise Damaged("the source", damaged)
    return done


def _failure(error: OSError, name: str, folder: Path) -> GauntletError:
    if error.errno == errno.ENOSPC:
        return GauntletError(f"{folder} is full: {name} did not fit")
    return GauntletError(f"{name} could not be copied: {error}")


def sync(path: Path) -> None:
    """On the disk, and not in the page cache too."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def known(
    folder: Path, pieces: list[Piece], *, jobs: int, progress: Progress
) -> tuple[dict[str, dict], dict[str, str]]:
    """Files that are in `folder` already -> (entries as `run` gives them, {name: why} of the ones not proven)."""
    found, wrong = {}, {}

    def look(piece: Piece) -> None:
        path = folder / piece.name
        size, found_digests = os.lstat(path).st_size, {}
        if not piece.expected:
            why = "no hash of it is known"
        elif size != piece.size:
            why = f"{size} bytes, should be {piece.size}"
        else:
            found_digests = digests.of_file(path, piece.algorithms(True), progress.add)
            why = mismatch(found_digests, piece.expected)
        if why:
            wrong[piece.name] = why
        else:
            found[piece.name] = {"size": size, **piece.expected, **found_digests}
        progress.file_done()

    _each(look, pieces, jobs)
    return found, wrong


def _each(work: Callable, items: Iterable, jobs: int) -> None:
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        futures = [pool.submit(work, item) for item in items]
    for future in futures:
        future.result()


def check(folder: Path, files: dict, *, deep: bool, jobs: int, progress: Progress) -> dict[str, str]:
    """What is wrong with files that a manifest lists -> {name: why}.

    `deep` hashes each of them; otherwise only those whose stamp is not that of the manifest.
    """
    wrong: dict[str, str] = {}

    def look(item: tuple[str, dict]) -> None:
        if why := _wrong(folder, *item, deep, progress):
            wrong[item[0]] = why
        progress.file_done()

    _each(look, files.items(), jobs)
    return wrong


def _wrong(folder: Path, name: str, entry: dict, deep: bool, progress: Progress) -> str | None:
    path = folder / entry.get("path", name)
    try:
        status = os.lstat(path)
        if path.is_symlink() or not path.resolve().is_relative_to(folder.resolve()):
            return f"a link that leads to {path.resolve()}"
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"
        if status.st_size != entry["size"]:
            return f"{status.st_size} bytes, should be {entry['size']}"
        written = entry.get("stamp") != manifest.stamp(status)
        if not deep and not written:
            return None
        if algorithm := digests.cheapest(entry):
            return mismatch(digests.of_file(path, [algorithm], progress.add), entry)
        return "written since it was published, and no hash of it is known" if written else None
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
