"""Findings of jurors as a page shows them: a bundle of evidence, read once, and each measured value beside its bound.

The record's arithmetic is a second one beside the validators' (``validator/records/record.py``): an outsider's, who has
published bundles alone. PURE.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from protocol.errors import Rejected
from protocol.wire.evidence import Finding, JobEvidence, Measurements, SignedEvidence
from protocol.wire.reasons import Reason
from protocol.wire.rules import Sequential

MOST_FINDINGS = 64
"""Findings of a job that are kept of one bundle; a job may have one for each chunk."""
EVEN, LOPSIDED = 0.5, 0.9
"""Probability that a flip goes in one direction: for an honest engine, and under the alternative."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A number of a whole job beside the bound of the run's rules; None if they have none."""

    name: str
    value: float
    limit: float | None


@dataclass(frozen=True, slots=True)
class RecordStep:
    """Evidence of one job in nats, in the three tests of a record: choices, flips to the likelier token, and away."""

    choices: float
    upward: float
    downward: float


@dataclass(frozen=True, slots=True)
class JobReading:
    """One job in one bundle: the juror's reason, some of the ``findings_in_all``, and numbers.

    Findings begin with the first of each reason. ``step`` is None if the juror could not measure it.
    """

    node: int
    root: bytes
    reason: Reason
    findings: tuple[Finding, ...]
    findings_in_all: int
    numbers: tuple[Measured, ...]
    step: RecordStep | None


@dataclass(frozen=True, slots=True)
class BundleReading:
    """A bundle of evidence whose root and signature are right: its rules, and its jobs by number."""

    rules_hash: bytes
    jobs: Mapping[int, JobReading]


def read_bundle(signed: SignedEvidence, expected: tuple[int, str, int, int, int], key: str) -> BundleReading:
    """Returns what pages show of a bundle.

    Args:
        signed: the bundle, which has the root that was voted for.
        expected: chain id, Rounds, round, attempt and juror of the seat.
        key: address of the juror's key.

    Raises:
        Rejected: it is of another seat, or not signed by the key.
    """
    bundle = signed.evidence
    chain_id, rounds, *seat = expected
    if (bundle.chain_id, bundle.rounds.lower()) != (chain_id, rounds.lower()):
        raise Rejected("the bundle is of another deployment")
    if [bundle.round, bundle.attempt, bundle.juror] != seat:
        place = f"round {bundle.round}, attempt {bundle.attempt + 1} and juror {bundle.juror}"
        raise Rejected(f"the bundle is of another seat: of {place}")
    signed.verify(key)
    return BundleReading(bundle.rules_hash, {each.job: _job(each, bundle.thresholds) for each in bundle.jobs})


def _job(job: JobEvidence, thresholds: Mapping[str, float | None]) -> JobReading:
    reasons = {finding.reason: place for place, finding in reversed([*enumerate(job.findings)])}
    kept = sorted(enumerate(job.findings), key=lambda each: reasons[each[1].reason] != each[0])[:MOST_FINDINGS]
    numbers = () if job.measurements is None else tuple(_numbers(job.measurements, thresholds))
    step = None if job.measurements is None else step_of(job.measurements)
    return JobReading(job.node, job.root, job.reason, tuple(each for _, each in kept), len(job.findings), numbers, step)


def _numbers(measured: Measurements, thresholds: Mapping[str, float | None]) -> Iterable[Measured]:
    """Yields the numbers of a job that follow from the bundle alone."""
    if len(measured.margin_max_N):
        margin = float(measured.margin_max_N.max())
        yield Measured("largest margin of a token, in logits", margin, thresholds.get("sampling_void"))
    if len(measured.rel_C):
        yield Measured("largest distance of a chunk", float(measured.rel_C.max()), thresholds.get("toploc"))
        mean = float(measured.rel_C.mean(dtype=np.float64))
        yield Measured("mean distance of the chunks", mean, thresholds.get("toploc_mean"))


def step_of(measured: Measurements) -> RecordStep:
    """Returns the evidence of one job's measurements."""
    flips, up = (int(column.sum(dtype=np.int64)) for column in (measured.flips_N, measured.up_N))
    choices = float(measured.llr_N.sum(dtype=np.float64))
    return RecordStep(choices, _lopsidedness(up, flips - up), _lopsidedness(flips - up, up))


def _lopsidedness(towards: int, away: int) -> float:
    return towards * math.log(LOPSIDED / EVEN) + away * math.log((1 - LOPSIDED) / (1 - EVEN))


def record_after(before: RecordStep, step: RecordStep, sequential: Sequential) -> RecordStep:
    """Returns the state of a record's three tests, each at least 0, one job later."""
    choices = max(0.0, before.choices + max(sequential.least, step.choices))
    return RecordStep(choices, max(0.0, before.upward + step.upward), max(0.0, before.downward + step.downward))
