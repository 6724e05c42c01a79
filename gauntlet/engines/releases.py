"""Which release of an engine a build is, and how releases compare."""

import re

from gauntlet.errors import GauntletError


def parse(release: str) -> tuple[int, int, int]:
    """'0.5.12.post1' or 'sglang-0.5.23' -> (0, 5, 12): posts of a release share its arguments and formulas."""
    match = re.search(r"(?:^|[-v])(\d+)\.(\d+)\.(\d+)", str(release))
    if not match:
        raise GauntletError(
            f"'{release}' does not say which release it is (wanted: 0.5.23, or a build like sglang-0.5.23)"
        )
    return int(match[1]), int(match[2]), int(match[3])
