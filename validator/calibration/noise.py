"""How far two honest engines' scores of one choice lie apart, read off the logprobs they report. PURE.

log p = l/T − log Σ exp(l/T). Where the chosen token's logit moves by d against the (weighted) mean of all others,
log p moves by (1 − p) d/T: so T |reported − recomputed| / (1 − p) is how far choice and competitors came apart, on
every token that is not all but certain. Of two single tokens the noise is at most √2 times as large, if theirs is
alike.

Axes: S sampled tokens, N rollouts, P groups of one prompt, D distinct values, U units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
"""Above this probability the logprob hardly moves, whatever the logits do."""

LEVELS = 60
ONE_SIGMA = 0.16
SEEN_TO = 10.0
BISECTIONS, GROUPS = 40, 200
WIDER = 1.1
WIDENINGS = 120


def noise(job: MeasuredJob, temperature: float) -> F64:
    """Returns the noise on each choice, in logits (S,); 0 where the token is too certain to tell."""
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
    """Returns the values above 0 (D,), once where rollouts of one prompt went the same way."""
    starts_N = np.cumsum(job.lengths_N) - job.lengths_N
    prompts_S = np.repeat(np.arange(len(starts_N)) // samples, job.lengths_N)
    same_S3 = np.stack([prompts_S, job.reported_S, job.recomputed_S], axis=1)
    _, first = np.unique(same_S3, axis=0, return_index=True)
    p_D = np.exp(np.minimum(job.recomputed_S[first].astype(np.float64), 0.0))
    return values_S[first][p_D <= CERTAIN]


def sigma_above(noise_D: F64, floor: float, step: float = 0.0) -> float:
    """Returns the least sigma whose normal law carries choices over at least as often as noise does, anywhere.

    Where the law falls below ``floor`` nothing is asked; where data end, the bound of the tail is, of noise in steps of
    ``step``. Noise carries a choice one way, so half of it counts.
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
    """Returns the least sigma whose normal law carries choices over at least as often as was seen, at any distance.

    None where too few were for a law of them. Where data end, what ``floor`` of the choices that are not certain go
    beyond is asked.
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
    """The sigma with which that many of the choices, fewer than half, are carried over in the mean."""
    ends = np.linspace(0, len(ordered_S), min(GROUPS, len(ordered_S)) + 1).astype(int)[1:]
    farthest, sizes = ordered_S[ends - 1].tolist(), np.diff(ends, prepend=0).tolist()
    low, high, normal = 0.0, 1e3 * float(farthest[-1]), NormalDist()
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        mean = sum(size * normal.cdf(-distance / middle) for distance, size in zip(farthest, sizes, strict=True))
        low, high = (middle, high) if mean < events else (low, middle)
    return high


def evidence_of(jobs: Sequence[MeasuredJob], sequential: Sequential) -> F64:
    """Returns x of each job: the sum of its tokens' log-likelihood ratios."""
    return np.array([log_likelihood_ratios(job.margins_S, job.gaps_S, sequential).sum() for job in jobs])


def mean_upper(evidence_J: F64) -> tuple[float, float]:
    """Returns the mean of exp(x) and its upper 95% bound (normal: many jobs are behind it)."""
    weights_J = np.exp(evidence_J)
    error = float(weights_J.std(ddof=1)) / math.sqrt(len(weights_J)) if len(weights_J) > 1 else math.inf
    return float(weights_J.mean()), float(weights_J.mean()) + 1.645 * error


def widened(jobs: Sequence[MeasuredJob], rules: Rules, sigma: float) -> tuple[Sequential, bool]:
    """Returns the test with ``sigma``, widened until honest jobs give mean exp(x) of at most 1, and whether they do."""
    for _ in range(WIDENINGS):
        sequential = rules.sequential.model_copy(update={"sigma": sigma})
        if mean_upper(evidence_of(jobs, sequential))[1] <= 1.0:
            return sequential, True
        sigma *= WIDER
    return sequential, False


def carried(jobs: Sequence[MeasuredJob], sigma: float) -> list[dict[str, float]]:
    """Returns, by distance in sigmas, how many choices were carried over and how many the normal law expects."""
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


# LEVELS: quantiles at which the two laws are compared. ONE_SIGMA: nearer to the middle the normal law is beyond doubt
# wide enough, as sigma follows from its flank. SEEN_TO: so many times the largest margin away nothing is carried over.
# GROUPS: so many of like distance are counted together, each as the farthest of its group.
