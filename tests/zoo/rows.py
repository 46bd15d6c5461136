"""One row of the zoo's table: an adversary's jobs, what the judge says of them, and what the `toploc` package says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from deploy.adversaries import ADVERSARIES
from deploy.zoo import waiting
from protocol.wire.rules import Thresholds
from tests.zoo.asking import Said, ask
from tests.zoo.stage import Judged, Stage, passed
from tests.zoo.uplift import uplift
from validator.records.record import Ratios, bounded, ratios_of

SHOWN_JOBS = 32
"""So many jobs of each adversary are shown to the package."""
STEERING = "steering"
"""Beginning of the names of those that choose tokens for their reward."""
BYTES_ROUNDS = 64
"""Rounds of honest work that byte-level cheats are made of, over and over."""


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one adversary.

    caught              jobs that were not accepted, ``fraud`` of them condemned
    jobs_to_99          jobs until 99 of 100 such nodes are found out, by single jobs or by their record; None: more
                        than were judged
    record, predicted   the same by the record alone, and as the first half of the jobs foretells
    flips_passed        flips per 1,000 tokens of the jobs that were accepted
    chunks, chunks_ours chunks measured, and how many of them pass our check of activations
    uplift              of a steerer: mean reward of its first accepted jobs beyond that of honest work
    """

    name: str
    dtype: str
    kind: str
    jobs: int
    caught: int
    fraud: int
    reasons: tuple[tuple[str, int], ...]
    jobs_to_99: int | None
    record: int | None
    predicted: float | None
    evidence: float
    flips: int
    tokens: int
    flips_passed: float
    chunks: int
    chunks_ours: int
    said: Said
    uplift: float | None = None

    @property
    def share(self) -> float:
        """Share of the jobs that were caught."""
        return self.caught / self.jobs if self.jobs else 0.0

    @property
    def as_predicted(self) -> bool | None:
        """Whether the record took what was predicted, within 30% or one job; None where there is nothing to say."""
        if self.record is None or self.predicted is None:
            return None
        return abs(self.record - self.predicted) <= max(1.0, 0.3 * self.predicted)


def row_of(stage: Stage, name: str, jobs: int, toploc: bool = True) -> Row:
    """Puts an adversary through ``jobs`` jobs."""
    kind = ADVERSARIES[name].kind
    judged: list[Judged] = []
    for part in stage.run(name, jobs, BYTES_ROUNDS if kind == "bytes" else None):
        for one in part:  # files may be large: only those that are shown are kept
            judged.append(one if len(judged) < SHOWN_JOBS else replace(one, file=b""))
    said = ask(stage, judged[:SHOWN_JOBS]) if toploc else Said()
    row = conclude(name, kind, judged, stage, said)
    return replace(row, uplift=uplift(stage, judged[:SHOWN_JOBS])) if name.startswith(STEERING) else row


def conclude(name: str, kind: str, judged: Sequence[Judged], stage: Stage, said: Said) -> Row:
    """The row of jobs that were judged."""
    ratios = [ratios_of_job(one, stage) for one in judged]
    caught = sum(not passed(one) for one in judged)
    bound = stage.rules.sequential.bound
    half = len(ratios) // 2
    record = waiting.measured(ratios[half:], bound) if half else None
    single = waiting.by_single_jobs(caught, len(judged))
    flips = np.array([one.flips for one in judged]).reshape(-1, 3).sum(0)
    through = np.array([one.flips for one in judged if passed(one)]).reshape(-1, 3).sum(0)
    chunks, ours = _chunks(judged, stage.rules.thresholds)
    return Row(
        name=name,
        dtype=stage.label,
        kind=kind,
        jobs=len(judged),
        caught=caught,
        fraud=sum(one.judgement.reason.fraud for one in judged),
        reasons=tuple(Counter(one.judgement.reason.name for one in judged).most_common()),
        jobs_to_99=min((n for n in (single, record) if n is not None and n <= len(judged)), default=None),
        record=record,
        predicted=waiting.predicted(ratios[:half], bound) if half else None,
        evidence=float(np.mean([each.choices for each in ratios])) if ratios else 0.0,
        flips=int(flips[1]),
        tokens=int(flips[0]),
        flips_passed=1000 * float(through[1]) / max(1, int(through[0])),
        chunks=chunks,
        chunks_ours=ours,
        said=said,
    )


def ratios_of_job(judged: Judged, stage: Stage) -> Ratios:
    """What a job adds to its node's record: nothing where it could not be measured."""
    return bounded(ratios_of(judged.judgement.evidence.measurements), stage.rules.sequential)


def _chunks(judged: Sequence[Judged], thresholds: Thresholds) -> tuple[int, int]:
    """Chunks whose distance was measured, and those of them that are near enough."""
    total = near = 0
    for one in judged:
        measured = one.judgement.evidence.measurements
        if measured is not None and len(measured.rel_C):
            bounds_C = np.minimum(thresholds.toploc, thresholds.toploc_null_ratio * measured.null_C)
            total, near = total + len(measured.rel_C), near + int((measured.rel_C <= bounds_C).sum())
    return total, near
