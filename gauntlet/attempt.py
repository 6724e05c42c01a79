"""An attempt on disk: written whole or not at all, never edited (docs/results-format.md)."""

import contextlib
import gzip
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from gauntlet.errors import GauntletError


def name(repeat: int, now: datetime | None = None) -> str:
    """`r<repeat>-<UTC start>-<4 hex>`."""
    now = now or datetime.now(UTC)
    return f"r{repeat}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def write(results: Path, cell: dict, attempt: str, records: Iterable[dict], chunks: Iterable[dict]) -> Path:
    """Store `cell` with its records and chunk lists below `results`; returns the attempt's folder.

    Raises GauntletError, leaving nothing behind, when the disk does not take it.
    """
    folder = results / cell["cell_id"] / attempt
    partial = folder.with_name(f".{attempt}.partial")
    try:
        partial.mkdir(parents=True)
        files = {"requests.jsonl.gz": records, "chunks.jsonl.gz": chunks}
        digests = {file: _write(partial / file, _lines(rows)) for file, rows in files.items()}
        _write(
            partial / "cell.json",
            json.dumps({**cell, "attempt": attempt, "files": digests}, indent=1, ensure_ascii=False).encode() + b"\n",
        )
        sync(partial)
        partial.rename(folder)
        sync(folder.parent)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise GauntletError(
            f"{cell['cell_id']} was measured but cannot be stored in {results}: {error.strerror or error} "
            f"({_free(results)}); make room and run again, it will be measured anew"
        ) from error
    return folder


def write_file(path: Path, data: bytes) -> None:
    """A single file, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    _write(partial, data)
    partial.rename(path)
    sync(path.parent)


def _write(path: Path, data: bytes) -> str:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(data).hexdigest()


def _lines(rows: Iterable[dict]) -> bytes:
    text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    return gzip.compress(text.encode(), mtime=0)


def sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _free(folder: Path) -> str:
    try:
        return f"{shutil.disk_usage(folder).free >> 20} MiB free"
    except OSError:
        return "its free space cannot be read"


def finished(results: Path, cell_id: str, repeat: int, closing: bool) -> list[dict]:
    """The cell.json of every stored attempt of this cell and repeat."""
    found = []
    for path in sorted((results / cell_id).glob(f"r{repeat}-*/cell.json")):
        cell = json.loads(path.read_text())
        if cell["closing"] == closing:
            found.append(cell)
    return found


def clean(results: Path) -> None:
    """Remove what a killed job left half written, or half removed."""
    for partial in results.glob("*/.*.partial"):
        shutil.rmtree(partial, ignore_errors=True)
        with contextlib.suppress(OSError):  # the cell has finished attempts
            partial.parent.rmdir()
