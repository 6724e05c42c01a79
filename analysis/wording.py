"""How figures are written, the same everywhere."""

import math

from analysis.statistics import Estimate

NONE = "–"


def number(value: float | None, digits: int = 3) -> str:
    """`digits` significant figures, '–' when it was not measured."""
    if value is None or math.isnan(value):
        return NONE
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def decimals(estimate: Estimate) -> int:
    """Two, or as many as it takes to tell the ends of a narrow interval apart."""
    width = estimate.high - estimate.low
    return 3 if 0.002 <= width < 0.02 else 4 if 0 < width < 0.002 else 2


def ratio(estimate: Estimate, sign: str = "") -> str:
    """'1.42 [1.38, 1.47]', the value alone where there is no interval; `sign` stands behind the value."""
    if math.isnan(estimate.value):
        return NONE
    places = decimals(estimate)
    value = f"{estimate.value:.{places}f}{sign}"
    return f"{value} [{estimate.low:.{places}f}, {estimate.high:.{places}f}]" if estimate.has_interval else value


def times(estimate: Estimate) -> str:
    """'1.42× [1.38, 1.47]', with the reason where there is no interval."""
    return ratio(estimate, "×") + (f" ({estimate.reason})" if estimate.reason else "")


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names) -> str:
    """'a', 'a and b', 'a, b and c'."""
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def listed_plainly(values) -> str:
    """Texts of one table cell."""
    return "; ".join(map(str, values)) or NONE


def interval(estimate: Estimate, digits: int = 3) -> str:
    """'162 [158, 166]' in significant figures."""
    if math.isnan(estimate.value) or not estimate.has_interval:
        return number(estimate.value, digits)
    return f"{number(estimate.value, digits)} [{number(estimate.low, digits)}, {number(estimate.high, digits)}]"
