"""Intervals for ratios of sums over prompts and server starts, and which of many claims may be made.

Speeds are compared as log ratios. An interval is a percentile bootstrap over prompts (paired: the same draw for both
sides) and over server starts (independent for each side). Two corrections make it honest for the handful of starts that
a campaign can afford: n - 1 of n are drawn (Rao & Wu 1988: the variance is unbiased), and the percentiles are expanded
about the estimate by t/z (Hesterberg 2015, "What Teachers Should Know About the Bootstrap"), with Welch-Satterthwaite
degrees of freedom over the two sources of variance.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

SEED = 20261129
DRAWS = 2000
LEVEL = 0.95
MIN_STARTS = 3  # fewer server starts than this and the variance between them is a guess


@dataclass(frozen=True)
class Sums:
    """A numerator and a denominator summed by server start (rows) and prompt (columns), e.g. tokens and seconds."""

    over: np.ndarray
    under: np.ndarray

    @property
    def ratio(self) -> float:
        """Ratio of sums, NaN when nothing was measured."""
        under = self.under.sum()
        return float(self.over.sum() / under) if under > 0 else math.nan

    def drawn(self, starts: np.ndarray | None, prompts: np.ndarray | None) -> np.ndarray:
        """The ratio under every draw of weights, shape (DRAWS,); None leaves that side as measured."""
        return self._weighted(self.over, starts, prompts) / self._weighted(self.under, starts, prompts)

    @staticmethod
    def _weighted(values: np.ndarray, starts: np.ndarray | None, prompts: np.ndarray | None) -> np.ndarray:
        by_prompt = values.sum(axis=0)[None, :] if starts is None else starts @ values
        return by_prompt.sum(axis=1) if prompts is None else (by_prompt * prompts).sum(axis=1)


@dataclass(frozen=True)
class Estimate:
    """A ratio with its 95 % interval; `low` and `high` are NaN when `reason` says why there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan  # two-sided, against a ratio of 1
    starts: tuple[int, int] = (0, 0)
    prompts: int = 0
    reason: str = ""

    @property
    def has_interval(self) -> bool:
        return not math.isnan(self.low)

    @property
    def excludes_one(self) -> bool:
        return self.has_interval and not self.low <= 1 <= self.high


def speedup(method: Sums, baseline: Sums) -> Estimate:
    """method.ratio / baseline.ratio; both have the same prompts in their columns, each its own starts in its rows."""
    value = method.ratio / baseline.ratio if baseline.ratio > 0 else math.nan
    starts, prompts = (len(method.over), len(baseline.over)), method.over.shape[1]
    if not value > 0:
        return Estimate(math.nan, starts=starts, prompts=prompts, reason="nothing measured on the same prompts")
    if min(starts) < MIN_STARTS:
        few = f"{min(starts)} repeat{'s' if min(starts) != 1 else ''}: no interval from fewer than {MIN_STARTS}"
        return Estimate(value, starts=starts, prompts=prompts, reason=few)
    by_method, by_baseline = _weights(starts[0], "method"), _weights(starts[1], "baseline")
    by_prompt = _weights(prompts, "prompts")
    with np.errstate(divide="ignore", invalid="ignore"):
        both = np.log(method.drawn(by_method, by_prompt) / baseline.drawn(by_baseline, by_prompt))
        of_prompts = np.log(method.drawn(None, by_prompt) / baseline.drawn(None, by_prompt)).var()
        of_starts = np.log(method.drawn(by_method, None) / baseline.drawn(by_baseline, None)).var()
    freedom = satterthwaite((of_prompts, prompts - 1), (of_starts, sum(starts) - 2))
    return _estimate(value, both, freedom, starts, prompts)


def ratio(sums: Sums) -> Estimate:
    """One cell's own ratio (acceptance length, tokens/s) with its interval; `p` is against 1."""
    starts, prompts = sums.over.shape
    if not sums.ratio > 0:
        return Estimate(math.nan, starts=(starts, 0), prompts=prompts, reason="not measured")
    if starts < MIN_STARTS:
        few = f"{starts} repeat{'s' if starts != 1 else ''}: no interval from fewer than {MIN_STARTS}"
        return Estimate(sums.ratio, starts=(starts, 0), prompts=prompts, reason=few)
    by_start, by_prompt = _weights(starts, "method"), _weights(prompts, "prompts")
    with np.errstate(divide="ignore", invalid="ignore"):
        both = np.log(sums.drawn(by_start, by_prompt))
        parts = np.log(sums.drawn(None, by_prompt)).var(), np.log(sums.drawn(by_start, None)).var()
    freedom = satterthwaite((parts[0], prompts - 1), (parts[1], starts - 1))
    return _estimate(sums.ratio, both, freedom, (starts, 0), prompts)


def _estimate(value: float, drawn: np.ndarray, freedom: float, starts: tuple[int, int], prompts: int) -> Estimate:
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) < DRAWS / 2:
        return Estimate(value, starts=starts, prompts=prompts, reason="too few requests for an interval")
    log, tail = math.log(value), (1 - LEVEL) / 2
    expand = t_quantile(1 - tail, freedom) / t_quantile(1 - tail, math.inf)
    low, high = np.quantile(drawn, [tail, 1 - tail])
    error = float(drawn.std())
    t = abs(log) / error if error > 0 else (0.0 if abs(log) < 1e-12 else math.inf)
    return Estimate(
        value,
        math.exp(log - expand * max(log - low, 0.0)),
        math.exp(log + expand * max(high - log, 0.0)),
        2 * (1 - t_cdf(t, freedom)),
        starts,
        prompts,
    )


@lru_cache(maxsize=256)
def _weights(count: int, stream: str) -> np.ndarray:
    """Seeded draws of count - 1 from count, shape (DRAWS, count): the same whatever else is in the results."""
    if count == 1:
        return np.ones((DRAWS, 1))
    random = np.random.default_rng([SEED, count, *stream.encode()])
    return random.multinomial(count - 1, np.full(count, 1 / count), size=DRAWS).astype(float)


def benjamini_hochberg(p: list[float], q: float = 1 - LEVEL) -> list[bool]:
    """Which of all p values may be claimed with a false discovery rate of q (Benjamini & Hochberg 1995).

    When nothing at all is true, the chance of any claim is at most q, however many are tested.
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    passed = max((rank for rank, i in enumerate(order, 1) if p[i] <= q * rank / len(p)), default=0)
    chosen = set(order[:passed])
    return [i in chosen for i in range(len(p))]


def satterthwaite(*parts: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of variances, each given with its own: Σv² / Σ(v²/df)."""
    parts = [(variance, freedom) for variance, freedom in parts if freedom > 0 and variance > 0]
    if not parts:
        return math.inf
    return sum(v for v, _ in parts) ** 2 / sum(v**2 / freedom for v, freedom in parts)


def t_cdf(t: float, freedom: float) -> float:
    """Student's t distribution function (normal for infinite degrees of freedom)."""
    if math.isinf(t):
        return 1.0 if t > 0 else 0.0
    if math.isinf(freedom):
        return 0.5 * math.erfc(-t / math.sqrt(2))
    tail = 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return 1 - tail if t > 0 else tail


@lru_cache(maxsize=4096)
def t_quantile(probability: float, freedom: float) -> float:
    """The inverse of `t_cdf` by bisection."""
    low, high = -1e6, 1e6
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, freedom) < probability else (low, middle)
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
