"""Weights from the hub, by huggingface_hub: listed with their hashes first, fetched into the store, taken up again."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gauntlet.errors import GauntletError
from gauntlet.names import as_switch
from gauntlet.weights import contents, digests, space
from gauntlet.weights.options import Options
from gauntlet.weights.shelf import Shelf

AT_ONCE = 4
GIGABIT = 125e6  # bytes a second


@dataclass(frozen=True)
class Hub:
    """`token_file`: read here and never shown. `offline`: nothing is asked; so does HF_HUB_OFFLINE."""

    endpoint: str | None = None
    token_file: Path | None = None
    offline: bool = False

    def token(self) -> str | bool:
        """False where there is no file: whatever token the host's root has of its own is not ours to use."""
        try:
            return self.token_file.read_text().strip() or False if self.token_file else False
        except FileNotFoundError:
            return False
        except OSError as error:
            raise GauntletError(f"the hub's token {self.token_file} cannot be read: {error.strerror}") from error


@dataclass
class Listing:
    """A revision on the hub: `files` are {name: {"size", its digest}} of what is to be fetched."""

    repository: str
    commit: str
    files: dict[str, dict]
    left_out: list[str]
    notes: list[str]

    def bytes(self) -> int:
        return sum(entry["size"] for entry in self.files.values())

    def said(self) -> str:
        size = self.bytes()
        minutes = f"{size / GIGABIT / 60:.0f} min at 1 Gbit/s"
        return f"{self.repository}@{self.commit[:12]}: {space.human(size)} in {len(self.files)} files, {minutes}"


def look(hub: Hub, weights: dict, scratch: Path) -> Listing:
    """What the hub has of a catalog entry. Raises GauntletError: offline, unreachable, unknown, not allowed."""
    source = weights["source"]
    repository, revision = source["repository"], source.get("revision") or "main"
    if hub.offline or as_switch("HF_HUB_OFFLINE", os.environ.get("HF_HUB_OFFLINE") or "0"):
        raise GauntletError(f"offline by choice; wanted: {_wanted(weights)}")
    with _explained(repository, weights):
        from huggingface_hub import HfApi

        info = HfApi(endpoint=hub.endpoint, token=hub.token()).model_info(
            repository, revision=revision, files_metadata=True
        )
    there = {entry.rfilename: _entry(entry) for entry in info.siblings}

    def read(name: str) -> bytes:
        with _explained(repository, weights):
            return _download(hub, repository, info.sha, name, scratch).read_bytes()

    selection = contents.select(there, weights, read)
    files = {name: there[name] for name in selection.files}
    return Listing(repository, info.sha, files, selection.left_out, selection.notes)


def fetch(hub: Hub, listing: Listing, weights: dict, store: Shelf, options: Options) -> None:
    """Brings every file of the listing into the store's staging folder; what was fetched before is taken up."""
    staging = store.staging(weights["id"])
    staging.mkdir(parents=True, exist_ok=True)
    here = sum(path.stat().st_size for path in staging.rglob("*") if path.is_file())
    space.require(max(0, listing.bytes() - here), store.root, weights["id"], memory=False)
    progress = options.progress
    progress.start("download", weights["id"], listing.bytes(), len(listing.files))

    def bring(name: str) -> None:
        _download(hub, listing.repository, listing.commit, name, staging)

    watched, explained = _watched(staging, progress.reached), _explained(listing.repository, weights)
    with watched, explained, ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        list(pool.map(bring, listing.files))


def _entry(sibling) -> dict:
    if sibling.lfs:
        return {"size": sibling.lfs.size, digests.SHA256: sibling.lfs.sha256}
    return {"size": sibling.size, digests.GIT_BLOB: sibling.blob_id}


def _download(hub: Hub, repository: str, commit: str, name: str, folder: Path) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    where = {"endpoint": hub.endpoint, "token": hub.token(), "local_dir": folder}
    return Path(hf_hub_download(repository, name, revision=commit, **where))


@contextmanager
def _explained(repository: str, weights: dict):
    try:
        yield
    except ImportError as error:
        raise GauntletError(
            "the agent has no huggingface_hub: add requirements/hub.txt to serving_agent_locks, "
            "or to model_staging_agent_locks where another machine stages (model_staging_on)"
        ) from error
    except GauntletError:
        raise
    except Exception as error:  # its exceptions changed their classes and places between releases
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise GauntletError(
            f"{repository} cannot be had from the hub ({type(error).__name__}: {first}); wanted: {_wanted(weights)}; "
            "they can also come from another host (model_staging_peers) or a cache copied to model_staging_caches"
        ) from error


def _wanted(weights: dict, most: int = 5) -> str:
    names = sorted(weights.get("files") or {})
    if not names:
        return f"all files of {weights['source']['repository']}"
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


@contextmanager
def _watched(folder: Path, reached: Callable[[int], None], every_s: float = 1.0):
    """Tells how many bytes a folder holds, while somebody else fills it."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(every_s):
            reached(sum(path.stat().st_size for path in list(folder.rglob("*")) if path.is_file()))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
