"""Names that people type: the nearest known one, lists and switches given as strings."""

import difflib
from collections.abc import Iterable

from gauntlet.errors import GauntletError

TRUE = frozenset({"true", "yes", "on", "1", "y", "t"})
FALSE = frozenset({"false", "no", "off", "0", "n", "f"})


def unknown(kind: str, name: object, known: Iterable[str]) -> GauntletError:
    """The sentence for a name that is not in the catalog, with the nearest one when there is one near."""
    known = sorted(set(known))
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known) or 'none'}"
    return GauntletError(f"unknown {kind} '{name}'; {hint}")


def as_list(value: object) -> list[str]:
    """A selector as people give it: None, 'a,b', ['a', 'b'] or a number -> list of stripped strings."""
    if value is None or value == "":
        return []
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple | set) else [value]
    return [text for item in items if (text := str(item).strip())]


def as_switch(name: str, value: object) -> bool:
    """A yes/no that may come from the command line as a string; a typo is refused, never read as 'on'."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise GauntletError(f"{name} is '{value}'; it takes true or false")
