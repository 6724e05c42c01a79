"""Intervals for ratios of sums over prompts and server starts, and which of many claims may be made.

Speeds are compared as log ratios. An interval is a percentile bootstrap over prompts (paired: the same draw for both
sides) and over server starts (independent for each side). Two corrections make it honest for the handful of starts that
a campaign can afford: n - 1 of n are drawn (Rao & Wu 1988: the variance is unbiased), and the percentiles are expanded
about the estimate by t/z (Hesterberg 2015, "What Teachers Should Know About the Bootstrap"), with Welch-Satterthwaite
degrees of freedom over the sources of variance.
"""

import math
import zlib
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

SEED = 20261129
DRAWS = 2000
LEVEL = 0.95
MIN_STARTS = 3  # fewer server starts than this and the variance between them is a guess
MIN_PROMPTS = 4  # fewer prompts than this are not resampled: the interval then speaks of these prompts alone


@dataclass(frozen=True)
class Sums:
    """A numerator and a denominator summed by server start (rows) and prompt (columns), e.g. tokens and seconds.

    `name` seeds the draws of starts: equal for the same cell in every comparison, different for different cells.
    """

    over: np.ndarray
    under: np.ndarray
    name: str = ""

    @property
    def starts(self) -> int:
        return self.over.shape[0]

    @property
    def prompts(self) -> int:
        return self.over.shape[1]

    @cached_property
    def ratio(self) -> float:
        """Ratio of sums, NaN when nothing was measured."""
        under = self.under.sum()
        return float(self.over.sum() / under) if under > 0 else math.nan

    @cached_property
    def by_both(self) -> np.ndarray:
        """Log ratio under every draw of starts and prompts, shape (DRAWS,)."""
        return self._log(self._start_weights, self._prompt_weights)

    @cached_property
    def by_prompt(self) -> np.ndarray:
        return self._log(None, self._prompt_weights)

    @cached_property
    def by_start(self) -> np.ndarray:
        return self._log(self._start_weights, None)

    @property
    def _start_weights(self) -> np.ndarray:
        return _weights(self.starts, f"starts of {self.name}")

    @property
    def _prompt_weights(self) -> np.ndarray | None:
        return _weights(self.prompts, "prompts") if self.prompts >= MIN_PROMPTS else None

    def _log(self, starts: np.ndarray | None, prompts: np.ndarray | None) -> np.ndarray:
        sums = []
        for values in (self.over, self.under):
            by_prompt = values.sum(axis=0)[None, :] if starts is None else starts @ values
            sums.append(by_prompt.sum(axis=1) if prompts is None else (by_prompt * prompts).sum(axis=1))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(sums[0] / sums[1])


@dataclass(frozen=True)
class Estimate:
    """A ratio with its 95 % interval; `low` and `high` are NaN when `reason` says why there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan  # two-sided, against a ratio of 1
    starts: tuple[int, ...] = ()
    prompts: int = 0
    reason: str = ""

    @property
    def has_interval(self) -> bool:
        return not math.isnan(self.low)

    @property
    def excludes_one(self) -> bool:
        return self.has_interval and not self.low <= 1 <= self.high


def alone(sums: Sums) -> Estimate:
    """One cell's own ratio (tokens/s, acceptance length) with its interval."""
    return _estimate(sums.ratio, [sums], sums.by_both, sums.by_prompt)


def compare(ours: Sums, theirs: Sums, paired: bool = True) -> Estimate:
    """ours.ratio / theirs.ratio. Paired: both have the same prompts in their columns, each its own starts in its rows.

    Not paired (two workloads, say): the prompts of one say nothing about those of the other.
    """
    value = ours.ratio / theirs.ratio if theirs.ratio > 0 else math.nan
    if ours.name == theirs.name:  # the same cell of two campaigns: other starts, so other draws
        theirs = replace(theirs, name=f"{theirs.name} again")
    if paired:
        return _estimate(value, [ours, theirs], ours.by_both - theirs.by_both, ours.by_prompt - theirs.by_prompt)
    shuffle = np.random.default_rng(SEED).permutation(DRAWS)
    return _estimate(value, [ours, theirs], ours.by_both - theirs.by_both[shuffle], ours.by_prompt, theirs.by_prompt)


def new_against_old(new: list[float], old: list[float]) -> Estimate:
    """exp(mean(new) - mean(old)) of log speeds, one a start, with the spread between the old ones (Student's t)."""
    starts = (len(new), len(old))
    if not new or not old:
        return Estimate(math.nan, starts=starts, reason="not measured")
    change = float(np.mean(new) - np.mean(old))
    if len(old) < MIN_STARTS:
        few = f"{len(old)} repeat{'s' if len(old) != 1 else ''}: no interval from fewer than {MIN_STARTS}"
        return Estimate(math.exp(change), starts=starts, reason=few)
    freedom = len(old) - 1
    error = float(np.std(old, ddof=1)) * math.sqrt(1 / len(new) + 1 / len(old))
    reach = t_quantile((1 + LEVEL) / 2, freedom) * error
    p = 2 * t_tail(abs(change) / error, freedom) if error > 0 else float(change == 0)
    return Estimate(math.exp(change), math.exp(change - reach), math.exp(change + reach), p, starts)


def _estimate(value: float, sides: list[Sums], drawn: np.ndarray, *by_prompt: np.ndarray) -> Estimate:
    starts, prompts = tuple(side.starts for side in sides), min(side.prompts for side in sides)
    if not value > 0:
        return Estimate(math.nan, starts=starts, prompts=prompts, reason="not measured")
    if min(starts) < MIN_STARTS:
        few = f"{min(starts)} repeat{'s' if min(starts) != 1 else ''}: no interval from fewer than {MIN_STARTS}"
        return Estimate(value, starts=starts, prompts=prompts, reason=few)
    if not np.isfinite(drawn).all():
        return Estimate(value, starts=starts, prompts=prompts, reason="too few requests for an interval")
    log, tail = math.log(value), (1 - LEVEL) / 2
    freedom = _freedom(sides, by_prompt)
    low, high = np.quantile(_expanded(log, drawn, freedom), [tail, 1 - tail])
    error = float(drawn.std())
    t = abs(log) / error if error > 1e-12 else (0.0 if abs(log) < 1e-9 else math.inf)
    low, high = math.exp(min(low, log)), math.exp(max(high, log))
    return Estimate(value, low, high, 2 * t_tail(t, freedom), starts, prompts)


def _freedom(sides: list[Sums], by_prompt: tuple[np.ndarray, ...]) -> float:
    prompts = min(side.prompts for side in sides)
    return satterthwaite(
        *((float(one.var()), prompts - 1) for one in by_prompt),
        *((float(side.by_start.var()), side.starts - 1) for side in sides),
    )


def _expanded(log: float, drawn: np.ndarray, freedom: float) -> np.ndarray:
    """Draws moved away from the estimate by t/z, so that their percentiles are those of few degrees of freedom."""
    upper = (1 + LEVEL) / 2
    return log + (drawn - log) * t_quantile(upper, freedom) / t_quantile(upper, math.inf)


def crossing(at: list[float], pairs: list[tuple[Sums, Sums]]) -> Estimate:
    """Where ours/theirs falls through 1, `at` ascending (concurrencies), between points linear in the logs.

    The interval holds the crossings of every draw; one that never crosses counts as beyond the last point (inf), one
    that starts below 1 as before the first (0). `p` is NaN: the two ends must be tested by themselves.
    """
    logs = [math.log(ours.ratio / theirs.ratio) for ours, theirs in pairs]
    value = _falls_through(at, np.array([logs]))[0]
    starts = tuple(min(one.starts for one in side) for side in zip(*pairs, strict=True))
    if min(starts) < MIN_STARTS:
        return Estimate(float(value), starts=starts, reason=f"fewer than {MIN_STARTS} repeats: no interval")
    draws = [
        _expanded(log, ours.by_both - theirs.by_both, _freedom([ours, theirs], (ours.by_prompt - theirs.by_prompt,)))
        for log, (ours, theirs) in zip(logs, pairs, strict=True)
    ]
    found = np.sort(_falls_through(at, np.array(draws).T))
    tail = int(DRAWS * (1 - LEVEL) / 2)
    return Estimate(float(value), float(found[tail]), float(found[-tail - 1]), starts=starts)


def _falls_through(at: list[float], logs: np.ndarray) -> np.ndarray:
    """First crossing of 0 from above in each row of `logs`."""
    x = np.log(np.array(at, float))
    found = np.where(logs[:, 0] <= 0, 0.0, np.inf)
    for i in range(len(at) - 1):
        here, after = logs[:, i], logs[:, i + 1]
        falls = np.isinf(found) & (here > 0) & (after <= 0)
        share = np.divide(here, here - after, out=np.zeros_like(here), where=falls)
        found = np.where(falls, np.exp(x[i] + share * (x[i + 1] - x[i])), found)
    return found


@lru_cache(maxsize=4096)
def _weights(count: int, stream: str) -> np.ndarray:
    """Seeded draws of count - 1 from count, shape (DRAWS, count): the same whatever else is in the results."""
    if count == 1:
        return np.ones((DRAWS, 1))
    random = np.random.default_rng([SEED, count, zlib.crc32(stream.encode())])
    return random.multinomial(count - 1, np.full(count, 1 / count), size=DRAWS).astype(float)


def benjamini_hochberg(p: list[float], q: float = 1 - LEVEL) -> list[bool]:
    """Which of all p values may be claimed with a false discovery rate of q (Benjamini & Hochberg 1995).

    When nothing at all is true, the chance of any claim is at most q, however many are tested.
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    passed = max((rank for rank, i in enumerate(order, 1) if p[i] <= q * rank / len(p)), default=0)
    chosen = set(order[:passed])
    return [i in chosen for i in range(len(p))]


def fisher(ours: int, of_ours: int, theirs: int, of_theirs: int) -> float:
    """One-sided p that `ours` of `of_ours` is a larger share than `theirs` of `of_theirs` (Fisher's exact test)."""
    total, marked = of_ours + of_theirs, ours + theirs
    ways = math.comb(total, marked)
    return sum(
        math.comb(of_ours, k) * math.comb(of_theirs, marked - k) / ways for k in range(ours, min(of_ours, marked) + 1)
    )


def satterthwaite(*parts: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of variances, each given with its own: (Σv)² / Σ(v²/df)."""
    parts = [(variance, freedom) for variance, freedom in parts if freedom > 0 and variance > 1e-24]
    if not parts:
        return math.inf
    return sum(v for v, _ in parts) ** 2 / sum(v**2 / freedom for v, freedom in parts)


def t_tail(t: float, freedom: float) -> float:
    """Probability that Student's t exceeds t >= 0 (normal for infinite degrees of freedom)."""
    if math.isinf(t):
        return 0.0
    if math.isinf(freedom):
        return 0.5 * math.erfc(t / math.sqrt(2))
    return 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


@lru_cache(maxsize=4096)
def t_quantile(probability: float, freedom: float) -> float:
    """The t that is exceeded with 1 - probability, for a probability over one half, by bisection."""
    low, high = 0.0, 1e6
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, freedom) > 1 - probability else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function, continued fraction by Lentz (Numerical Recipes §6.4)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    value = d
    for m in range(1, 500):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * value
