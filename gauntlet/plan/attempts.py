"""The results tree as the plan needs it: one short record an attempt."""

import json
import os
from collections.abc import Collection
from pathlib import Path

from gauntlet.errors import GauntletError

IDENTITY = ("host", "cell_id", "spec_id", "conditions_id", "repeat", "closing")
WORK = ("model", "method", "tp", "workload", "concurrency")


def read(results: Path, hosts: Collection[str] | None = None) -> list[dict]:
    """[{IDENTITY…, WORK…, valid, window_s, started_utc, conditions, tuning}] of attempts below `results`, of `hosts`.

    A folder that is not there holds nothing; one that cannot be read, and a cell.json that is none, are GauntletErrors.
    """
    results = Path(results)
    if not results.exists():
        return []
    shared: dict[str, dict] = {}  # one copy of the conditions that thousands of attempts repeat
    try:
        there = [folder for folder in sorted(results.iterdir()) if folder.is_dir()]
        wanted = [folder for folder in there if hosts is None or folder.name in hosts]
        return [_short(file, shared) for folder in wanted for file in _cells(folder)]
    except OSError as error:
        raise GauntletError(f"cannot read the results folder {results}: {error.strerror} ({error.filename})") from None


def require_writable(results: Path) -> None:
    """GauntletError unless attempts can be written there: said before hours are spent on measuring them."""
    nearest = next(folder for folder in (results, *results.absolute().parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):  # root, too, is told of a read-only mount
        what = "is not writable" if nearest.is_dir() else "is no folder"
        raise GauntletError(f"the results folder {results} cannot be written: {nearest} {what} (gauntlet_results)")


def _cells(host: Path) -> list[Path]:
    found = []
    for cell in _folders(host):
        for attempt in _folders(cell):
            if (file := Path(attempt) / "cell.json").exists():
                found.append(file)
    return found


def _folders(folder: Path | str) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _short(file: Path, shared: dict[str, dict]) -> dict:
    try:
        cell = json.loads(file.read_bytes())
        record = {key: cell[key] for key in (*IDENTITY, *WORK)}
        record["valid"] = cell["validity"]["valid"]
    except (ValueError, KeyError, TypeError) as error:
        raise GauntletError(f"{file} is no attempt ({type(error).__name__}: {error}); move its folder away") from None
    if cell.get("schema") != 1:
        raise GauntletError(f"{file} is of schema {cell.get('schema')}; this Gauntlet reads schema 1")
    return record | {
        "window_s": cell.get("window_s"),
        "started_utc": cell.get("started_utc"),
        "conditions": shared.setdefault(str(cell["conditions_id"]), cell.get("conditions")),
        "tuning": (cell.get("observed") or {}).get("tuning_profile"),
    }
