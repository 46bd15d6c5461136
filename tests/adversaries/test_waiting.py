"""How many jobs the record takes: as the walks have it, as the first half foretells, and by single jobs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deploy.zoo.waiting import by_single_jobs, measured, predicted
from validator.records.record import Ratios

BOUND = 28.7


def jobs(values: list[float]) -> list[Ratios]:
    return [Ratios(value, -1.0, -1.0) for value in values]


def test_even_evidence_takes_as_many_jobs_as_it_says() -> None:
    assert measured(jobs([5.0] * 20), BOUND) == math.ceil(BOUND / 5)
    assert predicted(jobs([5.0] * 20), BOUND) == pytest.approx(BOUND / 5)


def test_honest_evidence_never_gets_there() -> None:
    assert measured(jobs([-0.1] * 200), BOUND) is None
    assert predicted(jobs([-0.1] * 200), BOUND) is None
    assert measured([], BOUND) is None


def test_rare_flips_are_foretold_within_a_third() -> None:
    chance = np.random.default_rng(3)
    values = (4.6 * chance.poisson(0.4, 4000) - 0.05).tolist()
    foretold = predicted(jobs(values[:2000]), BOUND)
    found = measured(jobs(values[2000:]), BOUND)
    assert foretold is not None
    assert found is not None
    assert abs(found - foretold) <= 0.3 * foretold


def test_another_test_than_the_choices_may_be_first() -> None:
    upward = [Ratios(-0.1, 2.0, -6.0)] * 30
    assert measured(upward, BOUND) == 15
    assert predicted(upward, BOUND) == pytest.approx(BOUND / 2)


@pytest.mark.parametrize(("caught", "of", "expected"), [(0, 300, None), (300, 300, 1), (150, 300, 7), (3, 300, 459)])
def test_single_jobs_need_the_logarithm_of_what_slips_through(caught: int, of: int, expected: int | None) -> None:
    assert by_single_jobs(caught, of) == expected
