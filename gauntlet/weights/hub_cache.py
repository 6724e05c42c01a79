"""The Hugging Face cache of a host, read without the hub and believed only as far as it can be checked.

Layout: `models--org--name/refs/<branch>` holds a commit; `snapshots/<commit>/<file>` links to `blobs/<hash>`; the blob
of a large file is named by its sha256, that of a small one by its git hash. A blob that is being downloaded ends in
`.incomplete`. Losing the blobs and keeping the links leaves what looks like a model to `ls`.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from gauntlet.errors import GauntletError
from gauntlet.weights import digests
from gauntlet.weights.space import human

COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass
class Cached:
    """A snapshot whose every link leads to a blob: `files` is {name: path of the bytes}."""

    folder: Path
    commit: str
    files: dict[str, Path]
    notes: list[str] = field(default_factory=list)

    def expected(self, name: str) -> dict[str, str]:
        """The digest that a blob's name promises; {} for a file that is kept in the snapshot itself."""
        blob = self.files[name].name
        if self.files[name].parent != self.folder / "blobs":
            return {}
        if SHA256.fullmatch(blob):
            return {digests.SHA256: blob}
        return {digests.GIT_BLOB: blob} if COMMIT.fullmatch(blob) else {}


def find(cache: Path, repository: str, revision: str | None) -> Cached:
    """The snapshot of a revision (a branch, tag or commit; None is main). Raises GauntletError with the verdict."""
    folder = Path(cache) / ("models--" + repository.replace("/", "--"))
    if not folder.is_dir():
        raise GauntletError(f"{repository} is not in {cache}")
    notes: list[str] = []
    commit = _commit(folder, revision or "main", notes)
    files, wrong = _files(folder, commit)
    if partial := _incomplete(folder):
        notes.append(f"interrupted downloads: {', '.join(partial)}")
    if wrong:
        raise GauntletError("; ".join([f"{folder}: {_list(wrong)}", *notes]))
    if not files:
        raise GauntletError(f"{folder}/snapshots/{commit} is empty")
    return Cached(folder, commit, files, notes)


def _commit(folder: Path, revision: str, notes: list[str]) -> str:
    snapshots = folder / "snapshots"
    here = sorted(entry.name for entry in snapshots.iterdir() if entry.is_dir()) if snapshots.is_dir() else []
    has = f"snapshots here: {', '.join(here) or 'none'}"
    if revision in here:
        return revision
    if COMMIT.fullmatch(revision):
        raise GauntletError(f"{folder} does not have commit {revision}; {has}")
    ref = folder / "refs" / revision
    try:
        commit = ref.read_text().strip()
    except OSError:
        if len(here) == 1:
            notes.append(f"there is no refs/{revision}; {here[0]} is taken, the only snapshot in {folder}")
            return here[0]
        raise GauntletError(f"{folder} has no refs/{revision} to say which is meant; {has}; name a revision") from None
    if commit not in here:
        raise GauntletError(f"{folder}: refs/{revision} points to commit {commit}, which is not here; {has}")
    return commit


def _files(folder: Path, commit: str) -> tuple[dict[str, Path], dict[str, str]]:
    root, found, wrong = folder / "snapshots" / commit, {}, {}
    inside = folder.resolve()
    for base, _, names in os.walk(root):
        for path in (Path(base, name) for name in names):
            name, target = str(path.relative_to(root)), path.resolve()
            if not target.is_relative_to(inside):
                wrong[name] = f"a link that leads out of the cache, to {target}"
            elif not target.exists():
                wrong[name] = "a link without its blob"
            else:
                found[name] = folder / target.relative_to(inside)
    return found, wrong


def _incomplete(folder: Path) -> list[str]:
    return [f"{path.name} ({human(path.stat().st_size)})" for path in sorted((folder / "blobs").glob("*.incomplete"))]


def _list(wrong: dict[str, str], most: int = 8) -> str:
    shown = [f"{name} ({why})" for name, why in sorted(wrong.items())[:most]]
    return ", ".join(shown) + (f" and {len(wrong) - most} more" if len(wrong) > most else "")
