"""Which files of a folder are the model, and whether together they are whole.

A folder often holds a model more than once: as shards, consolidated, in two quantisations. What an engine loads is what
the index names, so that is what is sized and staged; the rest is named and left out.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from gauntlet.errors import GauntletError
from gauntlet.weights import safetensors

INDEX = ".safetensors.index.json"
USUAL = "model.safetensors"
OTHER_FORMATS = (".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack", ".ot", ".tflite", ".npz", ".ckpt")
GGUF_SHARD = re.compile(r"(.*-)\d{5}(-of-\d{5}\.gguf)")


@dataclass
class Selection:
    """`files`: names to stage; `weights`: those of them that hold tensors; `index`: the one they are named by."""

    files: list[str]
    weights: list[str]
    index: str | None = None
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def select(names: Iterable[str], weights: dict, read: Callable[[str], bytes]) -> Selection:
    """Which of `names` (relative) belong to the weights of a catalog entry; `read` gives the bytes of an index.

    Raises GauntletError when something is missing, and when only a person can tell which files are meant.
    """
    names = sorted(name for name in names if not _hidden(name))
    if not names:
        raise GauntletError("there are no files")
    if listed := weights.get("files"):
        selection = Selection(sorted(listed), [name for name in listed if name.endswith((".safetensors", ".gguf"))])
    elif weights["format"] == "gguf":
        shards = _gguf(names, weights["entry"])
        selection = Selection(shards, shards)
    elif weights["format"] == "shape":  # a configuration and a tokenizer, for engines that make up the tensors
        selection = Selection(sorted({*names, "config.json"}), [])
    else:
        selection = _safetensors(names, read)
    if missing := sorted(set(selection.files) - set(names)):
        raise GauntletError(f"missing: {', '.join(missing)}")
    selection.left_out = sorted(set(names) - set(selection.files))
    selection.notes += _collisions(names)
    return selection


def _hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def _collisions(names: list[str]) -> list[str]:
    by_folded: dict[str, list[str]] = {}
    for name in names:
        by_folded.setdefault(name.casefold(), []).append(name)
    return [
        f"{' and '.join(same)} differ only in case: one of them is lost on a file system that does not tell them apart"
        for same in by_folded.values()
        if len(same) > 1
    ]


def _gguf(names: list[str], entry: str) -> list[str]:
    if not (shard := GGUF_SHARD.fullmatch(entry)):
        return [entry]
    of = int(re.search(r"-of-(\d{5})", entry)[1])
    return [f"{shard[1]}{n:05d}{shard[2]}" for n in range(1, of + 1)]


def _safetensors(names: list[str], read: Callable[[str], bytes]) -> Selection:
    tensors = [name for name in names if name.endswith(".safetensors")]
    index = _index(names)
    if index:
        chosen = sorted(set(weight_map(index, read(index)).values()))
    elif USUAL in tensors:
        chosen = [USUAL]
    elif len(tensors) == 1:
        chosen = tensors
    elif not tensors:
        raise GauntletError("there is no .safetensors file")
    else:
        raise GauntletError(f"no index says which is the model: {', '.join(tensors)}; name its files in the catalog")
    indexes = {name for name in names if name.endswith(INDEX)} - {index}
    other = {name for name in names if name.endswith(OTHER_FORMATS)}
    return Selection(sorted({*names, *chosen} - (set(tensors) - set(chosen)) - indexes - other), chosen, index)


def _index(names: list[str]) -> str | None:
    found = [name for name in names if name.endswith(INDEX)]
    if USUAL + ".index.json" in found:
        return USUAL + ".index.json"
    if USUAL in names or not found:
        return None
    if len(found) > 1:
        raise GauntletError(f"several indexes: {', '.join(found)}; name the model's files in the catalog")
    return found[0]


def weight_map(name: str, text: bytes) -> dict[str, str]:
    """{tensor: file} of an index."""
    try:
        found = json.loads(text)["weight_map"]
        if not found or not all(isinstance(file, str) for file in found.values()):
            raise ValueError("no files in weight_map")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise GauntletError(f"{name} is not an index of safetensors files: {error!r}") from error
    return found


def of_folder(files: dict[str, Path], weights: dict) -> Selection:
    """`select` for files that can be read here ({name: path}), with every tensor accounted for."""

    def read(name: str) -> bytes:
        return files[name].read_bytes()

    try:
        selection = select(files, weights, read)
    except GauntletError as error:
        raise _stale_index(files, read) or error from None
    if weights["format"] == "gguf":
        for name in selection.weights:
            with open(files[name], "rb") as file:
                if file.read(4) != b"GGUF":
                    raise GauntletError(f"{name} does not begin with GGUF: it is not such a file")
        return selection
    held = {name: safetensors.tensors(files[name]) for name in selection.weights}
    if selection.index:
        _agree(selection, read(selection.index), held)
    return selection


def _agree(selection: Selection, text: bytes, held: dict[str, dict[str, int]]) -> None:
    where = {tensor: name for name, tensors in held.items() for tensor in tensors}
    mapped = weight_map(selection.index, text)
    for tensor, name in sorted(mapped.items()):
        if where.get(tensor) is None:
            raise GauntletError(f"tensor {tensor} is in no file; {selection.index} says {name}")
        if tensor not in held[name]:
            raise GauntletError(f"tensor {tensor} is in {where[tensor]}, {selection.index} says {name}")
    if unknown := set(where) - set(mapped):
        selection.notes.append(f"{len(unknown)} tensors are not in {selection.index}, such as {min(unknown)}")
    total, size = _total_size(text), sum(sum(tensors.values()) for tensors in held.values())
    if total not in (None, size):
        selection.notes.append(f"{selection.index} says {total} bytes of tensors, there are {size}")


def _total_size(text: bytes) -> int | None:
    return (json.loads(text).get("metadata") or {}).get("total_size")


def _stale_index(files: dict[str, Path], read: Callable[[str], bytes]) -> GauntletError | None:
    """The verdict on a folder whose index names other files than are there, though all of its tensors are."""
    try:
        index = _index(sorted(files))
        mapped = weight_map(index, read(index)) if index else {}
        others = [name for name in files if name.endswith(".safetensors")]
        held = {tensor for name in others for tensor in safetensors.tensors(files[name])}
    except GauntletError:
        return None
    if mapped and others and set(mapped) <= held:
        return GauntletError(
            f"{index} does not match the files: it names {len(set(mapped.values()))}, none of its tensors is missing "
            f"in the {len(others)} that are there ({', '.join(sorted(others))}): "
            "the index is stale, the tensors look complete; get the index again, not the weights"
        )
    return None
