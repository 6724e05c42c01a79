"""Intervals decide what may be said: they are judged against truths that were put in, and against printed tables."""

import math

import numpy as np
import pytest

from analysis import statistics
from analysis.statistics import Sums, benjamini_hochberg, compare, crossing, fisher, satterthwaite, t_quantile, t_tail


def sums(seconds, name, tokens=128.0):
    """Starts × prompts, the same tokens everywhere."""
    return Sums(np.full_like(seconds, tokens), seconds, name)


def pair(random, starts=3, prompts=8, truth=1.0, start=0.01, prompt=0.03, request=0.01, noisier=1.0):
    """A method `truth` times as fast as its baseline, and the baseline; log-normal noise at every level."""
    length = np.exp(random.normal(0, 0.5, prompts))

    def side(speed, deviation):
        noise = random.normal(0, deviation, (starts, 1)) + random.normal(0, request, (starts, prompts))
        return length * np.exp(noise) / speed

    method = side(truth * np.exp(random.normal(0, prompt, prompts)), start * noisier)
    return sums(method, f"m{random.random()}"), sums(side(1.0, start), f"b{random.random()}")


@pytest.mark.parametrize(
    ("freedom", "probability", "quantile"),
    [(1, 0.975, 12.706), (2, 0.975, 4.303), (4, 0.975, 2.776), (10, 0.995, 3.169), (math.inf, 0.975, 1.960)],
)
def test_t_quantiles_are_those_of_the_printed_tables(freedom, probability, quantile):
    """They widen every interval, so they are checked against the tables that everyone has."""
    assert t_quantile(probability, freedom) == pytest.approx(quantile, abs=0.001)
    assert t_tail(quantile, freedom) == pytest.approx(1 - probability, abs=2e-5)


def test_degrees_of_freedom_lie_between_the_smallest_part_and_the_sum():
    """Welch and Satterthwaite: equal variances add up, one large variance rules alone."""
    assert satterthwaite((1.0, 2), (1.0, 2)) == pytest.approx(4)
    assert satterthwaite((1.0, 2), (1e-9, 50)) == pytest.approx(2, rel=1e-3)
    assert satterthwaite() == math.inf


@pytest.mark.parametrize(
    "noise", [{}, {"noisier": 5.0}, {"prompt": 0.0}, {"start": 0.001}, {"prompts": 1, "prompt": 0.0}]
)
@pytest.mark.parametrize("truth", [1.0, 1.4])
def test_the_truth_is_inside_the_interval_as_often_as_it_says(truth, noise):
    """95 % intervals from three starts: the truth may be missed in about one of twenty, whichever noise is largest."""
    random = np.random.default_rng(7)
    found = [compare(*pair(random, truth=truth, **noise)) for _ in range(300)]
    missed = sum(not one.low <= truth <= one.high for one in found)
    assert missed <= 300 * 0.05 + 3 * math.sqrt(300 * 0.05 * 0.95)
    assert all(one.low <= one.value <= one.high for one in found)


def test_a_method_that_is_the_baseline_has_one_inside_its_interval():
    """A/A over seeds: what is the same must not look faster, at the rate that the interval promises."""
    random = np.random.default_rng(1)
    found = [compare(*pair(random, prompt=0.0)) for _ in range(200)]
    assert sum(one.excludes_one for one in found) <= 16


def test_few_repeats_give_a_value_and_no_interval():
    """The spread between two starts is a guess, and a guess is no interval."""
    one = compare(*pair(np.random.default_rng(0), starts=2, truth=2.0))
    assert one.value == pytest.approx(2.0, rel=0.1)
    assert not one.has_interval
    assert not one.excludes_one
    assert one.reason == "2 repeats: no interval from fewer than 3"


def test_the_same_data_give_the_same_interval():
    """Seeded draws: a report over the same results is the same report."""
    method, baseline = pair(np.random.default_rng(3))
    again = Sums(method.over, method.under, method.name), Sums(baseline.over, baseline.under, baseline.name)
    assert compare(method, baseline) == compare(*again)


def test_nothing_measured_is_not_zero():
    """An engine that tells no steps has no acceptance length, not one of zero."""
    empty = Sums(np.zeros((3, 4)), np.zeros((3, 4)))
    assert math.isnan(statistics.alone(empty).value)
    assert statistics.alone(empty).reason == "not measured"


def test_claims_are_judged_together():
    """One p of 0.04 among twenty is chance; many small ones carry each other."""
    assert benjamini_hochberg([0.04] + [0.5] * 19) == [False] * 20
    assert benjamini_hochberg([0.001, 0.9, 0.02, 0.012]) == [True, False, True, True]
    assert benjamini_hochberg([]) == []


def test_fishers_exact_test_on_a_known_table():
    """Tea tasting: 3 of 4 against 1 of 4 has a one-sided p of 17/70."""
    assert fisher(3, 4, 1, 4) == pytest.approx(17 / 70)
    assert fisher(0, 10, 0, 10) == 1


def test_break_even_lies_between_the_points_that_hold_it():
    """1.6 at C=1, 1.2 at 4, 0.8 at 16: straight in the logarithms, the crossing is at 4·4^(log 1.2 / log 1.5)."""
    random = np.random.default_rng(5)
    pairs = [pair(random, truth=truth, prompt=0.0, start=0.002, request=0.001) for truth in (1.6, 1.2, 0.8)]
    found = crossing([1.0, 4.0, 16.0], pairs)
    wanted = 4 * 4 ** (math.log(1.2) / math.log(1.5))
    assert found.low < found.value < found.high
    assert found.value == pytest.approx(wanted, rel=0.05)


def test_drift_is_measured_against_the_spread_between_starts():
    """A closing run 10 % slower than three equal ones is drift; one within their spread is not."""
    old = [math.log(speed) for speed in (100.0, 100.5, 99.5)]
    assert statistics.new_against_old([math.log(90.0)], old).excludes_one
    assert not statistics.new_against_old([math.log(101.0)], old).excludes_one
    assert statistics.new_against_old([0.0], old[:2]).reason
