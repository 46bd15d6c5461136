"""Contents of jobs: what the operator's sources have of them, for the pages that speak of them.

It is asked for once a page's snapshot of the database is closed, for a bounded time: what is not there by then goes on
arriving, and the page says so.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ledger.api.blobs import BlobSource, VersionPlace
from ledger.explorer.findings import BundleReading, JobReading, read_bundle
from ledger.explorer.rollouts import ShownArtifact, shown_artifact
from ledger.explorer.texts import Decoder, Texts
from ledger.facts import Checkpoint, Job, Seat
from protocol.chain.deployment import Deployment
from protocol.chain.structs import verdict_in
from protocol.errors import Rejected, Unavailable
from protocol.wire.artifact_blob import HEAD_BYTES
from protocol.wire.evidence import parse_signed
from protocol.wire.manifest import Authority
from protocol.wire.reasons import Reason
from protocol.wire.rollout import decode
from protocol.wire.votes import Vote, reasons_of

PAGE_SECONDS = 2.0
"""Longest time that a page waits for its bytes."""
KEPT_BUNDLES = 512
"""Bundles whose readings are held in memory, the ones used last."""


@dataclass(frozen=True, slots=True)
class NamedSeat:
    """A seat whose vote names evidence: its round's submitted jobs, and the juror's key."""

    seat: Seat
    submitted: int
    key: str


@dataclass(frozen=True, slots=True)
class JobSources:
    """Places of a job's bytes, as the chain has them: its seats with evidence, its policy and its rules.

    ``uri`` is the worker's own text. ``policy`` is the version that made it, None if the ledger does not know it, and
    ``trainer`` the address that signed its manifest.
    """

    seats: tuple[NamedSeat, ...]
    rules_hash: bytes
    policy: Checkpoint | None
    trainer: str
    uri: str


@dataclass(frozen=True, slots=True)
class JurorEvidence:
    """Measurements of a job by one juror, beside its vote.

    Args:
        seat: the juror's seat.
        vote: what it voted on the job.
        voted: the reason of the vote; None if it cannot be read.
        measured: the job in its bundle, None for the reason ``problem``.
        problem: one sentence; empty if there is a bundle with the job.
    """

    seat: Seat
    vote: str
    voted: Reason | None
    measured: JobReading | None
    problem: str

    @property
    def contradicts(self) -> bool:
        """True if the bundle gives another reason than the vote."""
        return self.measured is not None and self.voted is not None and self.measured.reason is not self.voted


@dataclass(frozen=True, slots=True)
class JobContents:
    """Contents of a job for its page; ``artifact`` is None for the reason ``problem``.

    ``asked`` is False if the operator named no coordinator, so that there is nothing to show.
    """

    artifact: ShownArtifact | None
    problem: str
    asked: bool
    evidence: tuple[JurorEvidence, ...]


class Contents:
    """Bytes of jobs, read for pages. Threads may share it."""

    def __init__(self, blobs: BlobSource, deployment: Deployment) -> None:
        self._blobs, self._deployment = blobs, deployment
        self._texts = Texts(blobs)
        self._lock = threading.Lock()
        self._bundles: OrderedDict[tuple[bytes, str], BundleReading] = OrderedDict()

    def job(self, job: Job, sources: JobSources, first: int, seconds: float = PAGE_SECONDS) -> JobContents:
        """Returns the contents of a job, its rollouts from ``first`` on, as far as they are there in time."""
        until = time.monotonic() + seconds
        self._blobs.begin("artifact", [job.root])
        self._blobs.begin("evidence", [named.seat.evidence_root for named in sources.seats])
        evidence = tuple(self._evidence(job, named, until) for named in sources.seats)
        try:
            artifact = self._artifact(job, sources, first, _marks(evidence), until)
        except (Rejected, Unavailable) as error:
            return JobContents(None, str(error), self._blobs.named, evidence)
        return JobContents(artifact, "", True, evidence)

    def bundle(self, named: NamedSeat, until: float) -> BundleReading:
        """Returns the bundle that a seat's vote names.

        Raises:
            Rejected: there is none, or it is not the juror's.
            Unavailable: it did not come by the monotonic second ``until``.
        """
        place = (named.seat.evidence_root, named.key)
        with self._lock:
            if (kept := self._bundles.get(place)) is not None:
                self._bundles.move_to_end(place)
                return kept
        root, seat = named.seat.evidence_root, named.seat
        signed = parse_signed(self._blobs.get("evidence", root, _left(until)), root)
        of = (self._deployment.chain_id, self._deployment.rounds, seat.round, seat.attempt, seat.juror)
        reading = read_bundle(signed, of, named.key)
        with self._lock:
            self._bundles[place] = reading
            while len(self._bundles) > KEPT_BUNDLES:
                self._bundles.popitem(last=False)
        return reading

    def _evidence(self, job: Job, named: NamedSeat, until: float) -> JurorEvidence:
        seat, measured, problem = named.seat, None, ""
        try:
            measured = self.bundle(named, until).jobs.get(job.job)
            if measured is None:
                problem = "its bundle does not have the job"
            elif (measured.node, measured.root) != (job.node, job.root):
                measured, problem = None, "its bundle has the job with another node or artifact"
        except (Rejected, Unavailable) as error:
            problem = str(error)
        vote = verdict_in(seat.accept, seat.fraud, job.job).name.lower()
        return JurorEvidence(seat, vote, _voted(named, job.job), measured, problem)

    def _artifact(
        self, job: Job, sources: JobSources, first: int, marks: Mapping[int, Sequence[tuple[int, str]]], until: float
    ) -> ShownArtifact:
        blob = self._blobs.get("artifact", job.root, _left(until))
        artifact = decode(blob[HEAD_BYTES:])
        decoder, textless = self._decoder(sources, until)
        if (artifact.round, artifact.job, artifact.node) != (job.round, job.job, job.node):
            place = f"job {artifact.job} of round {artifact.round} by node {artifact.node}"
            raise Rejected(f"the bytes that the node signed are those of {place}")
        return shown_artifact(artifact, len(blob) - HEAD_BYTES, first, decoder, textless, marks)

    def _decoder(self, sources: JobSources, until: float) -> tuple[Decoder | None, str]:
        """Returns the run's decoder, or None and the reason."""
        try:
            if (policy := sources.policy) is None:
                raise Rejected("the ledger does not know the version that made it")
            rules = self._blobs.rules(sources.rules_hash, _left(until))
            authority = Authority(self._deployment.chain_id, self._deployment.market, sources.trainer)
            place = VersionPlace(policy.run, policy.version, policy.manifest_root, authority)
            return self._texts.decoder(place, rules, _left(until)), ""
        except (Rejected, Unavailable) as error:
            return None, str(error)


def _voted(named: NamedSeat, job: int) -> Reason | None:
    seat = named.seat
    try:
        vote = Vote(seat.accept, seat.fraud, seat.reasons, seat.evidence_root)
        return reasons_of(vote, named.submitted).get(job)
    except Rejected:
        return None


def _marks(evidence: Sequence[JurorEvidence]) -> dict[int, list[tuple[int, str]]]:
    """Returns, by rollout, the jurors whose findings speak of it, each once with its reason."""
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for each in evidence:
        for finding in () if each.measured is None else each.measured.findings:
            mark = (each.seat.juror, finding.reason.name.lower())
            if finding.rollout is not None and mark not in found[finding.rollout]:
                found[finding.rollout].append(mark)
    return found


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())
