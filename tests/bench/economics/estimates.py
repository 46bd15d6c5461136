"""Means of what rounds left, with their intervals: rounds of one history are not independent, histories are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

from tests.bench.economics.histories import Played

NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, and half of the width of its 95% interval."""

    mean: float
    half: float

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.mean - other.mean, sqrt(self.half**2 + other.half**2))


def estimate(
    rounds: Sequence[Played], amount: Callable[[Played], float], weight: Callable[[Played], float] = lambda _: 1.0
) -> Estimate:
    """Returns the mean of an amount per weight (by default a round), clustered by history."""
    clusters = defaultdict[int, list[float]](lambda: [0.0, 0.0])
    for each in rounds:
        clusters[each.seed][0] += amount(each)
        clusters[each.seed][1] += weight(each)
    total = sum(weights for _, weights in clusters.values())
    if not total:
        return Estimate(0.0, 0.0)
    mean = sum(amounts for amounts, _ in clusters.values()) / total
    if len(clusters) < 2:
        return Estimate(mean, float("inf"))
    squares = sum((amounts - mean * weights) ** 2 for amounts, weights in clusters.values())
    return Estimate(mean, NORMAL_95 * sqrt(squares * len(clusters) / (len(clusters) - 1)) / total)
