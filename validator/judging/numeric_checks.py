"""Checks of measured numbers against bounds of the rules: seeded sampling, activations, logprobs.

A finding names the number and the bound it exceeds; findings of one check do not depend on another's. A verifier whose
own numbers are not finite abstains before these checks are made.

PURE. Axes: N rollouts of a job, S sampled tokens of all of them one after another, C chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from protocol.wire.rules import Rules, Thresholds
from protocol.wire.toploc.codec import ENTRIES
from validator.judging.artifact_checks import check_class
from validator.judging.check import F32, F64, Bound, Check, Fitting, TokenMeasurements

TAIL = 99.0
"""Percentile of the logprob differences that ``Thresholds.logprob_tail`` bounds."""

SWAP = 1 / ENTRIES
"""Distance that a proof gains when rounding moves one entry out of the top 128."""

HIGHEST_NULL_RATIO = 0.9
"""Largest ``toploc_null_ratio`` that calibration may set; a forgery's ratio is 1 or more."""

_Number = tuple[str, int | None, float, float]
"""A measured number as a finding tells it: detail, rollout if it is of one, number, bound."""


def check_sampling(measured: TokenMeasurements, thresholds: Thresholds) -> list[Finding]:
    """Compares each rollout's largest margin with the bounds; beyond ``sampling_fraud`` the job is fraud."""
    found = []
    fraud, void = thresholds.sampling_fraud, thresholds.sampling_void
    for n, margin in enumerate(segment_max(measured.margins_S, measured.lengths_N).tolist()):
        if fraud is not None and margin > fraud:
            found.append(Finding(Reason.SAMPLING_FRAUD, "a token is not the seeded choice", n, margin, fraud))
        elif margin > void:
            found.append(Finding(Reason.SAMPLING_VOID, "a token is not the seeded choice", n, margin, void))
    return found


def check_exactness(measured: TokenMeasurements, thresholds: Thresholds) -> list[Finding]:
    """Checks, in a run that compares bits, that each token is the seeded choice and that each chunk has its hash."""
    if measured.unequal_N is None:
        return []
    other_N = np.add.reduceat((measured.margins_S > 0).astype(np.int64), starts_of(measured.lengths_N))
    columns = (("a token is not the seeded choice", other_N), ("a chunk has another hash", measured.unequal_N))
    return [
        Finding(Reason.INEXACT, detail, n, int(count), 0)
        for detail, counts_N in columns
        for n, count in enumerate(counts_N.tolist())
        if count
    ]


def check_activations(measured: TokenMeasurements, thresholds: Thresholds) -> list[Finding]:
    """Compares each chunk's distance with the bound and with the best forgery's, and the job's mean with its bound."""
    if not len(measured.rel_C):
        return []
    guards_C = thresholds.toploc_null_ratio * measured.null_C
    chunks = zip(measured.rollouts_C.tolist(), measured.rel_C.tolist(), guards_C.tolist(), strict=True)
    numbers: list[_Number] = []
    for n, rel, guard in chunks:
        numbers.append(("distance of a chunk", n, rel, thresholds.toploc))
        numbers.append(("no nearer than a forgery could be", n, rel, guard))
    numbers.append(("mean distance of the job", None, float(mean_distance(measured)), thresholds.toploc_mean))
    return _exceeding(Reason.ACTIVATIONS, numbers)


def check_logprobs(measured: TokenMeasurements, thresholds: Thresholds) -> list[Finding]:
    """Compares median and tail of |reported − recomputed| over the job with their bounds, in nats.

    The tail leaves out one token in a hundred. Each of those may differ by no more logits than a choice may: what moves
    a logprob is the noise that moves a choice, and less of it.
    """
    median, tail = float(logprob_median(measured)), float(logprob_tail(measured))
    numbers: list[_Number] = [
        ("median difference of logprobs", None, median, thresholds.logprob_median),
        (f"{TAIL:g}th percentile", None, tail, thresholds.logprob_tail),
    ]
    largest_N = measured.temperature * segment_max(measured.apart_S, measured.lengths_N).astype(np.float64)
    for n, largest in enumerate(largest_N.tolist()):
        numbers.append(("largest difference of logprobs, in logits", n, largest, thresholds.sampling_void))
    return _exceeding(Reason.LOGPROBS, numbers)


def margins(measured: TokenMeasurements) -> F32:
    """Returns each token's margin in logits (S,)."""
    return measured.margins_S


def logprob_median(measured: TokenMeasurements) -> F64:
    """Returns the median of |reported − recomputed| over the job, in nats."""
    return np.asarray(np.percentile(_apart(measured), 50.0))


def logprob_tail(measured: TokenMeasurements) -> F64:
    """Returns the ``TAIL`` percentile of |reported − recomputed| over the job, in nats."""
    return np.asarray(np.percentile(_apart(measured), TAIL))


def distances(measured: TokenMeasurements) -> F64:
    """Returns each chunk's distance (C,)."""
    return measured.rel_C


def forgery_ratios(measured: TokenMeasurements) -> F64:
    """Returns each chunk's distance as a share of the best forgery's (C,)."""
    return measured.rel_C / np.maximum(measured.null_C, 1e-30)


def mean_distance(measured: TokenMeasurements) -> F64:
    """Returns the mean distance of the job's chunks, or nothing if there are none."""
    if not measured.rel_C.size:
        return measured.rel_C
    return np.asarray(measured.rel_C.mean(dtype=np.float64))


def segment_max(values_S: F32, lengths_N: NDArray[np.int64]) -> F32:
    """Returns the largest value of each rollout (N,); every rollout has at least one token."""
    return np.maximum.reduceat(values_S, starts_of(lengths_N))


def starts_of(lengths_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the place of each rollout's first token (N,)."""
    starts_N: NDArray[np.int64] = np.cumsum(lengths_N) - lengths_N
    return starts_N


def _apart(measured: TokenMeasurements) -> F64:
    return np.abs(measured.reported_S.astype(np.float64) - measured.recomputed_S)


def _exceeding(reason: Reason, numbers: Sequence[_Number]) -> list[Finding]:
    """Findings for the numbers that are not at most their bounds."""
    return [Finding(reason, *number) for number in numbers if not number[2] <= number[3]]


def _sampling_limits(rules: Rules) -> str:
    fraud = rules.thresholds.sampling_fraud
    return f"void above {rules.thresholds.sampling_void:g}" + ("" if fraud is None else f", fraud above {fraud:g}")


def _logprob_limits(rules: Rules) -> str:
    bounds = rules.thresholds
    each = bounds.sampling_void / (rules.temperature or 1.0)
    return f"{bounds.logprob_median:g}, {bounds.logprob_tail:g}, and {each:g} for each"


SAMPLING = Check(
    name="seeded sampling",
    sentence="every token is the seeded choice, up to the noise of honest engines",
    reasons=(Reason.SAMPLING_FRAUD, Reason.SAMPLING_VOID),
    compares=check_sampling,
    bounds=(
        Bound(
            "sampling_void",
            "tokens",
            margins,
            Fitting.NOISE,
            "largest margin {:.3g}, {} of {} tokens off the seeded choice",
            panel=("Margin of a token behind the seeded choice", "margin, logits"),
        ),
        Bound("sampling_fraud", "tokens", margins, Fitting.NOISE_FRAUD, None),
    ),
    columns={
        "flips_N": None,
        "up_N": None,
        "margin_max_N": "sampling_void",
        "margin_sum_N": None,
        "gap_min_N": "sampling_void",
        "llr_N": None,
    },
    limits=_sampling_limits,
)

EXACTNESS = Check(
    name="exactness",
    sentence="in a run of one determinism class, tokens and hidden states are the verifier's to the bit",
    reasons=(Reason.INEXACT,),
    requires=check_class,
    compares=check_exactness,
    describe=lambda job: None if check_class(job) else "compared" if job.rules.chunks_hashed else "not asked",
    limits=lambda rules: "equal bits" if rules.chunks_hashed else "not asked",
)

ACTIVATIONS = Check(
    name="activations",
    sentence="the activation proofs match the policy's hidden states",
    reasons=(Reason.ACTIVATIONS,),
    compares=check_activations,
    bounds=(
        Bound(
            "toploc",
            "chunks",
            distances,
            Fitting.SWAPS,
            "largest distance {:.3g}",
            step=SWAP,
            panel=("TOPLOC distance of a chunk", "mean relative error of 128 entries"),
        ),
        Bound("toploc_mean", "jobs", mean_distance, Fitting.SWAPS, "mean {:.3g}"),
        Bound(
            *("toploc_null_ratio", "chunks", forgery_ratios, Fitting.SWAPS),
            "at most {:.3g} of the best forgery's",
            limit=HIGHEST_NULL_RATIO,
        ),
    ),
    columns={"rel_C": "toploc", "null_C": "toploc"},
)

LOGPROBS = Check(
    name="logprobs",
    sentence="the reported logprobs are the policy's",
    reasons=(Reason.LOGPROBS,),
    compares=check_logprobs,
    bounds=(
        Bound("logprob_median", "jobs", logprob_median, shown="median difference {:.3g}"),
        Bound(
            "logprob_tail",
            "jobs",
            logprob_tail,
            shown=f"{TAIL:g}th percentile {{:.3g}}",
            panel=("Logprobs, reported against recomputed", f"{TAIL:g}th percentile of a job, nats"),
        ),
    ),
    columns={"logprob_median_N": "logprob_median", "logprob_max_N": "logprob_tail"},
    limits=_logprob_limits,
)
