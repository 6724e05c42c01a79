"""Files of a catalog: YAML entries, prompts as JSON lines."""

import gzip
import json
from functools import cache
from pathlib import Path

import yaml

from gauntlet.errors import GauntletError

PARTS = ("text", "messages", "conversation")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Safe YAML in which a key given twice is an error: a flag must not vanish in silence."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict:
    seen: set[str] = set()
    for key, _ in node.value:
        if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
            raise yaml.constructor.ConstructorError(None, None, f"'{key.value}' is given twice", key.start_mark)
        seen.add(key.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def read_yaml(file: Path) -> dict:
    """A YAML file that holds one mapping."""
    try:
        document = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise GauntletError(f"{file} is no readable YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise GauntletError(f"{file} holds no mapping")
    return document


@cache
def read_prompts(file: Path, fields: tuple[tuple[str, str], ...] = ()) -> list[dict]:
    """The prompts of a JSON-lines file: [{"id", "text" | "messages" | "conversation"}].

    fields: how another's file names them, (("id", "task_id"), ("text", "prompt")); a line without an id has its number.
    """
    named = dict(fields)
    parts = [part for part in PARTS if part in named] or PARTS
    names = {part: part for part in ("id", *PARTS)} | named
    prompts, seen = [], set()
    try:
        lines = file.read_text(encoding="utf-8").split("\n")  # splitlines() would also split at U+2028 inside a string
    except (OSError, UnicodeDecodeError) as error:
        raise GauntletError(f"cannot read the prompts {file}: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise GauntletError(f"{file} line {number} is no JSON: {error}") from None
        given = [ours for ours in parts if isinstance(record, dict) and record.get(names[ours])]
        if len(given) != 1:
            wanted = ", ".join(f"'{names[ours]}'" for ours in parts)
            raise GauntletError(f"{file} line {number} holds {len(given) or 'none'} of {wanted}; it takes exactly one")
        prompt = {"id": str(record.get(names["id"], number)), given[0]: record[names[given[0]]]}
        if prompt["id"] in seen:
            raise GauntletError(f"{file} line {number} repeats the id '{prompt['id']}'")
        seen.add(prompt["id"])
        prompts.append(prompt)
    if not prompts:
        raise GauntletError(f"{file} holds no prompt")
    return prompts


@cache
def read_text(file: Path) -> str:
    """A corpus: UTF-8 text, packed with gzip when the name ends so."""
    try:
        data = file.read_bytes()
        return (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise GauntletError(f"cannot read the text {file}: {error}") from None
