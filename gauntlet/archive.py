"""Attempts travel from a host to the controller as one archive, and arrive whole or not at all."""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gauntlet.errors import GauntletError

MANIFEST = "MANIFEST.json"
_MEMBER = re.compile(r"[A-Za-z0-9][\w.+-]*/[A-Za-z0-9][\w.+-]*/[A-Za-z0-9][\w.+-]*")

Manifest = dict[str, dict[str, str]]  # "<cell>/<attempt>" -> {file name: sha256}


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def attempts(results: Path) -> list[Path]:
    """The finished attempts below `results` (`<cell>/<attempt>` with a cell.json); unfinished ones start with a dot."""
    return sorted(p.parent for p in results.glob("[!.]*/[!.]*/cell.json"))


def pack(results: Path, archive: Path) -> Manifest:
    """Write every finished attempt of a host into `archive` (tar, manifest first); returns the manifest."""
    manifest = {
        str(attempt.relative_to(results)): {f.name: sha256(f) for f in sorted(attempt.iterdir()) if f.is_file()}
        for attempt in attempts(results)
    }
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_name(f".{archive.name}.partial")
    with partial.open("wb") as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            text = json.dumps(manifest).encode()
            head = tarfile.TarInfo(MANIFEST)
            head.size = len(text)
            tar.addfile(head, io.BytesIO(text))
            for name, files in manifest.items():
                for file_name in files:
                    tar.add(results / name / file_name, f"{name}/{file_name}", recursive=False)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(archive)
    return manifest


@contextlib.contextmanager
def incoming(home: Path) -> Iterator[Path]:
    """A folder on `home`'s file system for an archive on its way, gone afterwards. One run at a time has it; what a
    killed one left in it is taken away."""
    home.mkdir(parents=True, exist_ok=True)
    folder, handle = home / ".incoming", os.open(home, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def unpack(archive: Path, home: Path) -> Manifest:
    """Bring the attempts of `archive` into `home`; each is verified, then renamed in. Returns what the archive held.
    It is unpacked beside the archive, which lies on `home`'s file system (see `incoming`).

    An attempt that is already home with the same content stays as it is. Raises GauntletError, with nothing changed
    for the attempt in question, on a member that would leave its folder, a link, a device, a wrong hash, a missing
    file, and on an attempt that is home with another content.
    """
    with tempfile.TemporaryDirectory(dir=archive.parent) as beside:
        manifest = _extract(archive, Path(beside))
        for name, files in manifest.items():
            _move_in(Path(beside) / name, home / name, files)
        return manifest


def forget(results: Path, manifest: Manifest) -> list[str]:
    """Remove from a host the attempts that are safely home: only those whose files still are what was packed."""
    gone = []
    for name, files in manifest.items():
        attempt = results / name
        if not _MEMBER.fullmatch(f"{name}/x") or not attempt.is_dir():
            continue
        if {f.name: sha256(f) for f in attempt.iterdir()} == files:
            leaving = attempt.with_name(f".{attempt.name}.partial")  # killed from here on, it is no attempt any more
            attempt.rename(leaving)
            shutil.rmtree(leaving)
            gone.append(name)
            with contextlib.suppress(OSError):  # other attempts of the cell are still there
                attempt.parent.rmdir()
    return gone


def _extract(archive: Path, incoming: Path) -> Manifest:
    try:
        with tarfile.open(archive) as tar:
            head = tar.next()
            if head is None or head.name != MANIFEST:
                raise GauntletError(f"{archive} is not a results archive: it does not start with {MANIFEST}")
            manifest: Manifest = json.load(tar.extractfile(head))
            wanted = {f"{name}/{file}": digest for name, files in manifest.items() for file, digest in files.items()}
            while member := tar.next():
                if not member.isreg() or not _MEMBER.fullmatch(member.name) or member.name not in wanted:
                    raise GauntletError(
                        f"{archive} holds '{member.name}', which is no file of an attempt (links, devices and paths "
                        "that leave the results folder are refused)"
                    )
                target = incoming / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as file:
                    shutil.copyfileobj(tar.extractfile(member), file)
                    file.flush()
                    os.fsync(file.fileno())
                if sha256(target) != wanted.pop(member.name):
                    raise GauntletError(f"{member.name} in {archive} is damaged: its sha256 is not the manifest's")
    except (tarfile.TarError, EOFError, json.JSONDecodeError) as error:
        raise GauntletError(f"{archive} is not a whole results archive: {error}") from error
    if wanted:
        raise GauntletError(f"{archive} lacks {sorted(wanted)[0]}, which its manifest names")
    return manifest


def _move_in(source: Path, target: Path, files: dict[str, str]) -> None:
    if target.exists():
        if {f.name: sha256(f) for f in target.iterdir()} != files:
            raise GauntletError(f"{target} exists with another content than the one that came from the host; move it")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    fd = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
