"""Noise between two honest engines' scores of one choice, estimated from the logprobs they report. PURE.

log p = l/T − log Σ exp(l/T). If the chosen token's logit moves by d against the (weighted) mean of all others, log p
moves by (1 − p) d/T. So T |reported − recomputed| / (1 − p) estimates how far choice and competitors moved apart, on
every token that is not almost certain. Between two single tokens of equal noise it is at most √2 times as large.

Axes: S sampled tokens, N rollouts, P groups of one prompt, D distinct values, U units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from protocol.wire.rules import Rules, Sequential
from validator.calibration.intervals import most, most_events
from validator.calibration.measuring import MeasuredJob
from validator.calibration.tails import tail
from validator.judging.statistics import log_likelihood_ratios

F64 = NDArray[np.float64]

CERTAIN = 0.9
"""Probability above which the logprob hardly depends on the logits."""

LEVELS = 60
"""Quantiles at which the observed and the normal law are compared."""

ONE_SIGMA = 0.16
"""Tail probability up to which they are compared; nearer the middle a law fitted to the flank is wide enough."""

SEEN_TO = 10.0
"""Multiple of the largest margin beyond which no choice flips."""

BISECTIONS, GROUPS = 40, 200
"""Bisection steps, and groups of choices of similar distance, each counted as its farthest."""

WIDER = 1.1
WIDENINGS = 120

CLEARING, CENTRINGS, LEAST_FLIPS = 0.1, 100, 20
"""Share of the bound that one job clears at most, steps in which centring is fitted, and flips that it takes."""


def noise(job: MeasuredJob, temperature: float) -> F64:
    """Returns the noise on each choice, in logits (S,); 0 for tokens above ``CERTAIN``."""
    p_S = np.exp(np.minimum(job.recomputed_S.astype(np.float64), 0.0))
    scale = math.sqrt(2.0) * (temperature if temperature > 0 else 1.0)
    return np.where(p_S <= CERTAIN, scale * job.apart_S / np.maximum(1.0 - p_S, 1.0 - CERTAIN), 0.0)


def by_prompt(values: NDArray[np.floating], counts_N: NDArray[np.int64], samples: int) -> F64:
    """Returns the largest value of each prompt (P,); the ``samples`` rollouts of a prompt are one statistical unit.

    ``counts_N`` is the number of values per rollout: tokens or chunks.
    """
    starts_N = np.cumsum(counts_N) - counts_N
    largest_P: F64 = np.maximum.reduceat(values, starts_N).reshape(-1, samples).max(axis=1).astype(np.float64)
    return largest_P


def distinct(job: MeasuredJob, values_S: F64, samples: int) -> F64:
    """Returns the values of uncertain tokens (D,), once for rollouts of one prompt that agree."""
    starts_N = np.cumsum(job.lengths_N) - job.lengths_N
    prompts_S = np.repeat(np.arange(len(starts_N)) // samples, job.lengths_N)
    same_S3 = np.stack([prompts_S, job.reported_S, job.recomputed_S], axis=1)
    _, first = np.unique(same_S3, axis=0, return_index=True)
    p_D = np.exp(np.minimum(job.recomputed_S[first].astype(np.float64), 0.0))
    return values_S[first][p_D <= CERTAIN]


def sigma_above(noise_D: F64, floor: float, step: float = 0.0) -> float:
    """Returns the least sigma whose normal law flips choices at least as often as the noise does, at any distance.

    Below ``floor`` the law need not hold; beyond the data it must hold at the bound of the tail, fitted to noise in
    steps of ``step``. Noise flips a choice in one direction only, so half of it counts.
    """
    ordered_D = np.sort(noise_D)[::-1]
    count, normal = len(ordered_D), NormalDist()
    if count == 0 or ordered_D[0] <= 0:
        return 0.0
    needed = [0.0]
    for k in np.unique(np.geomspace(1, max(1.0, 2 * ONE_SIGMA * count), LEVELS).astype(int)):
        share = most(int(k), count) / 2
        if floor < share < ONE_SIGMA:
            needed.append(float(ordered_D[k - 1]) / -normal.inv_cdf(share))
    end = tail(noise_D, 2 * floor, step)
    needed.append(end.bound / -normal.inv_cdf(floor))
    return max(needed)


def sigma_of_carried(jobs: Sequence[MeasuredJob], samples: int, floor: float) -> float | None:
    """Returns the least sigma whose normal law flips choices at least as often as observed, at any distance.

    None if too few choices flipped to fit a tail. Beyond the data the law must hold at the tail's quantile of ``floor``
    of the uncertain choices.
    """
    margins_S = np.concatenate([job.margins_S for job in jobs]).astype(np.float64)
    gaps_S = np.concatenate([job.gaps_S for job in jobs]).astype(np.float64)
    largest_P = np.concatenate([by_prompt(job.margins_S, job.lengths_N, samples) for job in jobs])
    uncertain = sum(int((np.exp(job.recomputed_S) <= CERTAIN).sum()) for job in jobs)
    law, normal = tail(largest_P, floor * uncertain / len(largest_P)), NormalDist()
    if not law.reliable:
        return None
    carried_D = np.sort(margins_S[margins_S > 0])[::-1]
    distance_S = np.where(margins_S > 0, margins_S, gaps_S)
    near_S = np.sort(distance_S[distance_S <= SEEN_TO * carried_D[0]])
    needed = [law.bound / -normal.inv_cdf(floor)]
    for k in np.unique(np.geomspace(1, len(carried_D), LEVELS).astype(int)):
        events, beyond_S = most_events(int(k)), near_S[np.searchsorted(near_S, carried_D[k - 1]) :]
        if events < ONE_SIGMA * len(beyond_S):
            needed.append(_sigma_that_carries(beyond_S, events))
    return max(needed)


def _sigma_that_carries(ordered_S: F64, events: float) -> float:
    """The sigma with which ``events`` of the choices, fewer than half, flip on average."""
    ends = np.linspace(0, len(ordered_S), min(GROUPS, len(ordered_S)) + 1).astype(int)[1:]
    farthest, sizes = ordered_S[ends - 1].tolist(), np.diff(ends, prepend=0).tolist()
    low, high, normal = 0.0, 1e3 * float(farthest[-1]), NormalDist()
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        mean = sum(size * normal.cdf(-distance / middle) for distance, size in zip(farthest, sizes, strict=True))
        low, high = (middle, high) if mean < events else (low, middle)
    return high


def evidence_of(jobs: Sequence[MeasuredJob], sequential: Sequential) -> F64:
    """Returns what the choices of each job add to a record (J,), in nats."""
    sums_J = [log_likelihood_ratios(job.margins_S, job.gaps_S, sequential).sum() for job in jobs]
    bounded_J: F64 = np.maximum(np.array(sums_J, dtype=np.float64), sequential.least)
    return bounded_J


def mean_upper(evidence_J: F64) -> tuple[float, float]:
    """Returns the mean of exp(x) and its upper 95% bound, by the normal approximation."""
    weights_J = np.exp(evidence_J)
    error = float(weights_J.std(ddof=1)) / math.sqrt(len(weights_J)) if len(weights_J) > 1 else math.inf
    return float(weights_J.mean()), float(weights_J.mean()) + 1.645 * error


def widened(jobs: Sequence[MeasuredJob], rules: Rules, sigma: float) -> tuple[Sequential, bool]:
    """Widens ``sigma`` until honest jobs have mean exp(x) of at most 1; returns the test, and whether they do.

    The test is not yet centred; see ``centred``.
    """
    for _ in range(WIDENINGS):
        sequential = rules.sequential.model_copy(update={"sigma": sigma, "centring": 0.0, "clearing": None})
        if mean_upper(evidence_of(jobs, sequential))[1] <= 1.0:
            return sequential, True
        sigma *= WIDER
    return sequential, False


def centred(jobs: Sequence[MeasuredJob], sequential: Sequential, headroom: float) -> Sequential:
    """Returns the test with bounded clearing and the most centring that honest jobs allow for.

    With both, and were flips ``headroom`` times as frequent, the jobs of each maker and model have mean exp(x) of at
    most 1 at the upper 95% bound: a worker names its engine itself, and versions follow one another. The test is
    unchanged where no centring keeps this, or a maker's jobs have fewer than ``LEAST_FLIPS``.
    """
    plain = sequential.model_copy(update={"centring": 0.0, "clearing": None})
    makers_J, models_J = np.array([job.maker for job in jobs]), np.array([job.model for job in jobs])
    flips_J = np.array([int((job.margins_S > 0).sum()) for job in jobs])
    if any(flips_J[makers_J == maker].sum() < LEAST_FLIPS for maker in set(makers_J)):
        return sequential
    evidence_J = evidence_of(jobs, plain)
    still_J = evidence_of([_unflipped(job) for job in jobs], plain)
    least = sequential.model_copy(update={"clearing": CLEARING}).least

    def holds(centring: float) -> bool:
        centred_J = np.maximum(evidence_J - centring * still_J, least)
        for maker, model in {(job.maker, job.model) for job in jobs}:
            inside_J = (makers_J == maker) & (models_J == model)
            of_flips = float(np.exp(evidence_J - still_J)[inside_J].mean())
            if mean_upper(centred_J[inside_J])[1] * of_flips ** (headroom - 1.0) > 1.0:
                return False
        return True

    fitting = [step / CENTRINGS for step in range(CENTRINGS) if holds(step / CENTRINGS)]
    return sequential.model_copy(update={"centring": fitting[-1], "clearing": CLEARING}) if fitting else sequential


def _unflipped(job: MeasuredJob) -> MeasuredJob:
    """Returns the job as if every choice had stayed where it was, by the same distances."""
    distance_S = np.where(job.margins_S > 0, job.margins_S, job.gaps_S)
    return replace(job, margins_S=np.zeros_like(job.margins_S), gaps_S=distance_S)


def carried(jobs: Sequence[MeasuredJob], sigma: float) -> list[dict[str, float]]:
    """Returns observed and expected numbers of flipped choices, by distance in sigmas."""
    margins_S = np.concatenate([job.margins_S for job in jobs]).astype(np.float64)
    gaps_S = np.concatenate([job.gaps_S for job in jobs]).astype(np.float64)
    distance_S = np.where(margins_S > 0, margins_S, gaps_S) / sigma
    normal = NormalDist()
    rows = []
    for low, high in ((0, 1), (1, 2), (2, 3), (3, 4), (4, 6), (6, math.inf)):
        inside_S = (distance_S >= low) & (distance_S < high)
        near_S = np.minimum(distance_S[inside_S], 10.0) if low < 6 else np.empty(0)
        expected = float(sum(normal.cdf(-value) for value in near_S.tolist()))
        seen = int((margins_S[inside_S] > 0).sum())
        rows.append({"from": low, "choices": int(inside_S.sum()), "carried": seen, "expected": expected})
    return rows
