"""A safetensors file read by its header alone: which tensors it holds, and whether all of their bytes are there.

Layout (https://huggingface.co/docs/safetensors, "Format"): 8 bytes little-endian length N, N bytes of JSON that maps
each tensor to its dtype, shape and [begin, end) in what follows; the tensors cover that without a gap to the last byte.
"""

import json
import math
import os
from pathlib import Path

from gauntlet.errors import GauntletError

LONGEST_HEADER = 100_000_000  # the limit of the reference implementation
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6,
    "F6_E3M2": 6, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
}  # fmt: skip


def tensors(path: Path) -> dict[str, int]:
    """{tensor: bytes} of a file that is as long as its header says. Raises GauntletError with what is wrong with it."""
    size = os.stat(path).st_size
    with open(path, "rb") as file:
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or not 2 <= length <= min(LONGEST_HEADER, size - 8):
            raise GauntletError(f"{path.name} has no safetensors header: it is another format, or only zeros")
        text = file.read(length)
    try:
        header = json.loads(text)
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        spans = sorted((*entry["data_offsets"], name) for name, entry in entries.items())
        wanted = {name: _bytes(entry) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise GauntletError(f"{path.name} has a safetensors header that cannot be read: {error!r}") from error
    end = 0
    for begin, stop, name in spans:
        if begin != end:
            raise GauntletError(f"{path.name} has a gap or an overlap before tensor {name}")
        if wanted[name] is not None and stop - begin != wanted[name]:
            raise GauntletError(f"{path.name} gives tensor {name} {stop - begin} bytes, its shape needs {wanted[name]}")
        end = stop
    if size != 8 + length + end:
        raise GauntletError(f"{path.name} is {size} bytes long, its header describes {8 + length + end}")
    return {name: stop - begin for begin, stop, name in spans}


def _bytes(entry: dict) -> int | None:
    """Bytes that a tensor's shape needs; None for a dtype that is newer than this table."""
    bits = BITS.get(entry["dtype"])
    return None if bits is None else -(-bits * math.prod(entry["shape"]) // 8)
