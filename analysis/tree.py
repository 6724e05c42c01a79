"""The results tree (docs/results-format.md) as data frames; what cannot be read is listed with its reason.

Columns and their units: docs/analysis.md.
"""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from gauntlet.errors import GauntletError

SCHEMA = 1
FLAT = {
    "cell_id": str, "spec_id": str, "host": str, "campaign": str, "model": str, "method": str, "family": str,
    "baseline": bool, "tp": int, "engine": str, "engine_build": str, "deployment": str, "deployment_spec_id": str,
    "workload": str, "concurrency": int, "repeat": int, "closing": bool, "conditions_id": str, "started_utc": str,
    "window_s": float,
}  # fmt: skip
DOCUMENTS = {
    "notes": list, "specification": dict, "conditions": dict, "simulated": list, "summary": dict, "validity": dict,
    "files": dict,
}  # fmt: skip
SPREADS = ("ttft_ms", "ttft_scheduled_ms", "tpot_ms", "chunk_gap_ms", "e2e_ms")
SUMMARY = (
    "requests", "completed", "failed", "prompt_tokens", "completion_tokens", "cached_tokens", "tokens_per_s",
    "request_tokens_per_s_p50", "verify_steps", "drafted_tokens", "accepted_tokens", "acceptance_length",
    "accepted_per_drafted", "step_ms",
)  # fmt: skip
NUMBERS = (
    "index", "turn", "worker", "scheduled", "sent", "connect_s", "first", "last", "ended", "prompt_tokens",
    "completion_tokens", "cached_tokens", "reasoning_tokens", "first_chunk_tokens", "chunks", "verify_steps",
    "drafted", "accepted", "expected_tokens", "expected_prompt_tokens",
)  # fmt: skip
LABELS = ("prompt_id", "prompt_sha256", "conversation", "finish_reason", "token_source", "output_sha256", "error")
PARALLEL_FROM = 500  # attempts; below it one process is faster than starting more
BATCH = 100


class Problem(NamedTuple):
    """Something in the tree that is not a readable attempt."""

    path: str
    reason: str


class Results(NamedTuple):
    """`cells`: a row per attempt; `requests`: a row per request, `attempt` is the row of `cells` it belongs to."""

    cells: pd.DataFrame
    requests: pd.DataFrame
    problems: list[Problem]


class _Unreadable(Exception):
    """Why one attempt cannot be used."""


def load(*roots: str | os.PathLike) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(cells, requests) of one or several results trees; see `read` for what could not be read."""
    return read(*roots)[:2]


def read(*roots: str | os.PathLike) -> Results:
    """Cells, requests and the list of what could not be read.

    Raises GauntletError for a root that is missing or not a folder, and when no attempt at all is readable.
    """
    folders, problems = [], []
    for root in roots:
        for folder, problem in _attempts(Path(root)):
            if problem:
                problems.append(problem)
            else:
                folders.append(folder)
    batches = [folders[i : i + BATCH] for i in range(0, len(folders), BATCH)]
    if len(folders) >= PARALLEL_FROM and (os.cpu_count() or 1) > 1:
        with ProcessPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            parts = list(pool.map(_read_batch, batches))
    else:
        parts = [_read_batch(batch) for batch in batches]
    results = _assemble(parts, problems)
    if results.cells.empty:
        where = ", ".join(str(root) for root in roots)
        seen = f"; {len(problems)} unreadable, first: {problems[0].path}: {problems[0].reason}" if problems else ""
        raise GauntletError(f"no results in {where}{seen}; ansible-playbook bench.yml measures some")
    return results


def requests_of(folder: str | os.PathLike) -> Iterator[dict]:
    """Every request of one attempt as stored, output text and token ids included."""
    return _lines(Path(folder) / "requests.jsonl.gz")


def chunks_of(folder: str | os.PathLike) -> Iterator[dict]:
    """Arrival times of one attempt's chunks; nothing when the attempt kept none."""
    found = sorted(Path(folder).glob("chunks.*"))
    return _lines(found[0]) if found else iter(())


def _attempts(root: Path) -> Iterator[tuple[str, Problem | None]]:
    """Every attempt's folder below a root in a stable order, and whatever else lies there."""
    if not root.exists():
        raise GauntletError(f"results folder {root} does not exist; ansible-playbook bench.yml makes it")
    if not root.is_dir():
        raise GauntletError(f"{root} is a file; a results folder (host/cell/attempt) is wanted")
    for base, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "cell.json" in files:
            folders.clear()
            yield base, None
        elif not folders and base != str(root):
            yield base, Problem(base, "no cell.json: torn or foreign")
        else:
            for name in sorted(set(files) - {"README.md"}):
                if not name.startswith("."):
                    path = os.path.join(base, name)
                    yield path, Problem(path, "not part of a results tree")


def _read_batch(folders: list[str]) -> tuple[list[dict], dict, list[Problem]]:
    attempts, problems = [], []
    for folder in folders:
        try:
            attempts.append(_read_attempt(Path(folder)))
        except _Unreadable as error:
            problems.append(Problem(folder, str(error)))
    return _batch(attempts, problems)


def _batch(attempts: list[tuple[dict, dict]], problems: list[Problem]) -> tuple[list[dict], dict, list[Problem]]:
    """Many attempts' columns joined: numbers as arrays, labels as codes and the labels that they stand for."""
    cells = [cell | {"_rows": len(columns["index"])} for cell, columns in attempts]
    joined: dict = {
        name: np.concatenate([np.empty(0), *(columns[name] for _, columns in attempts)]) for name in NUMBERS
    }
    for name in LABELS:
        known: dict = {}
        codes = [
            -1 if value is None else known.setdefault(value, len(known))
            for _, columns in attempts
            for value in columns[name]
        ]
        joined[name] = (np.array(codes, dtype=np.int32), list(known))
    return cells, joined, problems


def _columns(rows: list[dict]) -> dict:
    """One attempt's requests as arrays of numbers (null is NaN) and lists of labels (null is None).

    Raises ValueError or TypeError for a figure that is not a number and a label that is not a text.
    """
    columns: dict = {name: np.array([row.get(name) for row in rows], dtype=float) for name in NUMBERS}
    for name in LABELS:
        values = [row.get(name) for row in rows]
        if name == "error":
            values = [None if value is None else str(value["kind"]) for value in values]
        elif any(value is not None and not isinstance(value, str | int) for value in values):
            raise TypeError(f"{name} is not a text")
        columns[name] = [None if value is None else str(value) for value in values]
    return columns


def _read_attempt(path: Path) -> tuple[dict, dict]:
    try:
        cell = json.loads((path / "cell.json").read_bytes())
    except (OSError, ValueError) as error:
        raise _Unreadable(f"cell.json is torn or not JSON: {error}") from None
    _check(cell)
    requests = path / "requests.jsonl.gz"
    try:
        packed = requests.read_bytes()
    except OSError as error:
        raise _Unreadable(f"requests.jsonl.gz cannot be read: {error.strerror}") from None
    if hashlib.sha256(packed).hexdigest() != cell["files"].get(requests.name):
        raise _Unreadable("requests.jsonl.gz is damaged: its sha256 is not the one in cell.json")
    try:
        columns = _columns([json.loads(line) for line in gzip.decompress(packed).splitlines()])
    except (OSError, EOFError, zlib.error) as error:
        raise _Unreadable(f"requests.jsonl.gz is torn: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _Unreadable(f"requests.jsonl.gz holds a line that is not a request: {error}") from None
    return cell | {"folder": str(path), "attempt": path.name}, columns


def _check(cell: object) -> None:
    """Refuse what is not an attempt of this schema; a number without its conditions is not used."""
    if not isinstance(cell, dict) or not isinstance(cell.get("schema"), int):
        raise _Unreadable("cell.json is not Gauntlet's: it has no schema number")
    if cell["schema"] != SCHEMA:
        age = "newer" if cell["schema"] > SCHEMA else "older"
        raise _Unreadable(f"schema {cell['schema']} is {age} than what is read here ({SCHEMA})")
    for name, kind in (FLAT | DOCUMENTS).items():
        if name not in cell:
            raise _Unreadable(f"cell.json lacks '{name}'")
        if not isinstance(cell[name], int | float if kind is float else kind):
            raise _Unreadable(f"cell.json: '{name}' is {cell[name]!r:.40}, not {kind.__name__}")
    if not isinstance(cell["validity"].get("valid"), bool):
        raise _Unreadable("cell.json does not say whether it is valid")


def _lines(path: Path) -> Iterator[dict]:
    with gzip.open(path, "rb") as stream:
        for line in stream:
            yield json.loads(line)


def _assemble(parts: Iterable[tuple[list[dict], dict, list[Problem]]], problems: list[Problem]) -> Results:
    cells, keep, seen = [], [], {}
    numbers = {name: [] for name in NUMBERS}
    labels = {name: ([], {}) for name in LABELS}
    shared: dict[tuple, object] = {}
    for part_cells, columns, part_problems in parts:
        problems.extend(part_problems)
        for cell in part_cells:
            rows = cell.pop("_rows")
            for name, key in (("specification", "spec_id"), ("conditions", "conditions_id")):
                cell[name] = shared.setdefault((name, cell[key]), cell[name])
            same = seen.setdefault((cell["host"], cell["cell_id"], cell["attempt"]), cell)
            if same is cell:
                keep.append(np.full(rows, len(cells), dtype=np.int32))
                cells.append(cell)
            else:
                keep.append(np.full(rows, -1, dtype=np.int32))
                if same["files"] != cell["files"]:
                    problems.append(
                        Problem(cell["folder"], f"differs from the attempt of that name in {same['folder']}")
                    )
        for name, column in numbers.items():
            column.append(columns[name])
        for name, (codes, known) in labels.items():
            part_codes, part_known = columns[name]
            translate = np.array([known.setdefault(value, len(known)) for value in part_known] + [-1], dtype=np.int32)
            codes.append(translate[part_codes])
    return Results(_cells(cells), _requests(keep, numbers, labels), sorted(problems))


def _cells(cells: list[dict]) -> pd.DataFrame:
    frame = pd.DataFrame({name: [cell[name] for cell in cells] for name in (*FLAT, "attempt", "folder")})
    frame["valid"] = [cell["validity"]["valid"] for cell in cells]
    frame["start"] = [(cell.get("invocation") or {}).get("id") or cell["attempt"] for cell in cells]
    for name in SUMMARY:
        frame[name] = np.array([cell["summary"].get(name) for cell in cells], dtype=float)  # null -> NaN
    for name in SPREADS:
        spreads = [cell["summary"].get(name) or {} for cell in cells]
        for share in ("p50", "p90", "p99", "mean", "n"):
            frame[f"{name}_{share}"] = np.array([spread.get(share) for spread in spreads], dtype=float)
    frame["document"] = pd.Series(cells, dtype=object)
    return frame


def _requests(keep: list, numbers: dict, labels: dict) -> pd.DataFrame:
    attempt = np.concatenate(keep) if keep else np.array([], dtype=np.int32)
    wanted = attempt >= 0
    frame = pd.DataFrame({"attempt": attempt[wanted]})
    for name, columns in numbers.items():
        frame[name] = np.concatenate(columns)[wanted] if columns else np.array([], dtype=float)
        columns.clear()
    for name, (codes, known) in labels.items():
        joined = np.concatenate(codes)[wanted] if codes else np.array([], dtype=np.int32)
        frame[name] = pd.Categorical.from_codes(joined, categories=pd.Index(list(known), dtype=object))
        codes.clear()
    return frame
