"""Jurors that do not look, before a check of their bundles: what each saves, and in how many rounds it is found.

Work is honest, so that accepting everything earns every fee; an honest juror beside them must never be called lazy, in
whatever batches it judges.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from deploy.adversaries.lazy_jurors import invented, invented_fingerprint, unread
from protocol.wire.evidence import JobEvidence, JobFingerprint
from protocol.wire.fingerprints import Compared, Likeness, rows_of
from protocol.wire.toploc.codec import chunk_spans, decode_fields
from protocol.wire.toploc.definition import decode_bf16, evaluate
from tests.zoo.stage import HONEST, JOBS_AT_ONCE, Stage
from validator.judging.fingerprinting import KeptRows, compare_fingerprints
from validator.judging.judge import ExaminedJob, FetchedJob, examine, rows_for
from validator.review.contradictions import within

LAZY = 8
"""Node id of the juror that is checked."""
FIRST_ROUND = 1 << 20
SHARE = 0.05
"""Share of jobs that a recheck looks at, its default."""


@dataclass(slots=True)
class JurorRow:
    """What came of one juror.

    jobs       jobs it voted on
    found      jobs by which a check finds it, ``unprefilled`` of them without running the model
    furthest   largest distance and gap of any rollout, of those that were compared
    saved_ms   processor time that it saves a job
    """

    name: str
    jobs: int = 0
    found: int = 0
    unprefilled: int = 0
    furthest: tuple[float, float] = (0.0, 0.0)
    saved_ms: float = 0.0

    @property
    def rounds_to_99(self) -> int | None:
        """Rounds until 99 of 100 are found by one recheck of a share ``SHARE`` of the jobs; None: never."""
        if not self.found:
            return None
        if self.unprefilled == self.jobs:
            return 1  # every bundle of a round with a job to check is asked for and read
        missed = (1 - SHARE * self.found / self.jobs) ** JOBS_AT_ONCE
        return math.ceil(math.log(0.01) / math.log(missed))

    def note(self, compared: Sequence[Compared]) -> bool:
        """Takes in one job's comparison; returns whether it gives the juror away."""
        distance = max(self.furthest[0], *(each.distance for each in compared))
        self.furthest = distance, max(self.furthest[1], *(each.gap for each in compared))
        return any(each.likeness is Likeness.APART for each in compared)


@dataclass(frozen=True, slots=True)
class Looked:
    """One job as it was really judged, and the seed of the committee's draw."""

    stage: Stage
    job: ExaminedJob
    draw: bytes

    def fingerprint(self, juror: int) -> JobFingerprint:
        """The fingerprint of ``juror``."""
        claim, rows = self.job.judgement.claim, rows_for(juror, self.job, self.stage.policy)
        assert rows is not None
        return rows.fingerprint(claim.job, self.draw, claim.seed, juror)


Stated = tuple[JobEvidence, JobFingerprint | None] | None
"""A job in a bundle; None: no bundle is published."""


def reading_proofs(looked: Looked) -> Stated:
    """States true measurements, with rows as far as the artifact's proofs give them away, and no gap that it knows.

    A proof's polynomial gives the bits of the chunk's 128 largest entries at their positions, and noise elsewhere; what
    looks like a large entry is taken for one. No validator of the market does this: it is for the table.
    """
    claim, read, part = looked.job.judgement.claim, looked.job.read, looked.job.prefill
    assert read is not None
    assert part is not None
    hidden, kept = part.hidden_SH.shape[1], []
    rows = rows_of(claim.seed, LAZY, part.lengths_N.tolist())
    largest = float(part.hidden_SH.abs().max())
    for rollout, row in zip(read.artifact.rollouts, rows, strict=True):
        start = chunk_spans(len(rollout.output_tokens))[-1][0]
        modulus, *coefficients = decode_fields([rollout.proofs[-1]])[0].tolist()
        positions = np.arange((row - start) * hidden, (row - start + 1) * hidden)
        bits = evaluate(coefficients, positions % modulus)
        values = np.nan_to_num(np.abs(decode_bf16(np.minimum(bits, 0xFFFF))), nan=np.inf)
        kept.append(np.where((values <= largest) & (values > largest / 8), bits, 0).astype(np.uint16))
    rows_there = KeptRows("transformers", bytes(32), np.concatenate(kept), np.full(len(rows), 2.0, np.float32))
    return looked.job.judgement.evidence, rows_there.fingerprint(claim.job, looked.draw, claim.seed, LAZY)


def ways(chance: np.random.Generator) -> dict[str, Callable[[Looked], Stated]]:
    """Each lazy juror's part of a bundle for one job, by the name of the validator; ``chance`` makes figures up."""

    def invention(looked: Looked) -> Stated:
        evidence = invented(looked.job.judgement.claim, looked.stage.rules, chance)
        return evidence, invented_fingerprint(evidence, chance)

    return {
        "accepts-unread": lambda looked: (unread(looked.job.judgement.claim), None),
        "copies-evidence": lambda looked: (looked.job.judgement.evidence, looked.fingerprint(HONEST)),
        "reads-the-proofs": reading_proofs,
        "invents-evidence": invention,
        "hides-bundle": lambda looked: None,
    }


def juror_rows(stage: Stage, rounds: int) -> list[JurorRow]:
    """The rows of honest jurors, that judge jobs together and one by one, and of all lazy ones, over honest rounds."""
    lazy, spent = ways(np.random.default_rng(1)), 0.0
    rows = {name: JurorRow(name) for name in ("honest", "honest, other batches", *lazy)}
    for round_ in range(rounds):
        submitted, draw = _submitted(stage, round_), stage.beacon(round_ + (1 << 40))
        began = time.process_time()
        together = examine(stage.policy, stage.rules, submitted)
        spent += time.process_time() - began
        for job, one in zip(submitted, together, strict=True):
            (alone,) = examine(stage.policy, stage.rules, [job])
            looked, truth = Looked(stage, one, draw), one.judgement.evidence
            _check(rows["honest"], looked, (truth, looked.fingerprint(LAZY)))
            _check(rows["honest, other batches"], looked, (truth, Looked(stage, alone, draw).fingerprint(LAZY)))
            for name, way in lazy.items():
                _check(rows[name], looked, way(looked))
    for name in lazy:
        rows[name].saved_ms = 1000 * spent / max(1, rows[name].jobs)
    return list(rows.values())


def _submitted(stage: Stage, round_: int) -> list[FetchedJob]:
    """Jobs of an honest worker, as they are fetched."""
    work = stage.work(FIRST_ROUND + round_)
    made = stage.honest().make(work)
    return [FetchedJob(stage.claim(work, one, {}), one.blob) for one in made]


def _check(row: JurorRow, looked: Looked, stated: Stated) -> None:
    """Checks one job of a bundle as a replay does: first by itself, then against the rows found here."""
    row.jobs += 1
    if stated is None or any(_contradictions(looked, *stated)):
        row.found, row.unprefilled = row.found + 1, row.unprefilled + 1
        return
    _, fingerprint = stated
    assert fingerprint is not None
    row.found += row.note(compare_fingerprints(fingerprint, looked.fingerprint(LAZY), looked.stage.rules.thresholds))


def _contradictions(looked: Looked, evidence: JobEvidence, fingerprint: JobFingerprint | None) -> Iterator[str]:
    yield from within(evidence, looked.stage.rules)
    if evidence.measurements is not None and fingerprint is None:
        yield "measured without a fingerprint"
