"""Contents of jobs: what the operator's sources have of them, for the pages that speak of them.

It is asked for once a page's snapshot of the database is closed, for a bounded time: what is not there by then goes on
arriving, and the page says so.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace

from ledger.api.blobs import BlobName, BlobSource, VersionPlace
from ledger.explorer.findings import BundleReading, JobReading, RecordStep, read_bundle, record_after
from ledger.explorer.rollouts import ShownArtifact, shown_artifact
from ledger.explorer.texts import Decoder, Texts
from ledger.facts import Checkpoint, Job, Round, Seat
from ledger.queries.verdicts import NodeVerdict
from protocol.chain.deployment import Deployment
from protocol.chain.structs import verdict_in
from protocol.errors import Rejected, Unavailable
from protocol.wire.artifact_blob import HEAD_BYTES
from protocol.wire.evidence import Finding, parse_signed
from protocol.wire.manifest import Authority
from protocol.wire.reasons import Reason
from protocol.wire.rollout import Artifact, decode
from protocol.wire.votes import Vote, reasons_of

PAGE_SECONDS = 2.0
"""Longest time that a page waits for its bytes."""
KEPT_ARTIFACTS, MOST_READ_BYTES = 4, 8 << 20
"""Artifacts held in memory, the ones used last, and the largest file that is read for a page."""
MOST_MARKS = 6
"""Findings marked on one rollout."""
SEATS_READ = 3
"""Bundles of a round that a node's page reads."""
KEPT_BUNDLES = 512
"""Bundles whose readings are held in memory, the ones used last."""


@dataclass(frozen=True, slots=True)
class NamedSeat:
    """A seat whose vote names evidence: its round's submitted jobs, and the key that the juror had when it voted."""

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
class RoundSources:
    """A round or the trial of an appeal, with one node's jobs in it, its seats with evidence, and its rules.

    It is not ``counted`` if it was chosen for a refusal: a record of such rounds alone would be biased.
    """

    round: Round
    jobs: tuple[Job, ...]
    seats: tuple[NamedSeat, ...]
    rules_hash: bytes
    counted: bool = True


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


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """One job of a node in the order of the chain: what its jurors measured, and the record's three tests after it.

    Args:
        job: the job, which is settled.
        jurors: bundles with its measurements.
        step: the highest that one of them states, in each test.
        after: the tests after this job, in nats, each at least 0.
    """

    job: Job
    jurors: int
    step: RecordStep
    after: RecordStep


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """Evidence that published bundles add up to over the newest jobs of one node under one set of rules.

    Args:
        run: run of the newest job.
        bound: evidence in nats that condemns, by the run's rules.
        jobs: the jobs with measurements, oldest first.
        missing: bundles that could not be read.
        problem: reason why there is none; empty where there is one.
    """

    run: int = 0
    bound: float = 0.0
    jobs: tuple[RecordedJob, ...] = ()
    missing: int = 0
    problem: str = ""

    @property
    def reached(self) -> float:
        """The highest test after the last job."""
        after = self.jobs[-1].after
        return max(after.choices, after.upward, after.downward)


@dataclass(frozen=True, slots=True)
class NodeContents:
    """Evidence on a node: its record, and the finding behind a refusal by (round, job) where one can be had."""

    record: NodeRecord
    findings: Mapping[tuple[int, int], Finding]


class Contents:
    """Bytes of jobs, read for pages. Threads may share it."""

    def __init__(self, blobs: BlobSource, deployment: Deployment) -> None:
        self._blobs, self._deployment = blobs, deployment
        self._texts = Texts(blobs)
        self._lock = threading.Lock()
        self._artifacts: OrderedDict[bytes, tuple[Artifact, int]] = OrderedDict()
        self._bundles: OrderedDict[NamedSeat, BundleReading] = OrderedDict()

    def job(self, job: Job, sources: JobSources, first: int, seconds: float = PAGE_SECONDS) -> JobContents:
        """Returns the contents of a job, its rollouts from ``first`` on, as far as they are there in time."""
        until = time.monotonic() + seconds
        self._blobs.begin([BlobName("artifact", job.root), *map(_bundle_of, sources.seats)])
        evidence = tuple(self._evidence(job, named, until) for named in sources.seats)
        try:
            artifact = self._artifact(job, sources, first, _marks(evidence), until)
        except (Rejected, Unavailable) as error:
            return JobContents(None, str(error), self._blobs.named, evidence)
        return JobContents(artifact, "", True, evidence)

    def node(self, rounds: Sequence[RoundSources], refusals: Sequence[NodeVerdict]) -> NodeContents:
        """Returns the evidence on a node in ``rounds``, the newest first."""
        until = time.monotonic() + PAGE_SECONDS
        if not self._blobs.named:
            return NodeContents(NodeRecord(problem="this ledger asks no coordinator for jurors' evidence"), {})
        rounds = [replace(each, seats=each.seats[:SEATS_READ]) for each in rounds]
        self._blobs.begin(_bundle_of(named) for each in rounds for named in each.seats)
        bundles = {each.round.round: self._bundles_of(each, until) for each in rounds}
        return NodeContents(self._record(rounds, bundles, until), _findings(bundles, refusals))

    def _bundles_of(self, sources: RoundSources, until: float) -> list[BundleReading]:
        found = []
        for named in sources.seats:
            with suppress(Rejected, Unavailable):
                found.append(self.bundle(named, until))
        return found

    def _record(
        self, rounds: Sequence[RoundSources], bundles: Mapping[int, list[BundleReading]], until: float
    ) -> NodeRecord:
        counted = (each for each in rounds if each.counted and not each.round.parent)
        settled = [each for each in counted if each.round.state == "settled"]
        if not settled:
            return NodeRecord(problem="no round of its jobs is settled")
        run, rules_hash = settled[0].round.run, settled[0].rules_hash
        try:
            sequential = self._blobs.rules(rules_hash, _left(until)).sequential
        except (Rejected, Unavailable) as error:
            return NodeRecord(problem=str(error))
        of_run = [each for each in settled if (each.round.run, each.rules_hash) == (run, rules_hash)]
        after, jobs = RecordStep(0.0, 0.0, 0.0), list[RecordedJob]()
        for sources in reversed(of_run):
            for job in sources.jobs:
                steps = _steps(bundles[sources.round.round], job)
                if steps:
                    step = RecordStep(*map(max, zip(*map(astuple, steps), strict=True)))
                    after = record_after(after, step, sequential)
                    jobs.append(RecordedJob(job, len(steps), step, after))
        missing = sum(len(each.seats) - len(bundles[each.round.round]) for each in of_run)
        problem = "" if jobs else "none of the bundles on its newest jobs can be had"
        return NodeRecord(run, sequential.bound, tuple(jobs), missing, problem)

    def bundle(self, named: NamedSeat, until: float) -> BundleReading:
        """Returns the bundle that a seat's vote names.

        Raises:
            Rejected: there is none, or it is not the juror's.
            Unavailable: it did not come by the monotonic second ``until``.
        """
        with self._lock:
            if (kept := self._bundles.get(named)) is not None:
                self._bundles.move_to_end(named)
                return kept
        seat, (_, root, signers) = named.seat, _bundle_of(named)
        signed = parse_signed(self._blobs.get("evidence", root, _left(until), signers), root)
        of = (self._deployment.chain_id, self._deployment.rounds, seat.round, seat.attempt, seat.juror)
        reading = read_bundle(signed, of, named.key)
        with self._lock:
            self._bundles[named] = reading
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
        artifact, size = self._read(job.root, until)
        decoder, textless = self._decoder(sources, until)
        if (artifact.round, artifact.job, artifact.node) != (job.round, job.job, job.node):
            place = f"job {artifact.job} of round {artifact.round} by node {artifact.node}"
            raise Rejected(f"the bytes that the node signed are those of {place}")
        return shown_artifact(artifact, size, first, decoder, textless, marks)

    def _read(self, root: bytes, until: float) -> tuple[Artifact, int]:
        """Returns an artifact and the size of its file."""
        with self._lock:
            if (kept := self._artifacts.get(root)) is not None:
                self._artifacts.move_to_end(root)
                return kept
        file = self._blobs.get("artifact", root, _left(until))[HEAD_BYTES:]
        if len(file) > MOST_READ_BYTES:
            raise Rejected(f"their file has {len(file)} bytes, more than the {MOST_READ_BYTES} that a page reads")
        read = decode(file), len(file)
        with self._lock:
            self._artifacts[root] = read
            while len(self._artifacts) > KEPT_ARTIFACTS:
                self._artifacts.popitem(last=False)
        return read

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


def _bundle_of(named: NamedSeat) -> BlobName:
    return BlobName("evidence", named.seat.evidence_root, (named.key,))


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
    return {rollout: marks[:MOST_MARKS] for rollout, marks in found.items()}


def _steps(bundles: Sequence[BundleReading], job: Job) -> list[RecordStep]:
    """Returns what each bundle states of a job that it measured."""
    read = [bundle.jobs.get(job.job) for bundle in bundles]
    return [each.step for each in read if each and each.step and (each.node, each.root) == (job.node, job.root)]


def _findings(
    bundles: Mapping[int, list[BundleReading]], refusals: Sequence[NodeVerdict]
) -> dict[tuple[int, int], Finding]:
    """Returns the first finding with the reason of each verdict."""
    found = {}
    for verdict in refusals:
        read = (bundle.jobs.get(verdict.job) for bundle in bundles.get(verdict.trial, []))
        told = (finding for each in read if each and each.node == verdict.node for finding in each.findings)
        same = (finding for finding in told if finding.reason.name.lower() == verdict.reason)
        if (finding := next(same, None)) is not None:
            found[verdict.round, verdict.job] = finding
    return found


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())
