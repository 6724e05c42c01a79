"""Weights that are published inside a wheel: fetched by hash on the controller, which may be the only one online."""

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from fcntl import LOCK_EX, flock
from pathlib import Path

from gauntlet.errors import GauntletError
from gauntlet.weights import digests

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gauntlet" / "weights"


def member(weights: dict, cache: Path = CACHE) -> tuple[Path, dict]:
    """The file of the wheel that is the model, and `{"size", "sha256"}` of it; fetched when it is not cached.

    Raises GauntletError when the wheel cannot be had, is another one, or does not hold the member.
    """
    source = weights["source"]
    folder = cache / source["sha256"]
    path = folder / Path(source["member"]).name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        flock(lock, LOCK_EX)
        record = path.with_name(path.name + ".sha256")
        sha256 = _recorded(record) if path.is_file() else None
        if sha256 is None:
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                part = _unpack(_download(source, Path(scratch)), source, Path(scratch))
                sha256 = digests.of_file(part, [digests.SHA256])[digests.SHA256]
                os.replace(part, path)
                note = Path(scratch) / "record"
                note.write_text(sha256)
                os.replace(note, record)  # whole or not at all
    known = (weights.get("files") or {}).get(weights["entry"], {}).get("sha256", sha256)
    if known != sha256:
        raise GauntletError(f"{source['member']} of {source['package']} has sha256 {sha256}, the catalog says {known}")
    return path, {"size": path.stat().st_size, "sha256": sha256}


def _recorded(record: Path) -> str | None:
    """The digest in a record; None when there is none, or what was left of one."""
    try:
        text = record.read_text(errors="replace").strip()
    except FileNotFoundError:
        return None
    return text if re.fullmatch("[0-9a-f]{64}", text) else None


def _download(source: dict, scratch: Path) -> Path:
    wanted = scratch / "requirements.txt"
    wanted.write_text(f"{source['package']}=={source['version']} --hash=sha256:{source['sha256']}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "--dest", str(scratch), "--requirement", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise GauntletError(f"the wheel {source['package']}=={source['version']} cannot be fetched: {last}")
    return wheels[0]


def _unpack(wheel: Path, source: dict, scratch: Path) -> Path:
    part = scratch / "member"
    with zipfile.ZipFile(wheel) as archive:
        try:
            info = archive.getinfo(source["member"])
        except KeyError:
            raise GauntletError(f"the wheel {wheel.name} does not hold {source['member']}") from None
        with archive.open(info) as packed, open(part, "wb") as file:
            while piece := packed.read(digests.PIECE):
                file.write(piece)
    return part
