"""What a server's journal says about why it does not serve: pattern -> cause -> remedy.

A diagnosis (catalog/diagnoses/*.yml): {name, patterns: [regex], cause, remedy, rank (default 50), follower (default
false)}. Patterns are searched in the whole text with MULTILINE, so they find their line behind any prefix (a journal's
time in any language, a rank's tag). `cause` and `remedy` may name the pattern's groups: '{package}'.
The lower the rank the nearer the root; a follower is what other failures bring about, and is dropped beside them.
"""

import re
from collections.abc import Iterable

from gauntlet.errors import GauntletError

# healthy servers say these too
NOISE = re.compile(r"Ignore import error when loading")


def find(lines: Iterable[str], diagnoses: dict[str, dict]) -> list[dict]:
    """[{name, cause, remedy, line}] nearest the root first; empty when nothing is known."""
    text = "\n".join(line for line in lines if not NOISE.search(line))
    found = []
    for name, diagnosis in diagnoses.items():
        for pattern in diagnosis["patterns"]:
            if match := compiled(pattern, name).search(text):
                found.append((diagnosis.get("rank", 50), match.start(), name, match))
                break
    roots = [one for one in found if not diagnoses[one[2]].get("follower")]
    return [_filled(diagnoses[name], name, match, text) for _, _, name, match in sorted(roots or found)[:2]]


def compiled(pattern: str, where: str) -> re.Pattern:
    try:
        return re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise GauntletError(f"diagnosis {where}: '{pattern}' is not a regular expression: {error}") from None


def sentence(found: dict) -> str:
    """'cause; remedy' as people read it."""
    return f"{found['cause']}. {found['remedy']}."


def _filled(diagnosis: dict, name: str, match: re.Match, text: str) -> dict:
    words = {key: value or "?" for key, value in match.groupdict().items()}
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return {
        "name": name,
        "cause": diagnosis["cause"].format(**words).strip().rstrip("."),
        "remedy": diagnosis["remedy"].format(**words).strip().rstrip("."),
        "line": text[start : end if end >= 0 else None][:300],
    }
