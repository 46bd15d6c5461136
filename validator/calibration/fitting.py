"""Thresholds from honest jobs: each lies where a fitted tail says honest work goes at the stated rate. PURE.

A job has six ways to be void (margin, logprobs' median and tail, distance of a chunk, its share of the best forgery's,
mean distance); each gets a sixth of the stated rate. Makers are fitted apart, the widest law holds for all. What
rollouts of one prompt do is alike, so a prompt is a unit, and a job as many of them as it has groups.

Axes: U units, J jobs, P prompts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.wire.rules import Rules, Thresholds
from protocol.wire.toploc.codec import ENTRIES
from validator.calibration.intervals import beyond, most_events
from validator.calibration.measuring import MeasuredJob
from validator.calibration.noise import by_prompt, distinct, noise, sigma_above, sigma_of_carried, widened
from validator.calibration.tails import TailFit, tail
from validator.judging.checks import TAIL

F64 = NDArray[np.float64]

VOID_CHECKS = 6
FRAUD_RATE = 1e-6
"""Honest jobs found fraudulent, at most."""

ENOUGH_TOKENS = 1_000_000
"""Honest tokens, without which nothing is fraud."""

SWAP = 1 / ENTRIES
"""Distance that an entry adds which rounding has carried out of the top 128."""

RARE = 0.05
HIGHEST_NULL_RATIO = 0.9
STEPS = {"float32": 2.0**-19, "bfloat16": 2.0**-3}


@dataclass(frozen=True, slots=True)
class Fit:
    """One law: of ``what``, for ``maker``; ``lead`` is what counting swaps adds to its bound, or takes from it."""

    what: str
    maker: str
    tail: TailFit
    lead: float = 0.0

    @property
    def value(self) -> float:
        """Where a threshold lies before headroom."""
        return self.tail.bound + self.lead


@dataclass(frozen=True, slots=True)
class Fitted:
    """The rules' numbers, what they follow from, and why nothing is fraud where that is so."""

    rules: Rules
    fits: tuple[Fit, ...]
    sigma_measured: float
    sigma_holds: bool
    no_fraud_because: str | None


def fit(jobs: Sequence[MeasuredJob], rules: Rules, void_rate: float, headroom: float) -> Fitted:
    """Fits every threshold to honest ``jobs``.

    ``void_rate`` is the share of honest jobs that may be void. Every bound is multiplied by ``headroom`` (the one on
    fraud twice) for processors and weights that were not measured; so is how often entries are swapped, but distances
    themselves are not.
    """
    makers = sorted({job.maker for job in jobs})
    fits = [
        one
        for maker in makers
        for one in _fits([j for j in jobs if j.maker == maker], rules, void_rate, headroom, maker)
    ]
    largest = {what: max(one.value for one in fits if one.what == what) for what in {one.what for one in fits}}
    why = _no_fraud(jobs, [one for one in fits if one.what == "noise, fraud"])
    step = STEPS[rules.model.head_dtype if rules.model.dtype == "float32" else "float32"]
    void = headroom * max(largest["sampling_void"], step)
    fraud = headroom**2 * max(largest["noise, fraud"], step)
    thresholds = Thresholds(
        sampling_void=_rounded(void),
        sampling_fraud=None if why else _rounded(max(fraud, void)),
        logprob_median=_rounded(headroom * max(largest["logprob_median"], step)),
        logprob_tail=_rounded(headroom * max(largest["logprob_tail"], step)),
        toploc=_rounded(largest["toploc"]),
        toploc_mean=_rounded(largest["toploc_mean"]),
        toploc_null_ratio=min(HIGHEST_NULL_RATIO, _rounded(largest["toploc_null_ratio"])),
    )
    measured = max(_sigma([job for job in jobs if job.maker == maker], rules) for maker in makers)
    sequential, holds = widened(jobs, rules, headroom * max(measured, step))
    sequential = sequential.model_copy(update={"sigma": _rounded(sequential.sigma)})
    found = rules.model_copy(update={"thresholds": thresholds, "sequential": sequential})
    return Fitted(Rules.model_validate(found.model_dump()), tuple(fits), measured, holds, why)


def _no_fraud(jobs: Sequence[MeasuredJob], fits: Sequence[Fit]) -> str | None:
    tokens = sum(len(job.margins_S) for job in jobs)
    if tokens < ENOUGH_TOKENS:
        return f"{tokens:,} honest tokens were measured, fraud takes {ENOUGH_TOKENS:,}"
    poor = [one.maker for one in fits if not one.tail.reliable]
    return f"the noise of {poor[0]} has too heavy a tail, or too few values in it, to bound" if poor else None


def _fits(jobs: Sequence[MeasuredJob], rules: Rules, void_rate: float, headroom: float, maker: str) -> list[Fit]:
    """Every law of one maker."""
    samples, prompts = rules.samples_per_group, rules.groups_per_job
    rate = void_rate / VOID_CHECKS

    def of_prompts(values: Callable[[MeasuredJob], NDArray[np.floating]], rate: float, step: float = 0.0) -> TailFit:
        return tail(np.concatenate([by_prompt(job, values(job), samples) for job in jobs]), rate / prompts, step)

    def of_jobs(value: Callable[[MeasuredJob], float]) -> TailFit:
        return tail(np.array([value(job) for job in jobs]), rate)

    step = _noise_step(rules)
    margin = of_prompts(lambda job: job.margins_S, rate)
    apart = of_prompts(lambda job: noise(job, rules.temperature), rate, step)
    return [
        Fit("margin", maker, margin),
        Fit("noise, void", maker, apart),
        Fit("sampling_void", maker, margin if margin.reliable else apart),
        Fit("noise, fraud", maker, of_prompts(lambda job: noise(job, rules.temperature), FRAUD_RATE, step)),
        Fit("logprob_median", maker, of_jobs(lambda job: float(np.median(job.apart_S)))),
        Fit("logprob_tail", maker, of_jobs(lambda job: float(np.percentile(job.apart_S, TAIL)))),
        *_distances(jobs, rules, rate, headroom, maker),
    ]


def _distances(jobs: Sequence[MeasuredJob], rules: Rules, rate: float, headroom: float, maker: str) -> list[Fit]:
    """Laws of chunk, share of the best forgery's, and mean.

    Where entries are swapped in few prompts, swaps are counted: a tail through so few steps would reach anywhere.
    """
    samples, prompts = rules.samples_per_group, rules.groups_per_job
    swaps_P = np.concatenate([_chunks_by_prompt(job, np.rint(job.rel_C / SWAP), samples) for job in jobs])
    chunk_P = np.concatenate([_chunks_by_prompt(job, job.rel_C, samples) for job in jobs])
    ratio_P = np.concatenate([_chunks_by_prompt(job, job.rel_C / job.null_C, samples) for job in jobs])
    mean_J = np.array([float(job.rel_C.mean()) for job in jobs])
    # Unless swaps are counted, distances are a sum of steps of a swap.
    found = [tail(chunk_P, rate / prompts, SWAP), tail(ratio_P, rate / prompts), tail(mean_J, rate)]
    values = [one.bound for one in found]
    if (swaps_P > 0).mean() < RARE:
        each = headroom * most_events(int(swaps_P.sum())) / len(swaps_P)
        one, job_ = _swaps(each, rate / prompts), _swaps(each * prompts, rate)
        below = float((chunk_P - SWAP * swaps_P).max())
        least_null = min(float(job.null_C.min()) for job in jobs)
        chunks = float(np.mean([int(job.chunks_N.sum()) for job in jobs]))
        reach = (max(one, float(swaps_P.max())) + 0.5) * SWAP + below
        values = [reach, reach / least_null, (job_ + 0.5) * SWAP * samples / chunks + below]
    names = ("toploc", "toploc_null_ratio", "toploc_mean")
    pairs = zip(names, found, values, strict=True)
    return [Fit(name, maker, law, value - law.bound) for name, law, value in pairs]


def _swaps(mean: float, rate: float) -> int:
    """Returns how many swaps are exceeded with a probability of at most ``rate``."""
    allowed = 0
    while beyond(allowed, mean) > rate:
        allowed += 1
    return allowed


def _chunks_by_prompt(job: MeasuredJob, values_C: NDArray[np.floating], samples: int) -> F64:
    starts_N = np.cumsum(job.chunks_N) - job.chunks_N
    largest_P: F64 = np.maximum.reduceat(values_C, starts_N).reshape(-1, samples).max(axis=1).astype(np.float64)
    return largest_P


def _sigma(jobs: Sequence[MeasuredJob], rules: Rules) -> float:
    """By the noise on scores, or by the choices it carried over where they are enough: they are what is judged."""
    samples, floor = rules.samples_per_group, rules.sequential.floor
    values = [distinct(job, noise(job, rules.temperature), samples) for job in jobs]
    above = sigma_above(np.concatenate(values), floor, _noise_step(rules))
    carried = sigma_of_carried(jobs, samples, floor)
    return above if carried is None else min(above, carried)


def _noise_step(rules: Rules) -> float:
    """Step in which the noise on a choice, in logits, comes at most."""
    return math.sqrt(2.0) * STEPS[rules.model.head_dtype]


def _rounded(value: float) -> float:
    """Two digits, upwards: nobody reads more of a bound."""
    if value <= 0:
        return float(np.finfo(np.float32).tiny)
    digits = 1 - int(np.floor(np.log10(value)))
    return float(f"{np.ceil(value * 10.0**digits - 1e-9) / 10.0**digits:.2g}")


# RARE: share of prompts with a swap below which swaps are counted, with half a swap of room, not fitted.
# HIGHEST_NULL_RATIO: a forgery lies at 1 or above.
# STEPS: the rounding step of a logit between 16 and 32. In float32 so much may lie between two engines of which these
# measurements happen to see nothing; bfloat16 shows its own on every token, though logprobs are float32 there too.
