"""A folder of snapshots: filled beside, published by one rename, removed only inside itself."""

import os
import re
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from gauntlet.errors import GauntletError
from gauntlet.weights import digests, manifest, space, transfer
from gauntlet.weights.progress import Progress
from gauntlet.weights.transfer import PART, Piece

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
STAGING = ".staging-"


def safe_name(name: str) -> str:
    """A file's name inside a snapshot. Raises GauntletError for one that leads out of it or hides in it."""
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or name.endswith(PART) or name == manifest.NAME:
        raise GauntletError(f"'{name}' is not a file name inside a model folder")
    return name


def due(folder: Path, names: Iterable[str]) -> dict[Path, int]:
    """Modes of a snapshot's files and of their folders: the server reads them, and only root writes."""
    folders = {above for name in names for above in (folder / name).parents if above.is_relative_to(folder)}
    return dict.fromkeys(folders, 0o755) | {folder / name: 0o644 for name in names}


class Shelf:
    """Snapshots under `root`. `memory`: the root is a tmpfs, so nothing need be synced and memory is checked too."""

    def __init__(self, root: Path, *, memory: bool):
        self.root, self.memory = Path(root), memory

    def path(self, weights_id: str) -> Path:
        if not ID.fullmatch(weights_id):
            raise GauntletError(f"weights id '{weights_id}' is not usable as a folder's name")
        return self.root / weights_id

    def staging(self, weights_id: str) -> Path:
        return self.root / (STAGING + self.path(weights_id).name)

    def ids(self) -> list[str]:
        """Published snapshots and what interrupted ones left behind."""
        if not self.root.is_dir():
            return []
        names = {
            entry.name.removeprefix(STAGING) for entry in os.scandir(self.root) if entry.is_dir(follow_symlinks=False)
        }
        return sorted(name for name in names if ID.fullmatch(name) and self._ours(name))

    def _ours(self, weights_id: str) -> bool:
        return self.staging(weights_id).exists() or (self.path(weights_id) / manifest.NAME).exists()

    def manifest(self, weights_id: str) -> dict | None:
        return manifest.read(self.path(weights_id))

    def size(self, weights_id: str) -> int:
        """Bytes that a snapshot and its staging folder hold."""
        total = 0
        for folder in (self.path(weights_id), self.staging(weights_id)):
            for base, _, names in os.walk(folder):
                total += sum(os.lstat(os.path.join(base, name)).st_blocks * 512 for name in names)
        return total

    def check(self, weights_id: str, *, deep: bool, jobs: int, progress: Progress) -> dict[str, str] | None:
        """Wrong files of a published snapshot -> {name: why}; None when nothing is published."""
        record = self.manifest(weights_id)
        if record is None:
            return None
        folder = Path(record["folder"]) if record.get("folder") else self.path(weights_id)
        progress.start("verify", weights_id, manifest.total(record), len(record["files"]))
        return transfer.check(folder, record["files"], deep=deep, jobs=jobs, progress=progress)

    def withdraw(self, weights_id: str, wrong: dict[str, str]) -> None:
        """Takes a snapshot out of service: what is right of it waits in the staging folder, what is wrong is gone."""
        path, staging = self.path(weights_id), self.staging(weights_id)
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise GauntletError(f"{path} is not a folder of Gauntlet: move it and run again")
        if path.exists():
            self._remove(staging)
            os.rename(path, staging)
        for name in (manifest.NAME, *wrong):
            (staging / name).unlink(missing_ok=True)

    def fill(
        self,
        weights: dict,
        pieces: list[Piece],
        *,
        hashed: bool,
        jobs: int,
        progress: Progress,
        left_out=(),
        notes=(),
        whole=lambda folder, names: None,
    ) -> dict:
        """Publishes the pieces as the snapshot of `weights` -> {"bytes": copied, "resumed": [names], "manifest"}.

        Files that an interrupted run finished are hashed again and kept. `whole(folder, names)` raises when the
        files together are not a model. Raises GauntletError (no room, unreadable), Damaged (wrong bytes, by name).
        """
        weights_id = weights["id"]
        staging = self.staging(weights_id)
        self.withdraw(weights_id, {})
        staging.mkdir(mode=0o755, parents=True, exist_ok=True)
        (staging / manifest.NAME).unlink(missing_ok=True)
        for piece in pieces:
            safe_name(piece.name)
        self._keep_only(staging, {piece.name for piece in pieces})
        files = self._resume(staging, pieces, jobs, progress)
        todo = [piece for piece in pieces if piece.name not in files]
        needed = sum(piece.size for piece in todo)
        space.require(needed, self.root, weights_id, memory=self.memory)
        resumed = sorted(files)
        progress.start("copy", weights_id, needed, len(todo))
        files |= transfer.run(todo, staging, hashed=hashed, jobs=jobs, progress=progress, durable=not self.memory)
        whole(staging, sorted(files))
        for path, mode in due(staging, files).items():
            os.chmod(path, mode)
        for name, entry in files.items():
            entry["stamp"] = manifest.stamp(os.lstat(staging / name))
        record = manifest.new(weights, files, verified=hashed, left_out=left_out, notes=notes)
        manifest.write(staging, record)
        self._publish(weights_id)
        return {"bytes": needed, "resumed": resumed, "manifest": record}

    def record(self, weights: dict, offer, proven: dict) -> None:
        """Publishes only a manifest, for files that stay in a folder of somebody else and were proven by a copy."""
        files = {}
        for piece in offer.pieces:
            real = Path(piece.path)
            entry = {**proven["files"][piece.name], "path": str(real.relative_to(offer.outside))}
            files[piece.name] = {**entry, "stamp": manifest.stamp(os.lstat(real))}
        about = {"left_out": offer.left_out, "notes": offer.notes}
        self._remove(self.staging(weights["id"]))
        self.staging(weights["id"]).mkdir(mode=0o755, parents=True)
        record = manifest.new(weights, files, verified=True, folder=str(offer.outside), **about)
        manifest.write(self.staging(weights["id"]), record)
        self._remove(self.path(weights["id"]))
        self._publish(weights["id"])

    @staticmethod
    def pieces(folder: Path, files: dict) -> list[Piece]:
        """Pieces of files that a manifest lists."""
        return [
            transfer.local(name, folder / entry.get("path", name), entry["size"], digests.of_entry(entry))
            for name, entry in files.items()
        ]

    def modes(self, weights_id: str, *, repair: bool) -> dict[str, str]:
        """Published files and folders that others than root may write or the server may not read -> {name: mode};
        set right."""
        found, folder = {}, self.path(weights_id)
        for path, mode in due(folder, [manifest.NAME, *self.manifest(weights_id)["files"]]).items():
            status = os.lstat(path)
            if stat.S_IMODE(status.st_mode) != mode or (status.st_uid, status.st_gid) != (os.getuid(), os.getgid()):
                name = str(path.relative_to(folder))
                found[name] = f"{stat.S_IMODE(status.st_mode):04o} {status.st_uid}:{status.st_gid}"
                if repair:
                    os.chown(path, os.getuid(), os.getgid(), follow_symlinks=False)
                    os.chmod(path, mode)
        return found

    def remove(self, weights_id: str) -> int:
        """Frees a snapshot and its leftovers -> bytes freed. Out of service first: nobody starts from half of it."""
        freed = self.size(weights_id)
        self.withdraw(weights_id, {})
        self._remove(self.staging(weights_id))
        return freed

    def _resume(self, staging: Path, pieces: list[Piece], jobs: int, progress: Progress) -> dict:
        """Entries of the files that are there already and are proven by a hash; the others are gone afterwards."""
        there = [piece for piece in pieces if (staging / piece.name).is_file()]
        if not there:
            return {}
        progress.start("resume", staging.name.removeprefix(STAGING), sum(p.size for p in there), len(there))
        found, wrong = transfer.known(staging, there, jobs=jobs, progress=progress)
        for name in wrong:
            (staging / name).unlink()
        return found

    def _keep_only(self, staging: Path, names: set[str]) -> None:
        for base, folders, files in os.walk(staging, topdown=False):
            for name in files:
                path = Path(base, name)
                if str(path.relative_to(staging)) not in names or path.is_symlink():
                    path.unlink()
            for name in folders:
                path = Path(base, name)
                if path.is_symlink():
                    path.unlink()
                elif not any(path.iterdir()):
                    path.rmdir()

    def _publish(self, weights_id: str) -> None:
        path = self.path(weights_id)
        os.chmod(self.staging(weights_id), 0o755)
        os.rename(self.staging(weights_id), path)
        if not self.memory:
            transfer.sync(self.root)

    def _remove(self, path: Path) -> None:
        """Removes one of our own folders; never follows a link, never leaves the root."""
        if path.parent != self.root:
            raise GauntletError(f"{path} is not in {self.root}: it is not removed")
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISDIR(mode):
            shutil.rmtree(path)
        else:
            path.unlink()
