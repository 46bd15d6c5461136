"""Bounds hold as often as they say, on numbers drawn from known laws."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validator.calibration.intervals import beyond, interval, least, most, most_events
from validator.calibration.tails import F64, tail

RATE = 1e-7
Draw = Callable[[np.random.Generator, int], F64]
LAWS: dict[str, tuple[Draw, float]] = {
    "exponential": (lambda g, n: g.exponential(1.0, n), -math.log(RATE)),
    "normal": (lambda g, n: np.abs(g.normal(0.0, 1.0, n)), -NormalDist().inv_cdf(RATE / 2)),
    "pareto": (lambda g, n: np.expm1(-0.2 * np.log(g.random(n))) / 0.2, math.expm1(-0.2 * math.log(RATE)) / 0.2),
    "stretched": (lambda g, n: g.exponential(1.0, n) ** 1.4, (-math.log(RATE)) ** 1.4),
    "steps": (lambda g, n: np.ceil(g.exponential(1.0, n)), float(math.ceil(-math.log(RATE)))),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("units", [400, 5000])
def test_the_bound_of_a_tail_lies_beyond_the_true_quantile_19_times_of_20(law: str, units: int) -> None:
    draw, truth = LAWS[law]
    generator = np.random.default_rng(units)
    tails = [tail(draw(generator, units), RATE) for _ in range(20)]
    assert sum(one.bound >= truth for one in tails) >= 19
    assert all(one.bound >= one.estimate >= one.threshold for one in tails)
    assert all(one.exceedances >= 20 for one in tails)


def test_more_values_make_the_bound_tighter() -> None:
    generator = np.random.default_rng(1)
    few, many = (np.median([tail(generator.exponential(1.0, n), RATE).bound for _ in range(9)]) for n in (200, 8000))
    assert many < few
    assert many < 3 * -math.log(RATE)


@pytest.mark.parametrize("values", [np.zeros(500), np.full(500, 3.0), np.array([1.0, 2.0]), np.empty(0)])
def test_a_tail_of_too_few_or_equal_values_is_not_relied_on_unless_it_is_a_lump(values: F64) -> None:
    found = tail(values, RATE)
    assert found.largest == (values.max() if len(values) else 0.0)
    assert found.bound >= found.largest
    if not values.any() or len(values) < 20:
        assert not found.reliable


def test_a_tail_without_a_mean_is_not_relied_on() -> None:
    generator = np.random.default_rng(2)
    assert not tail(generator.random(20_000) ** -1.2, RATE).reliable


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 400), st.floats(0.001, 0.5))
def test_clopper_and_pearson_bounds_are_where_the_binomial_law_says(of: int, share: float) -> None:
    seen = int(share * of)
    high = most(seen, of)
    terms = [math.comb(of, k) * high**k * (1 - high) ** (of - k) for k in range(seen + 1)]
    assert math.isclose(math.fsum(terms), 0.05, rel_tol=1e-6) or seen == of
    assert least(seen, of) <= seen / of <= high


def test_none_of_n_is_at_most_three_in_n() -> None:
    assert most(0, 1000) == pytest.approx(1 - 0.05 ** (1 / 1000))
    assert interval(0, 1000)[0] == 0.0
    assert interval(1000, 1000)[1] == 1.0


def test_the_interval_covers_the_true_share_19_times_of_20() -> None:
    generator = np.random.default_rng(3)
    within = 0
    for seen in generator.binomial(300, 0.02, 200).tolist():
        low, high = interval(seen, 300)
        within += low <= 0.02 <= high
    assert within >= 185


@pytest.mark.parametrize("seen", [0, 1, 5, 40])
def test_events_bound_a_poisson_law_as_exactly(seen: int) -> None:
    mean = most_events(seen)
    law = [math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(seen + 1)]
    assert math.fsum(law) == pytest.approx(0.05)
    assert beyond(seen, mean) == pytest.approx(0.95)
    assert beyond(3, 0.0) == 0.0
