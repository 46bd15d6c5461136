"""Validators that vote without running the model. They earn the fee of every vote that agrees with the verdict.

None of them reads an artifact: a verdict is made up for each job as soon as it is on chain. How soon each is found is
measured by ``tests/zoo/jurors.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from protocol.wire.evidence import Evidence, JobEvidence, JobFingerprint, Measurements
from protocol.wire.fingerprints import PROJECTIONS
from protocol.wire.reasons import Reason
from protocol.wire.rules import Rules
from protocol.wire.toploc.codec import chunk_spans
from validator.daemon import Validator
from validator.judging.claims import Claim
from validator.judging.judge import Judgement
from validator.queue.judged_round import Judge, JudgedRound
from validator.records.rewards import SampledGroup
from validator.rounds import FollowedRound

Invention = Callable[[JudgedRound, Claim], JobEvidence | None]
"""Makes up the evidence of a job; None: there is nothing to go by yet."""


def nothing(round_: int) -> Evidence | None:
    """Returns no bundle."""
    return None


@dataclass(frozen=True, slots=True)
class Inventing:
    """A judge that records what is made up for each job, in place of the judge of an honest validator."""

    replaced: Judge
    invention: Invention

    def work(self, rounds: Sequence[JudgedRound]) -> bool:
        """Records what can be made up; returns whether anything was."""
        waiting = [(round_, claim) for round_ in rounds for claim in round_.waiting]
        made = [(round_, claim, self.invention(round_, claim)) for round_, claim in waiting]
        for round_, claim, evidence in made:
            if evidence is not None:
                round_.record(Judgement(claim, evidence))
        return any(evidence is not None for _, _, evidence in made)

    def all_silent(self, round_: JudgedRound, late: bool) -> bool:
        """See ``Judge``; nothing is fetched."""
        return False

    def denied(self, round_: JudgedRound) -> bool:
        """See ``Judge``; nobody is asked."""
        return False

    def sample(self, round_: JudgedRound, job: int, secret: bytes, most: float) -> list[SampledGroup] | None:
        """See ``Judge``; nothing is sampled."""
        return None

    def keep(self, rounds: Sequence[FollowedRound]) -> None:
        """See ``Judge``; nothing is kept."""

    def close(self) -> None:
        """Closes the judge that it replaced."""
        self.replaced.close()


class AcceptsUnread(Validator):
    """Accepts every job, with a bundle that states no measurements."""

    def tick(self) -> bool:
        """Runs one pass over all rounds."""
        if not isinstance(self._judge, Inventing):
            self._judge = Inventing(self._judge, self.invention)
        return super().tick()

    def invention(self, round_: JudgedRound, claim: Claim) -> JobEvidence | None:
        """Returns the evidence to state of a job."""
        return unread(claim)


class InventsEvidence(AcceptsUnread):
    """Accepts every job, with measurements and fingerprints such as honest jurors have."""

    def invention(self, round_: JudgedRound, claim: Claim) -> JobEvidence | None:
        """Returns the evidence to state of a job."""
        return invented(claim, round_.context.rules, np.random.default_rng())

    def fingerprints(self, round_: JudgedRound, judgements: Sequence[Judgement]) -> tuple[JobFingerprint, ...]:
        """Returns the fingerprints to state."""
        chance = np.random.default_rng()
        return tuple(invented_fingerprint(judgement.evidence, chance) for judgement in judgements)


class CopiesEvidence(AcceptsUnread):
    """States what an accomplice on the same committee found, and abstains without one.

    Bundles are published after the last commitment, so that it can copy only from a juror that hands it its bundle.
    """

    overheard: Callable[[int], Evidence | None] = staticmethod(nothing)

    def invention(self, round_: JudgedRound, claim: Claim) -> JobEvidence | None:
        """Returns the evidence to state of a job."""
        heard = self.overheard(round_.followed.number)
        jobs = () if heard is None else heard.jobs
        return next((job for job in jobs if job.job == claim.job), None)

    def fingerprints(self, round_: JudgedRound, judgements: Sequence[Judgement]) -> tuple[JobFingerprint, ...]:
        """Returns the fingerprints to state."""
        heard = self.overheard(round_.followed.number)
        return () if heard is None else heard.fingerprints


class HidesBundle(AcceptsUnread):
    """Accepts every job, and publishes no bundle that could show it."""

    def tick(self) -> bool:
        """Runs one pass over all rounds."""
        worked = super().tick()
        for written in self._journal.unpublished():
            self._journal.mark_published(written.key)
        return worked


def unread(claim: Claim) -> JobEvidence:
    """Returns evidence that accepts a job without measurements. PURE."""
    return JobEvidence(claim.job, claim.node, claim.root, Reason.ACCEPTED, claim.units, claim.units, (), None)


def invented(claim: Claim, rules: Rules, chance: np.random.Generator) -> JobEvidence:
    """Returns evidence that accepts a job with measurements within every bound. PURE."""
    count, thresholds = rules.rollouts_per_job, rules.thresholds
    lengths_N = chance.integers(8, rules.max_tokens + 1, count)
    chunks_N = np.array([len(chunk_spans(length)) for length in lengths_N.tolist()])
    none_N = np.zeros(count, np.uint32)
    measured = Measurements(
        tokens_N=lengths_N.astype(np.uint32),
        flips_N=none_N,
        up_N=none_N,
        margin_max_N=none_N.astype(np.float32),
        margin_sum_N=none_N.astype(np.float32),
        gap_min_N=chance.exponential(0.1, count).astype(np.float32),
        llr_N=none_N.astype(np.float32),
        logprob_median_N=chance.uniform(0, thresholds.logprob_median / 2, count).astype(np.float32),
        logprob_max_N=chance.uniform(0, thresholds.logprob_tail / 2, count).astype(np.float32),
        chunks_N=chunks_N.astype(np.uint32),
        rel_C=chance.uniform(0, thresholds.toploc_mean / 2, chunks_N.sum()).astype(np.float32),
        null_C=chance.uniform(0.5, 1.0, chunks_N.sum()).astype(np.float32),
    )
    return JobEvidence(claim.job, claim.node, claim.root, Reason.ACCEPTED, claim.units, claim.units, (), measured)


def invented_fingerprint(evidence: JobEvidence, chance: np.random.Generator) -> JobFingerprint:
    """Returns figures of the size of honest ones for the rollouts of invented evidence. PURE."""
    count = 0 if evidence.measurements is None else len(evidence.measurements.tokens_N)
    projections = chance.normal(0.0, 8.0, PROJECTIONS * count).astype(np.float32)
    gaps_N = chance.exponential(2.0, count).astype(np.float32)
    return JobFingerprint(evidence.job, "transformers", bytes(32), projections, gaps_N)
