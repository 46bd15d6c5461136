"""Estimate of a provider's earnings, from what was measured here and what the last rounds show. PURE.

    credits a round = jobs × units a job × price × accepted share
    jobs a round    = what a node of this capacity was listed with, at most what this machine makes in a work phase, or
                      in the time between two openings if that is shorter: rounds overlap, the machine is one

The interval is that of the next ``AHEAD`` rounds' mean: two standard errors of jobs, acceptance and time between rounds
together, over the rounds looked at and those to come, and the spread of the measured speed where that is the limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

HOUR_SECONDS = 3600.0
AHEAD = 40
"""Rounds to come for whose mean the interval is stated: by chance it differs from that of all rounds."""
STRETCHES = 4
"""Parts of the rounds looked at, by whose lengths the pace is judged."""
LEAST_WIDTH = 0.05
"""Half the interval's least width: rounds to come differ from those that were by more than chance."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed of this machine: output tokens a second, jobs a second, and units of a job, over ``batches`` batches.

    ``spread`` is the standard error of the speed, as a share of it.
    """

    tokens_per_second: float
    jobs_per_second: float
    units_per_job: float
    batches: int
    spread: float


@dataclass(frozen=True, slots=True)
class SeenRound:
    """An ended round: the ``jobs`` that fell or would have fallen to this node, and when it was opened (unix seconds).

    ``accepted`` of the ``counted`` jobs is the acceptance: of those that a node of its own was listed with; for a
    newcomer, of those that the round's nodes submitted.
    """

    jobs: float
    counted: int
    accepted: int
    opened_at: int


@dataclass(frozen=True, slots=True)
class Electricity:
    """Electricity: ``watts`` of the machine at work, and the price of a kWh in wei; 0 leaves it out."""

    watts: float = 0.0
    kwh_wei: int = 0

    @property
    def per_hour_wei(self) -> float:
        """Price of an hour, in wei."""
        return self.watts / 1000 * self.kwh_wei


@dataclass(frozen=True, slots=True)
class Estimate:
    """Earnings an hour in wei, electricity taken off: expected, and the ends of an interval; and how it was made."""

    low_wei: int
    expected_wei: int
    high_wei: int
    per_round_wei: int
    rounds_per_hour: float
    jobs_per_round: float
    acceptance: float
    limited_by_speed: bool
    electricity_wei: int


def estimate(
    speed: Speed,
    rounds: Sequence[SeenRound],
    price_wei: int,
    max_units: int,
    work_seconds: int,
    costs: Electricity,
) -> Estimate:
    """Returns the estimate.

    Args:
        speed: this machine's.
        rounds: rounds of the run that have ended, oldest first; at least two.
        price_wei: price of a unit.
        max_units: most units that a job is paid for.
        work_seconds: length of a work phase.
        costs: of electricity.
    """
    shares = [each.jobs for each in rounds]
    hourly = rounds_per_hour(rounds)
    most = speed.jobs_per_second * min(work_seconds, HOUR_SECONDS / hourly)
    jobs, jobs_error = mean_and_error([min(share, most) for share in shares])
    counted, accepted = sum(each.counted for each in rounds), sum(each.accepted for each in rounds)
    acceptance = accepted / counted if counted else 0.0
    error = math.sqrt(acceptance * (1 - acceptance) / counted) if counted else 0.0
    per_round = jobs * min(speed.units_per_job, max_units) * price_wei * acceptance
    limited = most < max(shares, default=0.0)
    ahead = math.sqrt(1 + len(rounds) / AHEAD)  # both means vary, the one of fewer rounds more
    relative = [jobs_error * ahead / jobs if jobs else 0.0, error * ahead / acceptance if acceptance else 0.0]
    pace, pace_error = mean_and_error(_stretches(rounds))
    relative.append(pace_error * ahead / max(pace, 1))
    relative += [speed.spread] if limited else []
    half = max(LEAST_WIDTH, 2 * math.hypot(*relative))
    electricity, earned = costs.per_hour_wei, per_round * hourly
    low, expected, high = (round(earned * factor - electricity) for factor in (1 - half, 1.0, 1 + half))
    return Estimate(low, expected, high, round(per_round), hourly, jobs, acceptance, limited, round(electricity))


def _stretches(rounds: Sequence[SeenRound]) -> list[float]:
    """Returns the seconds of ``STRETCHES`` or more stretches of as many rounds each: single rounds come in bursts."""
    width = max(1, (len(rounds) - 1) // STRETCHES)
    starts = range(0, len(rounds) - width, width)
    return [rounds[start + width].opened_at - rounds[start].opened_at for start in starts]


def rounds_per_hour(rounds: Sequence[SeenRound]) -> float:
    """Returns how many rounds an hour were opened, from the first to the last of ``rounds``."""
    seconds = rounds[-1].opened_at - rounds[0].opened_at
    return (len(rounds) - 1) / max(seconds, 1) * HOUR_SECONDS


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean of ``values`` and its standard error; 0, 0 of none."""
    if not values:
        return 0.0, 0.0
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def share_of(jobs: int, capacity: int, others: int) -> float:
    """Returns the jobs of a round that fall to a node of ``capacity`` among ``others`` (the sum of theirs)."""
    return min(capacity, jobs * capacity / (capacity + others))
