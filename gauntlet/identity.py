"""Identity: canonical JSON, the hash of what was declared, the hash of what was observed, what differs.

A specification is the document of one cell: {engine, engine_build, tp, arguments, environment, weights: {model,
drafter}, workload: {kind, prompts_sha256, output_tokens, …, requests}, sampling, concurrency, client}. Paths in
arguments stay symbolic (`${model}`); names that only people read (campaign, title, notes, file names) are not in it, so
renaming or commenting changes no hash.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache

from gauntlet.errors import GauntletError

Difference = tuple[str, object, object]  # path such as 'environment.NCCL_ALGO', value in a, value in b; None: not there


def canonical(obj: object) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces; equal documents give equal bytes.

    Tuples are lists, 1.0 is 1, -0.0 is 0. Raises GauntletError on NaN, infinities, keys that are no strings and values
    that JSON does not have.
    """
    text = json.dumps(_plain(obj, ""), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def joined(parts: dict[str, bytes]) -> bytes:
    """`canonical` of an object whose values are canonical already: parts that many documents share are written once."""
    return b"{" + b",".join(b"%b:%b" % (_key(key), parts[key]) for key in sorted(parts)) + b"}"


@lru_cache
def _key(key: str) -> bytes:
    return canonical(key)


def digest(obj: object) -> str:
    """64 hex: sha256 of `canonical(obj)`."""
    return hashlib.sha256(canonical(obj)).hexdigest()


def spec_id(specification: dict) -> str:
    """The identity of what was declared."""
    return digest(specification)


def conditions_id(stable: dict) -> str:
    """The identity of what was observed: the stable part of a host's fingerprint."""
    return digest(stable)


def difference(a: object, b: object) -> list[Difference]:
    """What differs between two documents, path by path, in the order of the paths; equal documents give []."""
    return list(_differences(_plain(a, ""), _plain(b, ""), ""))


def _differences(a: object, b: object, path: str) -> Iterator[Difference]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            below = f"{path}.{key}" if path else key
            if key in a and key in b:
                yield from _differences(a[key], b[key], below)
            else:
                yield below, a.get(key), b.get(key)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, pair in enumerate(zip(a, b, strict=True)):
            yield from _differences(*pair, f"{path}[{index}]")
    elif type(a) is not type(b) or a != b:  # True == 1 in Python, not in a document
        yield path, a, b


def _plain(obj: object, path: str) -> object:
    if obj is None or isinstance(obj, str | bool | int):
        return obj
    if isinstance(obj, dict):
        for key in obj:
            if not isinstance(key, str):
                raise GauntletError(f"the key {key!r} at '{path}' is no string and has no identity")
        return {key: _plain(value, f"{path}.{key}") for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        return [_plain(value, f"{path}[]") for value in obj]
    if isinstance(obj, float) and obj - obj == 0:  # neither NaN nor infinite
        return int(obj) if obj.is_integer() else obj
    raise GauntletError(f"{obj!r} at '{path}' has no identity: JSON does not have it")
