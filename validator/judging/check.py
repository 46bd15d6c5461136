"""A check as one value: its name, reasons, measurements, bounds and sentence, and the functions that make it.

A check may look at a job in up to three ways, in this order:

    requires   the artifact, before the model runs; a finding ends the judgement, since later checks rely on it
    inspects   the artifact, after the model has run
    compares   the measured numbers against bounds of the rules; calibration judges with these functions as well

PURE. Axes: N rollouts of a job, S sampled tokens of all of them one after another, C chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from protocol.wire.rollout import Artifact
from protocol.wire.rules import Rules, Thresholds
from protocol.wire.units import ModelShape
from validator.judging.claims import Claim

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ReadJob:
    """An artifact that decodes and hashes to its claim, with what the rules and the policy expect of it.

    prompts         expected prompt tokens, one prompt per group
    proof_findings  malformed proofs
    """

    claim: Claim
    artifact: Artifact
    prompts: Sequence[Sequence[int]]
    rules: Rules
    vocabulary: int
    stop_tokens: tuple[int, ...]
    shape: ModelShape
    proof_findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class TokenMeasurements:
    """Measurements of one job, by token and by chunk; without chunks where the proofs are malformed.

    margins_S, gaps_S, leads_S  as in ``validator.judging.prefill.Prefill``
    reported_S, recomputed_S    logprobs of the artifact and of the verifier
    rel_C, null_C               distance of each proof, and the least that a forgery reaches
    canonical_C                 whether the proof's modulus is one that an honest worker can arrive at
    chunks_N                    chunks per rollout
    unequal_N                   chunks of each rollout with another hash than the verifier's; None without hashes
    temperature                 logits per nat of the logprobs: the rules' temperature, 1 if that is 0
    """

    lengths_N: NDArray[np.int64]
    margins_S: F32
    gaps_S: F32
    leads_S: F32
    reported_S: F32
    recomputed_S: F32
    rel_C: F64
    null_C: F64
    canonical_C: NDArray[np.bool_]
    chunks_N: NDArray[np.int64]
    unequal_N: NDArray[np.int64] | None = field(default=None, kw_only=True)
    temperature: float = field(default=1.0, kw_only=True)

    @property
    def apart_S(self) -> F32:
        """|reported − recomputed|, in nats."""
        apart_S: F32 = np.abs(self.reported_S - self.recomputed_S)
        return apart_S

    @property
    def rollouts_C(self) -> NDArray[np.int64]:
        """Rollout of each chunk."""
        return np.repeat(np.arange(len(self.chunks_N)), self.chunks_N)


class Fitting(Enum):
    """Method by which calibration derives a bound from honest jobs.

    TAIL         from the tail of the values, times the headroom
    NOISE        as TAIL; from the noise of scores if the values have no tail to fit
    NOISE_FRAUD  from the noise of scores at the rate of fraud, times the headroom twice
    SWAPS        from the tail of the values without headroom, or from counted swaps of proof entries if those are rare
    """

    TAIL = "tail"
    NOISE = "noise"
    NOISE_FRAUD = "noise, fraud"
    SWAPS = "swaps"


@dataclass(frozen=True, slots=True)
class Bound:
    """One number of ``Thresholds`` that a check compares with.

    name    field of ``Thresholds``, or key of ``Thresholds.further``
    values  the compared numbers of a job, one per token, per chunk or for the job, as ``axis`` says
    shown   format of the largest, the number above 0 and the number of them for a report; by default the bound's name
            and the largest; None if another bound shows them
    step    step in which the values come, if calibration has to spread them
    limit   largest bound that calibration may set
    panel   title and axis label of the calibration picture's panel; None draws none
    """

    name: str
    axis: Literal["tokens", "chunks", "jobs"]
    values: Callable[[TokenMeasurements], F32 | F64]
    fitting: Fitting = Fitting.TAIL
    shown: str | None = ""
    step: float = 0.0
    limit: float = float("inf")
    panel: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a job. A check that measures a bound in ``Thresholds.further`` is made in runs that set it.

    sentence  tells people what holds if the check passes
    reasons   reasons that its findings may have; they decide whether a finding is fraud or void
    columns   evidence columns it measures, each with the bound that two honest verifiers' values may differ by;
              None where other columns bound it
    describe  what the check saw, in words, if it does not show its bounds' numbers; None if it could not be made
    limits    the bounds, in words
    """

    name: str
    sentence: str
    reasons: tuple[Reason, ...]
    requires: Callable[[ReadJob], list[Finding]] | None = None
    inspects: Callable[[ReadJob], list[Finding]] | None = None
    compares: Callable[[TokenMeasurements, Thresholds], list[Finding]] | None = None
    bounds: tuple[Bound, ...] = ()
    columns: Mapping[str, str | None] = field(default_factory=dict)
    describe: Callable[[ReadJob], str | None] | None = None
    limits: Callable[[Rules], str] | None = None

    def applies(self, thresholds: Thresholds) -> bool:
        """Returns whether a run under ``thresholds`` makes this check."""
        return all(bound.name in thresholds.bounds for bound in self.bounds)

    def after_prefill(self, job: ReadJob, measured: TokenMeasurements) -> list[Finding]:
        """Returns the findings of ``inspects`` and ``compares``."""
        found = [] if self.inspects is None else self.inspects(job)
        return found if self.compares is None else found + self.compares(measured, job.rules.thresholds)

    def described(self, job: ReadJob, measured: TokenMeasurements | None) -> str | None:
        """Returns what was measured in words; None if the check could not be made.

        A check that looks only after the model has run could not be made if it did not run.
        """
        after = self.requires is None and (self.inspects or self.compares) is not None
        if after and measured is None:
            return None
        if self.describe is not None:
            return self.describe(job)
        shown = [
            (bound.shown or bound.name + " {:.3g}", values)
            for bound in self.bounds
            if bound.shown is not None and measured is not None and (values := bound.values(measured)).size
        ]
        return ", ".join(text.format(values.max(), (values > 0).sum(), values.size) for text, values in shown) or None

    def bounded(self, rules: Rules) -> str:
        """Returns the bounds in words, by default their values; ``exact`` for a check without bounds."""
        if self.limits is not None:
            return self.limits(rules)
        stated = rules.thresholds.bounds
        return ", ".join(f"{stated[bound.name]:g}" for bound in self.bounds) or "exact"
