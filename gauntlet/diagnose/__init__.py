"""What a server's journal says about why it does not serve: pattern -> cause -> remedy.

A diagnosis (catalog/diagnoses/*.yml):
    patterns   regular expressions, searched in the whole text with MULTILINE, so that they find their line behind any
               prefix (a journal's time in any language, a rank's tag)
    cause, remedy   sentences; '{group}' is what the pattern found, '[ {group}]' is left out when it found nothing
    rank       the lower, the nearer to the root (default 50)
    follower   true for what other failures bring about: dropped beside them
    look       what to look at on the host: 'fraction', 'gpu', 'port' or 'shm' (look.py)
"""

import re
from collections.abc import Iterable

from gauntlet.errors import GauntletError
from gauntlet.names import unknown

# healthy servers say these too
NOISE = re.compile(r"Ignore import error when loading")
KEYS = {"patterns", "cause", "remedy", "rank", "follower", "look", "name", "folders", "file"}
LOOKS = {"fraction", "gpu", "port", "shm"}
AT_MOST = 2


def find(lines: Iterable[str], diagnoses: dict[str, dict]) -> list[dict]:
    """[{name, cause, remedy, line, look, groups}] nearest the root first, two at most; empty when nothing is known."""
    text = "\n".join(line for line in lines if not NOISE.search(line))
    found = []
    for name, diagnosis in diagnoses.items():
        for pattern in _checked(diagnosis, name)["patterns"]:
            if match := compiled(pattern, name).search(text):
                found.append((diagnosis.get("rank", 50), match.start(), name, match))
                break
    roots = [one for one in found if not diagnoses[one[2]].get("follower")]
    return [_filled(diagnoses[name], name, match, text) for _, _, name, match in sorted(roots or found)[:AT_MOST]]


def compiled(pattern: str, where: str) -> re.Pattern:
    try:
        return re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise GauntletError(f"diagnosis {where}: '{pattern}' is not a regular expression: {error}") from None


def sentence(found: dict) -> str:
    """'cause. remedy.' as people read it."""
    return f"{found['cause']}. {found['remedy']}."


def fill(template: str, groups: dict[str, str | None]) -> str:
    """'{x}' filled, '[ … {x}]' left out when x was not found."""

    def optional(match: re.Match) -> str:
        names = re.findall(r"\{(\w+)\}", match[1])
        return match[1] if not names or all(groups.get(name) for name in names) else ""

    text = re.sub(r"\[([^\[\]]*\{\w+\}[^\[\]]*)\]", optional, template)
    return re.sub(r"\{(\w+)\}", lambda match: groups.get(match[1]) or "?", text).strip().rstrip(".")


def _checked(diagnosis: dict, name: str) -> dict:
    for key in diagnosis:
        if key not in KEYS:
            raise GauntletError(f"diagnosis {name}: {unknown('key', key, KEYS)}")
    for key in ("patterns", "cause", "remedy"):
        if not diagnosis.get(key):
            raise GauntletError(f"diagnosis {name} lacks '{key}'")
    if diagnosis.get("look") not in LOOKS | {None}:
        raise GauntletError(f"diagnosis {name}: {unknown('look', diagnosis['look'], LOOKS)}")
    return diagnosis


def _filled(diagnosis: dict, name: str, match: re.Match, text: str) -> dict:
    start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
    return {
        "name": name,
        "cause": fill(diagnosis["cause"], match.groupdict()),
        "remedy": fill(diagnosis["remedy"], match.groupdict()),
        "line": text[start : end if end >= 0 else None][:300],
        "look": diagnosis.get("look"),
        "groups": match.groupdict(),
    }
