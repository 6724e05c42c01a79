"""Where weights can come from, in order, each asked what it has and each giving its reason when it cannot."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from gauntlet.errors import GauntletError
from gauntlet.names import as_switch
from gauntlet.weights import contents, digests, hub, hub_cache, manifest, transfer
from gauntlet.weights.hub import Hub
from gauntlet.weights.options import Options
from gauntlet.weights.peer import Peer
from gauntlet.weights.shelf import Shelf
from gauntlet.weights.transfer import Damaged, Piece


class Unusable(GauntletError):
    """A source that cannot give the snapshot. `final`: no other may be tried; `push`: the controller has it."""

    def __init__(self, sentence: str, *, final: bool = False, push: bool = False):
        super().__init__(sentence)
        self.final, self.push = final, push


@dataclass
class Offer:
    """Pieces that make a whole snapshot, and where they are. `outside`: the folder of somebody else that holds them."""

    source: str
    where: str
    pieces: list[Piece]
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    outside: Path | None = None

    def bytes(self) -> int:
        return sum(piece.size for piece in self.pieces)


@dataclass
class Places:
    """What a host may take weights from. `caches`: Hugging Face caches; `peers`: other hosts; `hub`: None where it is
    not to be asked; `pushed`: {id: {name: {"size", "sha256"}}}, which the controller laid into the staging folder."""

    store: Shelf
    caches: list[Path] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)
    hub: Hub | None = None
    pushed: dict = field(default_factory=dict)


def places(asked: dict) -> Places:
    """Places from what a module was asked: `store`, `caches`, `peers`, `hub`, and `pushed` where there is one."""
    peers = [Peer(peer["name"], peer["ssh"]) for peer in asked["peers"]]
    access = asked["hub"]
    if access is not None:
        token = access.get("token_file")
        offline = as_switch("offline", access.get("offline", False))
        access = Hub(access.get("endpoint") or None, Path(token) if token else None, offline)
    store, caches = Shelf(Path(asked["store"]), memory=False), [Path(folder) for folder in asked["caches"]]
    return Places(store, caches, peers, access, asked.get("pushed") or {})


def offers(weights: dict, places: Places, options: Options) -> Iterator[tuple[str, Callable[[], Offer]]]:
    """(name, question) of each source that this kind of weights can come from, best first."""
    kind = weights["source"]["kind"]
    yield "store", lambda: from_store(weights, places.store, options)
    if kind == "local":
        yield "folder", lambda: from_folder(weights)
    if kind == "hub":
        for cache in places.caches:
            yield f"cache {cache}", lambda cache=cache: from_cache(weights, cache)
    for peer in places.peers:
        yield peer.name, lambda peer=peer: from_peer(weights, peer)
    if kind == "hub" and places.hub:
        yield "hub", lambda: from_hub(weights, places, options)
    if kind == "wheel":
        yield "controller", lambda: from_controller(weights, places, options)


def from_store(weights: dict, store: Shelf, options: Options) -> Offer:
    """The local store: our own copy, or our record of files elsewhere that were proven once."""
    weights_id = weights["id"]
    record = store.manifest(weights_id)
    if record is None:
        raise Unusable(f"nothing in {store.path(weights_id)}")
    if record["source"] != weights["source"]:
        raise Unusable(f"holds another source: {record['source']}")
    outside = Path(record["folder"]) if record.get("folder") else None
    folder = outside or store.path(weights_id)
    wrong = manifest.disagreements(record["files"], weights.get("files") or {})
    wrong |= store.check(weights_id, deep=False, jobs=options.jobs, progress=options.progress) or {}
    if wrong:
        # files that are not ours may come and go; our own copy does not decay without a reason that somebody must know
        raise Unusable(str(Damaged(str(folder), wrong)), final=not options.repair_store and not outside)
    return Offer(
        "store", str(folder), store.pieces(folder, record["files"]), record["left_out"], record["notes"], outside
    )


def from_folder(weights: dict) -> Offer:
    """A folder of this host that the catalog names. Without hashes in the catalog it is believed the first time."""
    folder = Path(weights["source"]["path"])
    if not folder.is_dir():
        raise Unusable(f"there is no folder {folder}")
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    for name, path in files.items():
        if not path.resolve().is_relative_to(folder.resolve()):
            raise Unusable(f"{folder}/{name} is a link that leads out of it, to {path.resolve()}")
    return _offer("folder", str(folder), files, weights, lambda name: {}, folder)


def from_cache(weights: dict, cache: Path) -> Offer:
    """A Hugging Face cache of this host; the names of its blobs are the hashes that they are checked by."""
    source = weights["source"]
    cached = hub_cache.find(cache, source["repository"], source.get("revision"))
    offer = _offer("cache", str(cached.folder), cached.files, weights, cached.expected, cached.folder)
    offer.notes += cached.notes
    return offer


def _offer(source: str, where: str, files: dict[str, Path], weights: dict, expected: Callable, outside: Path) -> Offer:
    selection = contents.of_folder(files, weights)
    known = weights.get("files") or {}
    pieces = []
    for name in selection.files:
        real = files[name].resolve()
        pieces.append(
            transfer.local(name, real, real.stat().st_size, expected(name) | digests.of_entry(known.get(name, {})))
        )
    return Offer(source, where, pieces, selection.left_out, selection.notes, outside.resolve())


def from_peer(weights: dict, peer: Peer) -> Offer:
    """Another host's verified snapshot, straight into memory; the store gets its copy from there."""
    record = peer.manifest(weights["id"])
    if record["source"] != weights["source"]:
        raise Unusable(f"has another source: {record['source']}")
    if wrong := manifest.disagreements(record["files"], weights.get("files") or {}):
        raise Unusable(str(Damaged(peer.name, wrong)))
    pieces = []
    for name, entry in record["files"].items():
        proof = {digests.SHA256: entry[digests.SHA256]}  # its quick hash is for its own disk
        pieces.append(Piece(name, entry["size"], lambda name=name: peer.open(weights["id"], name), proof))
    return Offer("peer", peer.name, pieces, record["left_out"], record["notes"])


def from_hub(weights: dict, places: Places, options: Options) -> Offer:
    """The hub: fetched into the store and offered from there; in check mode only what it would be."""
    store = places.store
    if not options.dry:
        store.withdraw(weights["id"], {})
    with tempfile.TemporaryDirectory() as scratch:
        listing = hub.look(places.hub, weights, Path(scratch))
    pieces = _nowhere(listing.files, "fetched")
    about = {"left_out": listing.left_out, "notes": listing.notes}
    if options.dry:
        return Offer("hub", listing.said(), pieces, **about)
    options.progress.say(f"{weights['id']}: from the hub, {listing.said()}")
    hub.fetch(places.hub, listing, weights, store, options)
    store.fill(weights, pieces, hashed=True, jobs=options.jobs, progress=options.progress, **about)
    return replace(from_store(weights, store, options), source="hub", where=listing.said())


def _nowhere(files: dict[str, dict], verb: str) -> list[Piece]:
    """Pieces that must lie in the staging folder already: there is nothing to read them from."""

    def missing(name: str):
        raise FileNotFoundError(f"{name} was not {verb}, or arrived damaged")

    return [
        Piece(name, entry["size"], lambda name=name: missing(name), digests.of_entry(entry))
        for name, entry in files.items()
    ]


def from_controller(weights: dict, places: Places, options: Options) -> Offer:
    """What the controller pushed: adopted into the store, then offered from there."""
    files = places.pushed.get(weights["id"])
    if files is None:
        if not options.dry:
            places.store.withdraw(weights["id"], {})
        raise Unusable("only the controller can fetch it: to be pushed", push=True)

    pieces = _nowhere(files, "pushed")
    places.store.fill(weights, pieces, hashed=True, jobs=options.jobs, progress=options.progress)
    return from_store(weights, places.store, options)
