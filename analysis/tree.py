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
FLAT = (
    "cell_id", "spec_id", "host", "campaign", "model", "method", "family", "baseline", "tp", "engine", "engine_build",
    "deployment", "deployment_spec_id", "workload", "concurrency", "repeat", "closing", "conditions_id",
    "started_utc", "window_s",
)  # fmt: skip
DOCUMENTS = ("specification", "conditions", "observed", "simulated", "invocation", "summary", "validity")
NUMBERS = (
    "index", "turn", "worker", "scheduled", "sent", "connect_s", "first", "last", "ended", "prompt_tokens",
    "completion_tokens", "cached_tokens", "reasoning_tokens", "first_chunk_tokens", "chunks", "verify_steps",
    "drafted", "accepted", "expected_tokens",
)  # fmt: skip
LABELS = ("prompt_id", "conversation", "finish_reason", "token_source", "output_sha256", "error")
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
    cells, problems = [], []
    numbers = {name: [] for name in NUMBERS}
    labels = {name: ([], {}) for name in LABELS}
    for folder in folders:
        try:
            cell, rows = _read_attempt(folder)
        except _Unreadable as error:
            problems.append(Problem(folder, str(error)))
            continue
        cell["_rows"] = len(rows)
        cells.append(cell)
        for name, column in numbers.items():
            column.extend([row.get(name) for row in rows])
        for name, (codes, known) in labels.items():
            codes.extend([_code(row.get(name), known) for row in rows])
    columns = {name: np.array(column, dtype=float) for name, column in numbers.items()}
    columns |= {name: (np.array(codes, dtype=np.int32), list(known)) for name, (codes, known) in labels.items()}
    return cells, columns, problems


def _code(value: object, known: dict) -> int:
    if value is None:
        return -1
    if isinstance(value, dict):
        value = value.get("kind") or "error"
    return known.setdefault(value, len(known))


def _read_attempt(folder: str) -> tuple[dict, list[dict]]:
    path = Path(folder)
    try:
        cell = json.loads((path / "cell.json").read_bytes())
    except (OSError, ValueError) as error:
        raise _Unreadable(f"cell.json is torn or not JSON: {error}") from None
    if not isinstance(cell, dict) or not isinstance(cell.get("schema"), int):
        raise _Unreadable("cell.json is not Gauntlet's: it has no schema number")
    if cell["schema"] != SCHEMA:
        older = "newer" if cell["schema"] > SCHEMA else "older"
        raise _Unreadable(f"schema {cell['schema']} is {older} than what is read here ({SCHEMA})")
    lacking = [name for name in (*FLAT, *DOCUMENTS) if name not in cell]
    if lacking:
        raise _Unreadable(f"cell.json lacks {', '.join(lacking)}")
    requests = path / "requests.jsonl.gz"
    try:
        packed = requests.read_bytes()
    except OSError as error:
        raise _Unreadable(f"requests.jsonl.gz cannot be read: {error.strerror}") from None
    declared = (cell.get("files") or {}).get(requests.name)
    if declared and hashlib.sha256(packed).hexdigest() != declared:
        raise _Unreadable("requests.jsonl.gz is damaged: its sha256 is not the one in cell.json")
    try:
        rows = [json.loads(line) for line in gzip.decompress(packed).splitlines() if line]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _Unreadable(f"requests.jsonl.gz is torn: {error}") from None
    if not all(isinstance(row, dict) for row in rows):
        raise _Unreadable("requests.jsonl.gz holds a line that is not a request")
    cell["folder"] = folder
    cell["attempt"] = path.name
    return cell, rows


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
    frame["valid"] = [bool(cell["validity"]["valid"]) for cell in cells]
    frame["start"] = [str(cell["invocation"].get("id")) for cell in cells]
    for name in ("tokens_per_s", "requests", "completed", "failed", "acceptance_length", "accepted_per_drafted"):
        frame[name] = np.array([cell["summary"].get(name) for cell in cells], dtype=float)  # null -> NaN
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
