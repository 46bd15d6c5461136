"""The desk: for each round being tried, the artifacts on their way, the judgements made, and failures to make them.

Whatever goes wrong here is this side's: it is logged and counted, and held against nobody.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from validator.judging.claims import Claim
from validator.judging.fetching import Fetching
from validator.judging.judge import FetchedJob, Judgement, judge, judge_unread, limits_of
from validator.judging.runs import RunContext
from validator.rounds import FollowedRound

ATTEMPTS = 3
"""Times the judging of a round may fail on our side before it counts as impossible."""

log = structlog.get_logger()


@dataclass(slots=True)
class JudgingProgress:
    """What there is on one round: judgements by job, and how often judging failed on our side."""

    judged: dict[int, Judgement] = field(default_factory=dict)
    failures: int = 0

    @property
    def impossible(self) -> bool:
        """True once judging has failed too often: the juror abstains."""
        return self.failures >= ATTEMPTS


@dataclass(frozen=True, slots=True)
class JudgedRound:
    """A round to be judged: as followed, its run, its policy's manifest root from the chain, and its progress."""

    followed: FollowedRound
    context: RunContext
    manifest_root: bytes
    progress: JudgingProgress

    @property
    def judged(self) -> bool:
        """Whether the round is closed and every submitted job has its judgement."""
        return self.followed.submitted is not None and set(self.followed.jobs) <= set(self.progress.judged)

    @property
    def judgements(self) -> list[Judgement]:
        """Those of the submitted jobs, ascending."""
        return [self.progress.judged[job] for job in self.followed.jobs]

    @property
    def waiting(self) -> list[Claim]:
        """Claims not judged yet, ascending by job."""
        return [self.claim(job) for job in sorted(self.followed.leaves) if job not in self.progress.judged]

    def claim(self, job: int) -> Claim:
        """Returns one submitted job as it stands on chain."""
        submitted = self.followed.leaves[job]
        return Claim(
            chain_id=self.context.chain_id,
            rounds=self.context.rounds_address,
            round=self.followed.opened.round,
            job=job,
            node=submitted.node,
            beacon=self.followed.beacon,
            signed_beacon=submitted.signed_beacon,
            manifest_root=self.manifest_root,
            units=submitted.leaf.units,
            max_units=self.context.max_units,
            root=submitted.leaf.root,
            uri=submitted.uri,
            claimed_before=submitted.claimed_before,
        )

    def weights_there(self) -> bool:
        """Whether the policy's weights have come; starts fetching them where they have not."""
        return self.context.weights.prepare(self.followed.opened.policy_version, self.manifest_root)


class Judge(ABC):
    """Where rounds are judged: in this process (`LocalJudge`) or by background workers (`QueuedJudge`)."""

    def __init__(self) -> None:
        self._progress: dict[tuple[int, bytes], JudgingProgress] = {}

    def progress(self, followed: FollowedRound) -> JudgingProgress:
        """Returns what there is on a round; a reorganised round is another one."""
        return self._progress.setdefault((followed.number, followed.beacon), JudgingProgress())

    @abstractmethod
    def work(self, rounds: Sequence[JudgedRound]) -> bool:
        """Moves the judging of ``rounds`` on; returns whether there was anything to do."""

    @abstractmethod
    def settle_missing(self, round_: JudgedRound) -> bool:
        """Judges what has not come as unavailable, if something of the round has: then it is not us.

        Returns whether the round is judged now; where it is not, the juror abstains.
        """

    def keep(self, rounds: Sequence[FollowedRound]) -> None:
        """Forgets every round but these."""
        kept = {(followed.number, followed.beacon) for followed in rounds}
        self._progress = {key: progress for key, progress in self._progress.items() if key in kept}

    def close(self) -> None:  # noqa: B027
        """Lets go of what this bench alone holds."""


class LocalJudge(Judge):
    """Judges what is ready in this process, all jobs of one policy version in one prefill."""

    def __init__(self, fetching: Fetching) -> None:
        super().__init__()
        self._fetching = fetching

    def work(self, rounds: Sequence[JudgedRound]) -> bool:
        """Fetches and judges what it can; returns whether there was anything to judge."""
        groups: dict[tuple[int, bytes, bytes], list[tuple[JudgedRound, FetchedJob]]] = {}
        for round_ in rounds:
            ready = [] if round_.progress.impossible else self._ready(round_)
            if round_.weights_there() and ready:
                group = (round_.context.run, round_.context.rules_hash, round_.manifest_root)
                groups.setdefault(group, []).extend((round_, job) for job in ready)
        for jobs in groups.values():
            _judge(jobs)
        return bool(groups)

    def settle_missing(self, round_: JudgedRound) -> bool:
        """See ``Judge``."""
        missing = round_.waiting
        came = [claim for claim in missing if self._look(round_, claim) is not None]
        fetched = any(judgement.reason is not Reason.UNAVAILABLE for judgement in round_.progress.judged.values())
        if not (round_.progress.impossible or came or not fetched or not round_.weights_there()):
            settle(round_, missing)
        return round_.judged

    def keep(self, rounds: Sequence[FollowedRound]) -> None:
        """Forgets every round but these, and what was fetched for it."""
        super().keep(rounds)
        self._fetching.keep({followed.opened.round for followed in rounds})

    def _ready(self, round_: JudgedRound) -> list[FetchedJob]:
        """Jobs whose bytes are here and that are not judged yet; starts the fetch of the others."""
        looked = [(claim, self._look(round_, claim)) for claim in round_.waiting]
        return [FetchedJob(claim, data) for claim, data in looked if data is not None]

    def _look(self, round_: JudgedRound, claim: Claim) -> bytes | Finding | None:
        limits = limits_of(round_.context.rules, round_.context.environment, claim)
        return self._fetching.look(claim, limits.file_bytes)


def _judge(jobs: Sequence[tuple[JudgedRound, FetchedJob]]) -> None:
    """Judges jobs of one policy version."""
    first = jobs[0][0]
    try:
        policy = first.context.weights.policy(first.followed.opened.policy_version, first.manifest_root)
        judgements = judge(policy, first.context.rules, first.context.environment, [job for _, job in jobs])
    except Exception as error:  # nothing that breaks here may cost a worker or end the daemon: it abstains
        for progress in {id(round_.progress): round_.progress for round_, _ in jobs}.values():
            progress.failures += 1
        log.error("judging_failed", round=first.followed.number, error=repr(error), exc_info=True)
        return
    for (round_, _), judgement in zip(jobs, judgements, strict=True):
        record(round_, judgement)


def settle(round_: JudgedRound, missing: Sequence[Claim]) -> None:
    """Judges ``missing`` as unavailable."""
    finding = Finding(Reason.UNAVAILABLE, "no answer within the time there was to judge")
    for claim in missing:
        record(round_, judge_unread(claim, finding))


def record(round_: JudgedRound, judgement: Judgement) -> None:
    """Puts a judgement into the progress of its round."""
    round_.progress.judged[judgement.claim.job] = judgement
    _tell(judgement)


def _tell(judgement: Judgement) -> None:
    claim, findings = judgement.claim, judgement.evidence.findings
    said = {} if not findings else {"finding": findings[0].detail, "observed": findings[0].observed}
    log.info("judged", round=claim.round, job=claim.job, node=claim.node, reason=judgement.reason.name.lower(), **said)
