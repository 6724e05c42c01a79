"""The catalog: models, methods, workloads, campaigns as plain data, one YAML file an entry; nothing is templated.

`load` reads catalog folders, checks every entry against `schema` and fills its defaults. A later folder (an
inventory's own catalog/) adds entries and replaces whole ones, never parts. The file's name is the entry's name; a
method file with `members` is a family and defines every member as the family's words overlaid with the member's.
Only the controller loads catalogs: PyYAML is not in the agent environment.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gauntlet.catalog import schema
from gauntlet.catalog.reading import read_yaml
from gauntlet.errors import GauntletError
from gauntlet.names import unknown

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
PART = re.compile(r"[a-z0-9][a-z0-9_-]*")  # a dot parts the names in a deployment's and a cell's
SINGULAR = {
    "models": "model",
    "methods": "method",
    "workloads": "workload",
    "campaigns": "campaign",
    "settings": "setting",
    "diagnoses": "diagnosis",
}


@dataclass
class Catalog:
    """Entries by kind and name. `folders` are the catalog an entry came from and those before it, in that order."""

    models: dict[str, dict] = field(default_factory=dict)
    methods: dict[str, dict] = field(default_factory=dict)
    workloads: dict[str, dict] = field(default_factory=dict)
    campaigns: dict[str, dict] = field(default_factory=dict)
    settings: dict[str, dict] = field(default_factory=dict)
    diagnoses: dict[str, dict] = field(default_factory=dict)

    def get(self, kind: str, name: str) -> dict:
        """An entry; `kind` is a plural ('models'). GauntletError with the nearest name when there is none."""
        entries = getattr(self, kind)
        if name not in entries:
            raise unknown(SINGULAR[kind], name, entries)
        return entries[name]


def load(folders: Iterable[Path | str]) -> Catalog:
    """The catalog of these folders, later ones winning. A folder that is not there, a file that is no mapping and a key
    that no schema knows are GauntletErrors that name the file."""
    catalog = Catalog()
    before: list[str] = []
    for folder in map(Path, folders):
        before.insert(0, str(folder))
        if not folder.is_dir():
            raise GauntletError(f"no catalog folder {folder}")
        for kind in SINGULAR:
            entries = getattr(catalog, kind)
            for file in sorted((folder / kind).glob("*.yml")):
                loaded = _members(kind, file)
                for name in [name for name, entry in entries.items() if entry["file"] == file.name]:
                    del entries[name]  # a family is replaced whole: a member that its new file lacks is gone
                entries.update(
                    {name: {**entry, "folders": list(before), "file": file.name} for name, entry in loaded.items()}
                )
    return catalog


def overlay(base: dict, top: dict) -> dict:
    """`top` over `base`: mappings merged key by key, lists one after the other, anything else replaced."""
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = overlay(below, value)
        else:
            merged[key] = [*below, *value] if isinstance(below, list) and isinstance(value, list) else value
    return merged


def _members(kind: str, file: Path) -> dict[str, dict]:
    """{name: entry} of one file: one, or every member of a method family."""
    document = read_yaml(file)
    if document.pop("name", file.stem) != file.stem:
        raise GauntletError(f"{file}: its name is the file's, '{file.stem}'")
    if kind not in schema.KINDS:  # checked by those who read them
        return {file.stem: {"name": file.stem, **document}}
    if kind == "methods":
        members = document.pop("members", None) or {file.stem: {}}
        schema.expect(members, dict, f"{file}: members")
        document.setdefault("family", file.stem)
        entries = {name: overlay(document, member or {}) for name, member in members.items()}
    else:
        entries = {file.stem: document}
    for name in entries:
        if not (NAME if kind in ("models", "campaigns") else PART).fullmatch(str(name)):
            raise GauntletError(f"{file}: '{name}' is no name; it takes small letters, digits and dashes")
    return {name: {"name": name, **schema.check(kind, entry, str(file))} for name, entry in entries.items()}
