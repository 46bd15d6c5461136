"""Replay of a signed bundle, behind ``assize validator replay``: judges its artifacts again and compares.

Verdicts must be the same. Measurements must agree within the rules' bounds on honest engines, since another processor
adds in another order. Counts must be equal. The juror's fingerprint of its prefill must be one of these tokens, this
policy and this juror: a bundle that was copied, invented or written without running the model has another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from protocol.errors import Unavailable
from protocol.transport.blobs import BlobStores
from protocol.wire.evidence import Evidence, Finding, JobEvidence, Measurements, parse_signed
from protocol.wire.fingerprints import Compared, Likeness
from protocol.wire.pins import UnfitCheckpoint
from protocol.wire.reasons import Reason
from protocol.wire.rules import Rules, Thresholds
from validator.judging.claims import Claim
from validator.judging.fetching import Absence, fetch_once
from validator.judging.fingerprinting import KeptRows, bounds, compare_fingerprints
from validator.judging.judge import FetchedJob, Judgement, judge, judge_unfit, limits_of
from validator.judging.registry import CHECKS
from validator.judging.verdict import with_finding
from validator.queue.judged_round import JudgedRound
from validator.review.archive import Archive
from validator.review.contradictions import contradictions
from validator.settings import ValidatorSettings


@dataclass(frozen=True, slots=True)
class Difference:
    """Largest difference in one column over all jobs; ``tolerance`` is None if other columns bound this one."""

    column: str
    largest: float
    tolerance: float | None

    @property
    def tolerable(self) -> bool:
        """Returns whether two honest verifiers may differ by this much."""
        return self.tolerance is None or self.largest <= self.tolerance


@dataclass(frozen=True, slots=True)
class Resemblance:
    """One job's fingerprint in a bundle beside this machine's; ``engine`` is the juror's, ``same`` if it is this one.

    bound, gap_bound  largest distance, and difference of gaps, between two honest prefills
    """

    job: int
    engine: str
    same: bool
    rollouts: tuple[Compared, ...]
    bound: float
    gap_bound: float

    @property
    def apart(self) -> list[int]:
        """The rollouts whose figures are not those of an honest prefill."""
        return [n for n, rollout in enumerate(self.rollouts) if rollout.likeness is Likeness.APART]

    @property
    def furthest(self) -> float:
        """Largest distance of a rollout's projections."""
        return max(rollout.distance for rollout in self.rollouts)

    @property
    def widest(self) -> float:
        """Largest difference of a rollout's gaps, in logits."""
        return max(rollout.gap for rollout in self.rollouts)


@dataclass(frozen=True, slots=True)
class Replay:
    """A bundle compared with the same judgement made here.

    contradictions  sentences on contradictions within the bundle or with the chain; with any, nothing is judged again
    reasons         job, the bundle's reason, and this machine's
    fingerprints    of the jobs that both measured
    notes           sentences on what could not be repeated
    """

    juror: int
    round: int
    contradictions: tuple[str, ...] = ()
    reasons: tuple[tuple[int, Reason, Reason], ...] = ()
    differences: tuple[Difference, ...] = ()
    fingerprints: tuple[Resemblance, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def prefilled(self) -> bool:
        """True if every fingerprint is that of a prefill for this juror."""
        return not any(one.apart for one in self.fingerprints)

    @property
    def confirmed(self) -> bool:
        """True if the bundle is consistent and agrees with this machine."""
        same = all(said is found for _, said, found in self.reasons)
        tolerable = all(one.tolerable for one in self.differences)
        return not self.contradictions and same and tolerable and self.prefilled


EXACT = ("tokens_N", "chunks_N")
"""Columns that honest verifiers agree on exactly."""


def tolerances(thresholds: Thresholds) -> dict[str, float | None]:
    """Returns by how much two honest verifiers may differ in each column, as the checks state it."""
    bounds = {column: bound for check in CHECKS for column, bound in check.columns.items()}
    return {
        column: 0.0 if column in EXACT else None if (bound := bounds[column]) is None else thresholds.bounds[bound]
        for column in Measurements.__slots__
    }


def replay(
    settings: ValidatorSettings, data: bytes, artifacts: Path | None = None, model: Path | None = None
) -> Replay:
    """Judges the jobs of the bundle in ``data`` again and compares.

    ``artifacts`` is a directory of artifacts named by root; None fetches them from the submitted URIs. ``model`` is a
    directory of the round's weights; None fetches them.

    Raises:
        Rejected: ``data`` is not a bundle, or names a round that does not exist.
        Unavailable: an artifact or the weights cannot be fetched.
    """
    signed = parse_signed(data)
    evidence = signed.evidence
    with closing(Archive(settings, model)) as archive:
        round_ = archive.judged_round(evidence.round)
        wrong = tuple(contradictions(signed, round_, archive.rounds.keys.get(evidence.juror, "")))
        if wrong:
            return Replay(evidence.juror, evidence.round, wrong)
        with closing(BlobStores(trusted=archive.coordinators.urls)) as stores:
            judgements = _judged(archive, round_, evidence, artifacts, stores)
        rules = round_.context.rules
        history, whole = archive.history(round_.record_point, evidence.juror)
        found = [judgement.evidence for judgement in round_.with_records(history, judgements)]
        found = [_with_samples(said, ours) for said, ours in zip(evidence.jobs, found, strict=True)]
        return Replay(
            evidence.juror,
            evidence.round,
            reasons=tuple(
                (ours.job, said.reason, ours.reason) for said, ours in zip(evidence.jobs, found, strict=True)
            ),
            differences=tuple(_differences(evidence.jobs, found, rules)),
            fingerprints=tuple(
                resemblances(evidence, round_, {one.claim.job: one.rows for one in judgements if one.rows is not None})
            ),
            notes=tuple(_notes(evidence.jobs, whole)),
        )


def sentences(replay: Replay) -> Iterator[str]:
    """Yields the conclusions as sentences."""
    place = f"juror {replay.juror}'s bundle on round {replay.round}"
    if replay.contradictions:
        yield from (f"{place} is contradicted: {sentence}" for sentence in replay.contradictions)
        return
    yield from replay.notes
    other = [each for each in replay.reasons if each[1] is not each[2]]
    for job, said, found in other:
        yield f"job {job}: the bundle says {said.name.lower()}, this machine finds {found.name.lower()}"
    yield from (
        f"{one.column} differs by {one.largest:g}; honest verifiers differ by at most {one.tolerance:g}"
        for one in replay.differences
        if not one.tolerable
    )
    for one in replay.fingerprints:
        if one.apart:
            yield (
                f"job {one.job}: its fingerprint is not that of a prefill by juror {replay.juror}: rollouts "
                f"{one.apart} are apart by up to {one.furthest:.3g} and {one.widest:.3g} logits; honest prefills are "
                f"by at most {one.bound:g} and {one.gap_bound:g}"
            )
    if replay.fingerprints and replay.prefilled:
        rollouts = [rollout for one in replay.fingerprints for rollout in one.rollouts]
        equal = sum(rollout.likeness is Likeness.EQUAL for rollout in rollouts)
        yield f"{place}: its prefill shows in all {len(rollouts)} rollouts, bit for bit in {equal}"
    if not other:
        yield f"{place}: all {len(replay.reasons)} verdicts are the same here"
    if replay.confirmed:
        apart = [one for one in replay.differences if one.largest]
        yield f"{place}: measurements agree " + ("within tolerance" if apart else "bit for bit")


def resemblances(evidence: Evidence, round_: JudgedRound, kept: Mapping[int, KeptRows]) -> Iterator[Resemblance]:
    """Yields each fingerprint of a bundle beside that of the rows ``kept`` here for its juror, by job."""
    thresholds = round_.context.rules.thresholds
    seed = round_.followed.draws[evidence.attempt]
    for said in evidence.fingerprints:
        if said.job not in kept:
            continue
        rows = kept[said.job]
        own = rows.fingerprint(said.job, seed, round_.claim(said.job).seed, evidence.juror)
        same = (said.engine, said.canary) == (own.engine, own.canary)
        compared = tuple(compare_fingerprints(said, own, thresholds))
        yield Resemblance(said.job, said.engine, same, compared, *bounds(thresholds))


def _judged(
    archive: Archive, round_: JudgedRound, evidence: Evidence, artifacts: Path | None, stores: BlobStores
) -> list[Judgement]:
    """Judges the jobs; under a version that is no checkpoint of the run they are void without their artifacts."""
    try:
        policy = archive.policy(round_)
    except UnfitCheckpoint as error:
        return judge_unfit([round_.claim(job.job) for job in evidence.jobs], error)
    submitted = [_submitted(round_, job, artifacts, stores) for job in evidence.jobs]
    return judge(policy, round_.context.rules, submitted, evidence.juror)


def _submitted(round_: JudgedRound, job: JobEvidence, artifacts: Path | None, stores: BlobStores) -> FetchedJob:
    """The job's artifact; one that the juror could not fetch stays unavailable."""
    claim = round_.claim(job.job)
    found = _kept(artifacts, claim) if artifacts is not None else _fetched(round_, claim, stores)
    missing = [finding for finding in job.findings if finding.reason is Reason.UNAVAILABLE]
    if missing:
        return FetchedJob(claim, missing[0])
    if found is None:
        place = f"in {artifacts}" if artifacts is not None else f"at {claim.uri}: give its folder with --artifacts"
        raise Unavailable(f"the artifact of job {claim.job}, 0x{claim.root.hex()}, is not {place}")
    return FetchedJob(claim, found)


def _kept(artifacts: Path, claim: Claim) -> bytes | None:
    name = claim.root.hex()
    for path in (artifacts / f"0x{name}", artifacts / name, artifacts / name[:2] / name):
        if path.is_file():
            return path.read_bytes()
    return None


def _fetched(round_: JudgedRound, claim: Claim, stores: BlobStores) -> bytes | Finding | None:
    limits = limits_of(round_.context.rules, round_.context.environment)
    found = fetch_once(stores, claim, limits.file_bytes)
    return None if isinstance(found, Absence) else found


def _with_samples(said: JobEvidence, found: JobEvidence) -> JobEvidence:
    """Returns ``found`` with the bundle's finding on steered rewards, which rests on the juror's own samples."""
    steered = [finding for finding in said.findings if finding.reason is Reason.STEERED]
    return with_finding(found, steered[0]) if steered and found.reason is not Reason.STEERED else found


def _notes(jobs: Sequence[JobEvidence], whole: bool) -> Iterator[str]:
    for job in jobs:
        if any(finding.reason is Reason.UNAVAILABLE for finding in job.findings):
            yield f"job {job.job}: the juror could not fetch its artifact, which cannot be repeated now"
        if any(finding.reason is Reason.STEERED for finding in job.findings):
            yield f"job {job.job}: the juror's own samples say that rewards are steered, which cannot be repeated here"
    if not whole:
        yield "some bundles of earlier rounds could not be fetched: the nodes' records lack them"


def _differences(said: Sequence[JobEvidence], found: Sequence[JobEvidence], rules: Rules) -> Iterator[Difference]:
    pairs = [(theirs.measurements, ours.measurements) for theirs, ours in zip(said, found, strict=True)]
    for column, tolerance in tolerances(rules.thresholds).items():
        apart = [
            _apart(getattr(theirs, column), getattr(ours, column))
            for theirs, ours in pairs
            if theirs is not None and ours is not None
        ]
        yield Difference(column, max(apart, default=0.0), tolerance)


def _apart(theirs: np.ndarray, ours: np.ndarray) -> float:
    if theirs.shape != ours.shape:
        return float("inf")
    return float(np.abs(theirs.astype(np.float64) - ours.astype(np.float64)).max(initial=0.0))
