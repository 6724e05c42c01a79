"""What an entry may say: keys, types, defaults. `check` refuses what is not here, with the nearest key."""

import copy
from types import UnionType

from gauntlet.errors import GauntletError
from gauntlet.names import unknown

REQUIRED = object()
Field = tuple[type | UnionType, object]  # what a value may be, its default (REQUIRED: none)

ENGINE: dict[str, Field] = {
    "arguments": (dict, {}),
    "environment": (dict, {}),
    "requires": (dict, {}),
}
WEIGHTS: dict[str, Field] = {
    "id": (str, REQUIRED),
    "format": (str, "safetensors"),
    "entry": (str | None, None),
    "source": (dict, REQUIRED),
    "size_bytes": (int, REQUIRED),
    "files": (dict, {}),
    "dtype": (str | None, None),
    "shape": (dict, {}),
    "greedy": (dict, {}),
}
GREEDY: dict[str, Field] = {"prompt": (str, REQUIRED), "tokens": (list, REQUIRED)}
DRAFTER: dict[str, Field] = {
    **WEIGHTS,
    "size_bytes": (int | None, None),  # without it no memory is predicted, and the mount's slack has to hold it
    "status": (str, "known"),
    "note": (str | None, None),
}
CLIENT: dict[str, Field] = {"think_s": (int | float, 0), "processes": (int | None, None)}
MATRIX: dict[str, Field] = {
    "workloads": (list, REQUIRED),
    "concurrency": (list, REQUIRED),
    "methods": (list | None, None),
    "tp": (list | None, None),
}
KINDS: dict[str, dict[str, Field]] = {
    "models": {
        "title": (str, REQUIRED),
        "context_window": (int, REQUIRED),
        "trust_remote_code": (bool, False),
        "engines": (dict, REQUIRED),
        "weights": (dict, REQUIRED),
        "drafters": (dict, {}),
        "shape": (dict, {}),
        "estimate": (dict, {}),
        "notes": (list, []),
    },
    "methods": {
        "title": (str, REQUIRED),
        "family": (str, REQUIRED),
        "baseline": (bool, False),
        "drafter": (str | None, None),
        "engines": (dict, REQUIRED),
        "models": (list | None, None),
        "notes": (list, []),
    },
    "workloads": {
        "title": (str, REQUIRED),
        "kind": (str, "single"),
        "prompts": (str | dict | list | int, REQUIRED),
        "text": (str | None, None),
        "output_tokens": (int, REQUIRED),
        "context_tokens": (int | None, None),
        "temperature": (int | float, 0),
        "top_p": (int | float, 1),
        "seed": (int, 0),
        "ignore_eos": (bool, False),
        "chat": (bool, True),
        "requests": (int | None, None),
        "requests_per_stream": (int, 1),
    },
    "campaigns": {
        "title": (str, REQUIRED),
        "models": (list, REQUIRED),
        "methods": (list, REQUIRED),
        "tp": (list, [1]),
        "matrix": (list, REQUIRED),
        "repeats": (int, 3),
        "closing": (bool, False),
        "engines": (dict, {}),
        "environments": (dict | list, {"default": {}}),
        "tuning": (list | None, None),
        "client": (dict, {}),
    },
}
CHOICES: dict[tuple[str, str], tuple[str, ...]] = {
    ("workloads", "kind"): ("single", "context", "multi_turn"),
    ("drafters", "status"): ("known", "unverified", "missing"),
    ("weights", "format"): ("safetensors", "gguf", "shape"),
}
AXES = {"models": str, "methods": str, "tp": int, "workloads": str, "concurrency": int}
TUNING = ("stock", "tuned")
SOURCES = {"hub": {"repository", "revision"}, "wheel": {"package", "version", "sha256", "member"}, "local": {"path"}}
WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a mapping",
    list: "a list",
}
SHAPE = {  # gauntlet/memory/shape.py says what they are
    "architecture", "layers", "heads", "kv_heads", "context_window", "multimodal", "full", "sliding", "linear",
    "block_size", "mask_token_id", "target_layers",
}  # fmt: skip
LAYERS = {
    "full": {"layers", "kv_heads", "key_dim", "value_dim", "latent_dim", "rope_dim", "index_bytes"},
    "sliding": {"layers", "kv_heads", "key_dim", "value_dim", "window"},
    "linear": {"layers", "heads", "key_heads", "head_dim", "state_dim", "conv_dim", "conv_kernel", "dtype"},
}
REQUIRES = {"algorithm", "release", "page_size", "attention_backend"}
ESTIMATE = {"start_s": 180, "tokens_per_s": 40, "prefill_tokens_per_s": 4000, "scaling": 0.7}


def check(kind: str, entry: dict, where: str) -> dict:
    """A copy of the entry with its defaults; GauntletError, naming the file, on what no schema knows or forbids."""
    entry = _fields(KINDS[kind], entry, where)
    for (of, key), choices in CHOICES.items():
        if of == kind:
            _choice(entry[key], choices, f"{where}: {key}")
    if "engines" in entry:
        entry["engines"] = {
            name: _fields(ENGINE, engine or {}, f"{where}: engines.{name}") for name, engine in entry["engines"].items()
        }
    return globals().get(f"_{kind}", lambda entry, where: entry)(entry, where)


def expect(value: object, kind: type | UnionType, where: str) -> None:
    """GauntletError unless the value is of this kind; True is no number here."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind in (int, int | float, int | None)):
        raise GauntletError(f"{where} is {value!r}; it takes {_words(kind)}")


def _models(entry: dict, where: str) -> dict:
    entry["weights"] = _weights(WEIGHTS, entry["weights"], f"{where}: weights")
    for role, drafter in entry["drafters"].items():
        entry["drafters"][role] = _weights(DRAFTER, drafter, f"{where}: drafters.{role}")
        _choice(entry["drafters"][role]["status"], CHOICES["drafters", "status"], f"{where}: drafters.{role}.status")
    _shape(entry["shape"], f"{where}: shape")
    _known(entry["estimate"], ESTIMATE, f"{where}: estimate")
    entry["estimate"] = {**ESTIMATE, **entry["estimate"]}
    return entry


def _methods(entry: dict, where: str) -> dict:
    for name, engine in entry["engines"].items():
        _known(engine["requires"], REQUIRES, f"{where}: engines.{name}.requires")
    return entry


def _workloads(entry: dict, where: str) -> dict:
    if entry["output_tokens"] < 1:
        raise GauntletError(f"{where}: output_tokens is {entry['output_tokens']}; it takes 1 or more")
    if entry["kind"] == "context":
        for key in ("text", "context_tokens"):
            if entry[key] is None:
                raise GauntletError(f"{where}: a workload of kind context needs '{key}'")
        expect(entry["prompts"], int, f"{where}: prompts (how many are cut from the text)")
    return entry


def _campaigns(entry: dict, where: str) -> dict:
    entry["matrix"] = [_fields(MATRIX, block, f"{where}: matrix[{n}]") for n, block in enumerate(entry["matrix"])]
    for block in (entry, *entry["matrix"]):
        for axis, kind in AXES.items():
            for value in block.get(axis) or []:
                expect(value, kind, f"{where}: a value of {axis}")
                if kind is int and value < 1:
                    raise GauntletError(f"{where}: {axis} holds {value}; it takes numbers from 1")
    _fields(CLIENT, entry["client"], f"{where}: client")  # as it is written: it is in the cells' identity
    for profile in entry["tuning"] or []:
        _choice(profile, TUNING, f"{where}: tuning")
    if entry["repeats"] < 1:
        raise GauntletError(f"{where}: repeats is {entry['repeats']}; it takes 1 or more")
    return entry


def _weights(fields: dict[str, Field], entry: object, where: str) -> dict:
    expect(entry, dict, where)
    entry = _fields(fields, entry, where)
    _choice(entry["format"], CHOICES["weights", "format"], f"{where}: format")
    source = entry["source"]
    _choice(source.get("kind"), tuple(SOURCES), f"{where}: source.kind")
    needed = SOURCES[source["kind"]]
    _known({key: None for key in source if key != "kind"}, needed, f"{where}: source")
    if missing := sorted(needed - source.keys()):
        raise GauntletError(f"{where}: source of kind {source['kind']} lacks '{missing[0]}'")
    _shape(entry["shape"], f"{where}: shape")
    if entry["greedy"]:
        _fields(GREEDY, entry["greedy"], f"{where}: greedy")
        for token in entry["greedy"]["tokens"] or [None]:
            expect(token, int, f"{where}: a value of greedy.tokens")
    return entry


def _shape(entry: dict, where: str) -> None:
    _known(entry, SHAPE, where)
    for kind, keys in LAYERS.items():
        expect(entry.get(kind, {}), dict, f"{where}.{kind}")
        _known(entry.get(kind, {}), keys, f"{where}.{kind}")


def _fields(fields: dict[str, Field], entry: object, where: str) -> dict:
    expect(entry, dict, where)
    _known(entry, fields, where)
    checked = {}
    for key, (kind, default) in fields.items():
        if key not in entry:
            if default is REQUIRED:
                raise GauntletError(f"{where} lacks '{key}'")
            checked[key] = copy.deepcopy(default)
        else:
            expect(entry[key], kind, f"{where}: {key}")
            checked[key] = entry[key]
    return checked


def _known(entry: dict, keys: object, where: str) -> None:
    for key in entry:
        if key not in keys:
            raise GauntletError(f"{where}: {unknown('key', key, keys)}")


def _choice(value: object, choices: tuple[str, ...], where: str) -> None:
    if value not in choices:
        raise GauntletError(f"{where} is {value!r}; it takes {' or '.join(choices)}")


def _words(kind: type | UnionType) -> str:
    members = getattr(kind, "__args__", (kind,))
    return " or ".join(WORDS.get(member, "nothing") for member in members)
