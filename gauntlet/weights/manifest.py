"""The record beside the files of a snapshot: what they are, where they came from, by which hashes they are known.

`{"schema": 1, "weights": id, "format", "entry", "source": {…}, "verified": bool, "folder": null or the folder
elsewhere that holds the files, "files": {name: {"size", "sha256", "xxh3_128", "stamp"}}, "left_out": [names],
"notes": [sentences]}`. Sizes are bytes. `stamp` is (inode, mtime, ctime) when the snapshot was published.
"""

import json
import os
from pathlib import Path

from gauntlet.errors import GauntletError

NAME = ".gauntlet-manifest.json"
SCHEMA = 1
KNOWN_BY = ("size", "sha256", "xxh3_128", "git_blob_sha1")


def stamp(status: os.stat_result) -> str:
    """Changes whenever a file is written, replaced or touched by ordinary means; says nothing about decay."""
    return f"{status.st_ino}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def new(weights: dict, files: dict, *, verified: bool, folder: str | None = None, left_out=(), notes=()) -> dict:
    return {
        "schema": SCHEMA,
        "weights": weights["id"],
        "format": weights["format"],
        "entry": weights.get("entry"),
        "source": weights["source"],
        "verified": verified,
        "folder": folder,
        "files": files,
        "left_out": sorted(left_out),
        "notes": list(notes),
    }


def total(manifest: dict) -> int:
    return sum(entry["size"] for entry in manifest["files"].values())


def read(folder: Path) -> dict | None:
    """The manifest of a folder, None where there is none. Raises GauntletError for one that cannot be used."""
    path = Path(folder) / NAME
    try:
        manifest = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise GauntletError(f"{path} cannot be read as a manifest: {error}") from error
    if (
        not isinstance(manifest, dict)
        or manifest.get("schema") != SCHEMA
        or not isinstance(manifest.get("files"), dict)
    ):
        raise GauntletError(f"{path} is not a manifest of schema {SCHEMA}")
    return manifest


def write(folder: Path, manifest: dict) -> None:
    """Whole or not at all, also when the power goes."""
    path = Path(folder) / NAME
    part = path.with_suffix(".part")
    with open(part, "w") as file:
        json.dump(manifest, file, indent=1, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.chmod(part, 0o644)
    os.replace(part, path)


def disagreements(files: dict, expected: dict) -> dict[str, str]:
    """Where a manifest's entries contradict others in size or in a digest that both have -> {name: why}."""
    wrong = {}
    for name, entry in expected.items():
        have = files.get(name)
        if have is None:
            wrong[name] = "missing"
        elif any(entry.get(key) and have.get(key) and entry[key] != have[key] for key in KNOWN_BY):
            wrong[name] = "not the file that is asked for"
    return wrong
