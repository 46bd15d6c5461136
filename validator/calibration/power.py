"""Power of the rules: the cheating they tolerate, and how soon they detect more. PURE.

Axes: S sampled tokens.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from protocol.wire.reasons import Reason
from protocol.wire.rules import Rules
from validator.calibration.intervals import interval
from validator.calibration.measuring import MeasuredJob
from validator.calibration.noise import evidence_of
from validator.judging.registry import CHECKS
from validator.judging.statistics import log_likelihood_ratios
from validator.judging.verdict import reason_of

SURE = math.log(100.0)
"""Expected number of events with which at least one happens with probability 99%."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Verdicts of the validator's checks on honest jobs; ``void_interval`` is Clopper and Pearson's, 95%."""

    jobs: int
    rollouts: int
    tokens: int
    fraud: int
    void: int
    void_rate: float
    void_interval: tuple[float, float]
    reasons: dict[str, int]


@dataclass(frozen=True, slots=True)
class SteeringBudget:
    """Choices per 1,000 that a worker may change unnoticed.

    within_void      choices whose runner-up is within the bound on void
    within_sequence  the nearest of those, as many as leave the mean evidence of a job at 0 or below
    """

    within_void: float
    within_sequence: float


@dataclass(frozen=True, slots=True)
class Power:
    """One maker's jobs under the rules.

    flips_per_1000, upwards     tokens off the seeded choice, and the share of them that are likelier than it
    rate                        share of tokens that each void a job
    tokens_to_99                ln 100 / rate; None if the rate is 0
    jobs_to_99                  bound of the sequential test over the mean evidence of a job; None if that is negative
    condemned                   share of jobs that are void or fraud
    entropy, total_variation    nats per token, and mean distance of the maker's distribution from the policy's, by the
                                logprobs it reports
    """

    maker: str
    tokens: int
    flips_per_1000: float
    upwards: float
    rate: float
    tokens_to_99: float | None
    jobs_to_99: float | None
    condemned: float
    entropy: float
    total_variation: float


def verdicts(jobs: Sequence[MeasuredJob], rules: Rules) -> Verdicts:
    """Judges every job by the validator's checks."""
    found = Counter(reason for job in jobs if (reason := reason_under(job, rules)))
    reasons = {reason.name.lower(): count for reason, count in found.items()}
    fraud = sum(count for reason, count in found.items() if reason.fraud)
    void = found.total() - fraud
    rollouts, tokens = sum(len(job.lengths_N) for job in jobs), sum(len(job.margins_S) for job in jobs)
    return Verdicts(len(jobs), rollouts, tokens, fraud, void, void / len(jobs), interval(void, len(jobs)), reasons)


def reason_under(job: MeasuredJob, rules: Rules) -> Reason:
    """Returns the reason that the checks of measured numbers give; ``Reason.ACCEPTED`` if they find nothing."""
    return reason_of(
        [
            finding
            for check in CHECKS
            if check.compares is not None and check.applies(rules.thresholds)
            for finding in check.compares(job, rules.thresholds)
        ]
    )


def steering(jobs: Sequence[MeasuredJob], rules: Rules) -> SteeringBudget:
    """Returns the steering budget that the rules leave on honest jobs."""
    gaps_S = np.concatenate([job.gaps_S for job in jobs])
    order_S = np.argsort(gaps_S)
    gaps_S = gaps_S[order_S]
    near = gaps_S <= rules.thresholds.sampling_void
    still_S = log_likelihood_ratios(np.zeros_like(gaps_S), gaps_S, rules.sequential)
    taken_S = log_likelihood_ratios(np.maximum(gaps_S, np.finfo(np.float32).tiny), gaps_S, rules.sequential)
    gained_S = still_S.sum() + np.cumsum(taken_S - still_S)
    within = int((near & (gained_S <= 0)).sum())
    return SteeringBudget(1000 * float(near.mean()), 1000 * within / len(gaps_S))


def power(maker: str, jobs: Sequence[MeasuredJob], rules: Rules) -> Power:
    """Returns the power of the rules against one maker's jobs."""
    margins_S = np.concatenate([job.margins_S for job in jobs])
    leads_S = np.concatenate([job.leads_S for job in jobs])
    reported_S = np.concatenate([job.reported_S for job in jobs]).astype(np.float64)
    recomputed_S = np.concatenate([job.recomputed_S for job in jobs]).astype(np.float64)
    flips, rate = int((margins_S > 0).sum()), float((margins_S > rules.thresholds.sampling_void).mean())
    drift = float(evidence_of(jobs, rules.sequential).mean())
    return Power(
        maker=maker,
        tokens=len(margins_S),
        flips_per_1000=1000 * flips / len(margins_S),
        upwards=float((leads_S > 0).sum()) / flips if flips else 0.0,
        rate=rate,
        tokens_to_99=SURE / rate if rate else None,
        jobs_to_99=rules.sequential.bound / drift if drift > 0 else None,
        condemned=sum(bool(reason_under(job, rules)) for job in jobs) / len(jobs),
        entropy=-float(reported_S.mean()),
        # E over the maker's own draws of (1 - p/q)+ is the total variation between its q and the policy's p.
        total_variation=float(np.maximum(0.0, -np.expm1(np.minimum(0.0, recomputed_S - reported_S))).mean()),
    )
