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
from validator.judging.checks import artifact_limits
from validator.judging.claims import Claim
from validator.judging.fetching import Fetching
from validator.judging.judge import Judgement, Submitted, judge, judge_unread, problems_of
from validator.judging.runs import RunContext
from validator.rounds import FollowedRound

ATTEMPTS = 3
"""Times the judging of a round may fail on our side before it counts as impossible."""

log = structlog.get_logger()


@dataclass(slots=True)
class Docket:
    """What there is on one round: judgements by job, and how often judging failed on our side."""

    judged: dict[int, Judgement] = field(default_factory=dict)
    failures: int = 0

    @property
    def impossible(self) -> bool:
        """True once judging has failed too often: the juror abstains."""
        return self.failures >= ATTEMPTS


@dataclass(frozen=True, slots=True)
class Trial:
    """A round to be judged: as followed, its run, its policy's manifest root from the chain, and its docket."""

    followed: FollowedRound
    context: RunContext
    manifest_root: bytes
    docket: Docket

    @property
    def judged(self) -> bool:
        """Whether the round is closed and every submitted job has its judgement."""
        return self.followed.submitted is not None and set(self.followed.jobs) <= set(self.docket.judged)

    @property
    def judgements(self) -> list[Judgement]:
        """Those of the submitted jobs, ascending."""
        return [self.docket.judged[job] for job in self.followed.jobs]

    @property
    def waiting(self) -> list[Claim]:
        """Claims not judged yet, ascending by job."""
        return [self.claim(job) for job in sorted(self.followed.leaves) if job not in self.docket.judged]

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


class Bench(ABC):
    """Where rounds are judged: in this process (`Desk`) or by whoever takes tasks from a queue (`QueuedDesk`)."""

    def __init__(self) -> None:
        self._dockets: dict[tuple[int, bytes], Docket] = {}

    def docket(self, followed: FollowedRound) -> Docket:
        """Returns what there is on a round; a reorganised round is another one."""
        return self._dockets.setdefault((followed.number, followed.beacon), Docket())

    @abstractmethod
    def work(self, trials: Sequence[Trial]) -> bool:
        """Moves the judging of ``trials`` on; returns whether there was anything to do."""

    @abstractmethod
    def settle_missing(self, trial: Trial) -> bool:
        """Judges what has not come as unavailable, if something of the round has: then it is not us.

        Returns whether the round is judged now; where it is not, the juror abstains.
        """

    def keep(self, rounds: Sequence[FollowedRound]) -> None:
        """Forgets every round but these."""
        kept = {(followed.number, followed.beacon) for followed in rounds}
        self._dockets = {key: docket for key, docket in self._dockets.items() if key in kept}

    def close(self) -> None:  # noqa: B027
        """Lets go of what this bench alone holds."""


class Desk(Bench):
    """Judges what is ready in this process, all jobs of one policy version in one prefill."""

    def __init__(self, fetching: Fetching) -> None:
        super().__init__()
        self._fetching = fetching

    def work(self, trials: Sequence[Trial]) -> bool:
        """Fetches and judges what it can; returns whether there was anything to judge."""
        groups: dict[tuple[int, bytes, bytes], list[tuple[Trial, Submitted]]] = {}
        for trial in trials:
            ready = [] if trial.docket.impossible else self._ready(trial)
            if trial.weights_there() and ready:
                group = (trial.context.run, trial.context.rules_hash, trial.manifest_root)
                groups.setdefault(group, []).extend((trial, job) for job in ready)
        for jobs in groups.values():
            _judge(jobs)
        return bool(groups)

    def settle_missing(self, trial: Trial) -> bool:
        """See ``Bench``."""
        missing = trial.waiting
        came = [claim for claim in missing if self._look(trial, claim) is not None]
        fetched = any(judgement.reason is not Reason.UNAVAILABLE for judgement in trial.docket.judged.values())
        if not (trial.docket.impossible or came or not fetched or not trial.weights_there()):
            settle(trial, missing)
        return trial.judged

    def keep(self, rounds: Sequence[FollowedRound]) -> None:
        """Forgets every round but these, and what was fetched for it."""
        super().keep(rounds)
        self._fetching.keep({followed.opened.round for followed in rounds})

    def _ready(self, trial: Trial) -> list[Submitted]:
        """Jobs whose bytes are here and that are not judged yet; starts the fetch of the others."""
        looked = [(claim, self._look(trial, claim)) for claim in trial.waiting]
        return [Submitted(claim, data) for claim, data in looked if data is not None]

    def _look(self, trial: Trial, claim: Claim) -> bytes | Finding | None:
        problems = problems_of(trial.context.rules, trial.context.environment, claim)
        limits = artifact_limits(trial.context.rules, [problem.prompt for problem in problems])
        return self._fetching.look(claim, limits.file_bytes)


def _judge(jobs: Sequence[tuple[Trial, Submitted]]) -> None:
    """Judges jobs of one policy version."""
    first = jobs[0][0]
    try:
        policy = first.context.weights.policy(first.followed.opened.policy_version, first.manifest_root)
        judgements = judge(policy, first.context.rules, first.context.environment, [job for _, job in jobs])
    except Exception as error:  # nothing that breaks here may cost a worker or end the daemon: it abstains
        for docket in {id(trial.docket): trial.docket for trial, _ in jobs}.values():
            docket.failures += 1
        log.error("judging_failed", round=first.followed.number, error=repr(error), exc_info=True)
        return
    for (trial, _), judgement in zip(jobs, judgements, strict=True):
        record(trial, judgement)


def settle(trial: Trial, missing: Sequence[Claim]) -> None:
    """Judges ``missing`` as unavailable."""
    finding = Finding(Reason.UNAVAILABLE, "no answer within the time there was to judge")
    for claim in missing:
        record(trial, judge_unread(claim, finding))


def record(trial: Trial, judgement: Judgement) -> None:
    """Puts a judgement into the docket of its round."""
    trial.docket.judged[judgement.claim.job] = judgement
    _tell(judgement)


def _tell(judgement: Judgement) -> None:
    claim, findings = judgement.claim, judgement.evidence.findings
    said = {} if not findings else {"finding": findings[0].detail, "observed": findings[0].observed}
    log.info("judged", round=claim.round, job=claim.job, node=claim.node, reason=judgement.reason.name.lower(), **said)
