"""Thresholds from honest jobs: quantiles of fitted tails at the stated error rate. PURE.

The stated rate of void jobs is divided equally among the bounds that may void a job. Makers are fitted separately, and
the widest law applies to all. Rollouts of one prompt resemble each other, so the prompt is the statistical unit: a job
has as many units as groups.

Axes: U units, J jobs, P prompts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.wire.rules import Rules, Thresholds
from validator.calibration.intervals import beyond, most_events
from validator.calibration.measuring import MeasuredJob
from validator.calibration.noise import by_prompt, centred, distinct, noise, sigma_above, sigma_of_carried, widened
from validator.calibration.tails import TailFit, tail
from validator.judging.check import Bound, Fitting
from validator.judging.numeric_checks import SWAP
from validator.judging.registry import CHECKS

F64 = NDArray[np.float64]

FRAUD_RATE = 1e-6
"""Largest rate of honest jobs found fraudulent."""

ENOUGH_TOKENS = 1_000_000
"""Honest tokens needed before a bound on fraud is set."""

SHORT_TOKENS, SHORT_FACTOR = 5_000, 100.0
"""Honest tokens needed in a short calibration, and how much wider its bound on fraud is.

That of one honest job in a thousand is known from so few. A hundred times as far out there is less than one in a
million, unless the noise falls off slower than with its power of 3/2, slower than any that was ever measured.
"""

RARE = 0.05
"""Share of prompts with a swapped entry below which swaps are counted, with half a swap of room, instead of fitted."""

STEPS = {"float32": 2.0**-19, "bfloat16": 2.0**-3}
"""Rounding step of a logit between 16 and 32, which two float32 engines may differ by even if none was measured.

bfloat16 shows its step on every token, although logprobs are float32 there too.
"""


@dataclass(frozen=True, slots=True)
class Fit:
    """One law of ``what`` for ``maker``; ``lead`` is the correction of its bound by counted swaps."""

    what: str
    maker: str
    tail: TailFit
    lead: float = 0.0

    @property
    def value(self) -> float:
        """The threshold before headroom."""
        return self.tail.bound + self.lead


@dataclass(frozen=True, slots=True)
class Fitted:
    """Calibrated rules, the laws behind them, and the reason for having no bound on fraud, or a wide one, if any."""

    rules: Rules
    fits: tuple[Fit, ...]
    sigma_measured: float
    sigma_holds: bool
    no_fraud_because: str | None
    wide_because: str | None = None


def fit(jobs: Sequence[MeasuredJob], rules: Rules, void_rate: float, headroom: float, short: bool = False) -> Fitted:
    """Fits every threshold to honest ``jobs``; in a ``short`` calibration with a wide bound on fraud.

    ``void_rate`` is the largest share of honest jobs that may be void. Bounds are multiplied by ``headroom``, the one
    on fraud twice, to allow for processors and weights that were not measured; for distances, the frequency of swapped
    entries is multiplied instead.
    """
    bounds = [bound for check in CHECKS if check.applies(rules.thresholds) for bound in check.bounds]
    rate = void_rate / sum(bound.fitting is not Fitting.NOISE_FRAUD for bound in bounds)
    makers = sorted({job.maker for job in jobs})
    fits = [
        one
        for maker in makers
        for one in _fits([job for job in jobs if job.maker == maker], rules, bounds, rate, headroom, maker)
    ]
    largest = {bound.name: max(one.value for one in fits if one.what == _law_of(bound)) for bound in bounds}
    wide = _wide_fraud(jobs) if short else None
    why = None if wide else _no_fraud(jobs, [one for one in fits if one.what == Fitting.NOISE_FRAUD.value])
    step = STEPS[rules.model.head_dtype if rules.model.dtype == "float32" else "float32"]
    values: dict[str, float | None] = {
        bound.name: _threshold(bound, largest[bound.name], headroom, step) for bound in bounds
    }
    void, fraud = headroom * max(largest["sampling_void"], step), headroom**2 * max(largest["sampling_fraud"], step)
    fraud = max(fraud, void) if wide is None else max(fraud, SHORT_FACTOR * void)
    values["sampling_fraud"] = None if why else _rounded(fraud)
    thresholds = Thresholds.from_bounds(values)
    measured = max(_sigma([job for job in jobs if job.maker == maker], rules) for maker in makers)
    sequential, holds = widened(jobs, rules, headroom * max(measured, step))
    sequential = sequential.model_copy(update={"sigma": _rounded(sequential.sigma)})
    sequential = centred(jobs, sequential, headroom)
    found = rules.model_copy(update={"thresholds": thresholds, "sequential": sequential})
    return Fitted(Rules.model_validate(found.model_dump(mode="json")), tuple(fits), measured, holds, why, wide)


def _no_fraud(jobs: Sequence[MeasuredJob], fits: Sequence[Fit]) -> str | None:
    tokens = sum(len(job.margins_S) for job in jobs)
    if tokens < ENOUGH_TOKENS:
        return f"{tokens:,} honest tokens were measured; a bound on fraud needs {ENOUGH_TOKENS:,}"
    poor = [one.maker for one in fits if not one.tail.reliable]
    return f"the noise of {poor[0]} has too heavy a tail, or too few values, to be bounded" if poor else None


def _wide_fraud(jobs: Sequence[MeasuredJob]) -> str | None:
    """Returns why a bound on fraud is wide; None if there are too few tokens for it, or enough for one that is not."""
    tokens = sum(len(job.margins_S) for job in jobs)
    if not SHORT_TOKENS <= tokens < ENOUGH_TOKENS:
        return None
    return f"{tokens:,} honest tokens were measured, so it is {SHORT_FACTOR:.0f} times the bound that makes a job void"


def _law_of(bound: Bound) -> str:
    return Fitting.NOISE_FRAUD.value if bound.fitting is Fitting.NOISE_FRAUD else bound.name


def _threshold(bound: Bound, largest: float, headroom: float, step: float) -> float:
    """Returns the bound for the rules; ``step`` is the rounding step of a logit, below which no bound lies."""
    if bound.fitting is Fitting.SWAPS:
        return min(bound.limit, _rounded(largest))
    return min(bound.limit, _rounded(headroom * max(largest, step)))


def _fits(
    jobs: Sequence[MeasuredJob], rules: Rules, bounds: Sequence[Bound], rate: float, headroom: float, maker: str
) -> list[Fit]:
    """Returns every law of one maker; ``rate`` is the share of honest jobs that may break one bound."""
    swaps = _counted_swaps(jobs, rules, rate, headroom)
    step = _noise_step(rules)

    def of_noise(rate: float) -> TailFit:
        noises = [by_prompt(noise(job, rules.temperature), job.lengths_N, rules.samples_per_group) for job in jobs]
        return tail(np.concatenate(noises), rate / rules.groups_per_job, step)

    found = []
    for bound in bounds:
        if bound.fitting is Fitting.NOISE_FRAUD:
            found.append(Fit(_law_of(bound), maker, of_noise(FRAUD_RATE)))
            continue
        law = _tail_of(bound, jobs, rules, rate)
        if bound.fitting is Fitting.NOISE:
            apart = of_noise(rate)
            found += [Fit("margin", maker, law), Fit("noise, void", maker, apart)]
            law = law if law.reliable else apart
        counted = swaps.get(bound.name) if bound.fitting is Fitting.SWAPS else None
        found.append(Fit(bound.name, maker, law, 0.0 if counted is None else counted - law.bound))
    return found


def _tail_of(bound: Bound, jobs: Sequence[MeasuredJob], rules: Rules, rate: float) -> TailFit:
    """Fits the values that ``bound`` is compared with, by job, or by prompt if a job has many of them."""
    if bound.axis == "jobs":
        return tail(np.array([float(bound.values(job)) for job in jobs]), rate, bound.step)
    samples, tokens = rules.samples_per_group, bound.axis == "tokens"
    values = [by_prompt(bound.values(job), job.lengths_N if tokens else job.chunks_N, samples) for job in jobs]
    return tail(np.concatenate(values), rate / rules.groups_per_job, bound.step)


def _counted_swaps(jobs: Sequence[MeasuredJob], rules: Rules, rate: float, headroom: float) -> dict[str, float]:
    """Returns the reach of the distances by counting swapped entries, if they occur in few prompts.

    A tail fitted through so few steps would reach anywhere.
    """
    samples, prompts = rules.samples_per_group, rules.groups_per_job
    swaps_P = np.concatenate([by_prompt(np.rint(job.rel_C / SWAP), job.chunks_N, samples) for job in jobs])
    chunk_P = np.concatenate([by_prompt(job.rel_C, job.chunks_N, samples) for job in jobs])
    if (swaps_P > 0).mean() >= RARE:
        return {}
    each = headroom * most_events(int(swaps_P.sum())) / len(swaps_P)
    one, of_job = _swaps(each, rate / prompts), _swaps(each * prompts, rate)
    below = float((chunk_P - SWAP * swaps_P).max())
    least_null = min(float(job.null_C.min()) for job in jobs)
    chunks = float(np.mean([int(job.chunks_N.sum()) for job in jobs]))
    reach = (max(one, float(swaps_P.max())) + 0.5) * SWAP + below
    return {
        "toploc": reach,
        "toploc_null_ratio": reach / least_null,
        "toploc_mean": (of_job + 0.5) * SWAP * samples / chunks + below,
    }


def _swaps(mean: float, rate: float) -> int:
    """Returns the number of swaps exceeded with a probability of at most ``rate``."""
    allowed = 0
    while beyond(allowed, mean) > rate:
        allowed += 1
    return allowed


def _sigma(jobs: Sequence[MeasuredJob], rules: Rules) -> float:
    """Sigma from the noise of scores, or from the flipped choices, which are what is judged, if they are enough."""
    samples, floor = rules.samples_per_group, rules.sequential.floor
    values = [distinct(job, noise(job, rules.temperature), samples) for job in jobs]
    above = sigma_above(np.concatenate(values), floor, _noise_step(rules))
    carried = sigma_of_carried(jobs, samples, floor)
    return above if carried is None else min(above, carried)


def _noise_step(rules: Rules) -> float:
    """Largest step in which the noise on a choice comes, in logits."""
    return math.sqrt(2.0) * STEPS[rules.model.head_dtype]


def _rounded(value: float) -> float:
    """Rounds up to two digits."""
    if value <= 0:
        return float(np.finfo(np.float32).tiny)
    digits = 1 - int(np.floor(np.log10(value)))
    return float(f"{np.ceil(value * 10.0**digits - 1e-9) / 10.0**digits:.2g}")
