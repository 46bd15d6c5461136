"""Jobs until a node's record condemns it: as its jobs had it, and as their first half foretells.

PURE. Axes: J jobs, W walks, E tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from validator.records.record import TESTS, Ratios

F64 = NDArray[np.float64]

SHARE = 0.99
DEVIATIONS = 2.3263
"""Standard deviations below the mean at which 99% of a normal distribution lie above."""
WALKS = 2000


def measured(jobs: Sequence[Ratios], bound: float, seed: int = 1) -> int | None:
    """Returns within how many jobs 99 of 100 walks reach ``bound``; None where that takes more jobs than there are.

    A walk takes these jobs in a random order, with replacement, through the test of ``validator.records.record``.
    """
    if not jobs:
        return None
    chance = np.random.default_rng(seed)
    ratios_JE = _columns(jobs)
    standing_WE, waiting_W = np.zeros((WALKS, len(TESTS))), np.ones(WALKS, dtype=bool)
    for job in range(1, len(jobs) + 1):
        standing_WE = np.maximum(0.0, standing_WE + ratios_JE[chance.integers(0, len(jobs), WALKS)])
        waiting_W &= (standing_WE < bound).all(axis=1)
        if waiting_W.mean() <= 1 - SHARE:
            return job
    return None


def predicted(jobs: Sequence[Ratios], bound: float) -> float | None:
    """Returns how many jobs of that mean and spread add up to ``bound`` in 99 cases of 100; None where they do not.

    n·mean - 2.33·sqrt(n)·deviation = bound, in the test that gets there first.
    """
    ratios_JE = _columns(jobs)
    found = []
    for mean, deviation in zip(ratios_JE.mean(0).tolist(), ratios_JE.std(0).tolist(), strict=True):
        if mean > 0:
            spread = DEVIATIONS * deviation
            root = (spread + math.sqrt(spread**2 + 4 * mean * bound)) / (2 * mean)
            found.append(root**2)
    return min(found, default=None)


def by_single_jobs(caught: int, jobs: int) -> int | None:
    """Returns how many jobs it takes until one is caught in 99 cases of 100."""
    if caught == 0:
        return None
    return 1 if caught == jobs else math.ceil(math.log(1 - SHARE) / math.log(1 - caught / jobs))


def _columns(jobs: Sequence[Ratios]) -> F64:
    return np.array([[getattr(ratios, test) for test in TESTS] for ratios in jobs])
