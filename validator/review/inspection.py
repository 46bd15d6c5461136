"""What ``assize validator check`` does: one artifact, by hand, as the daemon would, and then token by token."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import Rejected
from protocol.wire.reasons import Reason
from protocol.wire.rollout import DEFAULT_LIMITS, decode
from protocol.wire.rules import Rules
from validator.judging.judge import Examination, FetchedJob, Judgement, PolicyVersion, examine
from validator.records.record import EvidenceState
from validator.review.archive import Archive
from validator.rounds import FollowedRound
from validator.settings import ValidatorSettings


@dataclass(frozen=True, slots=True)
class Inspection:
    """A judgement and everything it rests on.

    judgement    with the node's record taken into account
    examination  of the artifact alone
    state        the node's evidence when the round opened
    whole        whether every bundle that counts for the record could be fetched
    """

    judgement: Judgement
    rules: Rules
    policy: PolicyVersion
    examination: Examination
    state: EvidenceState
    whole: bool

    @property
    def reason(self) -> Reason:
        """The verdict."""
        return self.judgement.reason


def inspect(
    settings: ValidatorSettings, data: bytes, round_: int, job: int | None = None, model: Path | None = None
) -> Inspection:
    """Judges ``data`` as the artifact of ``job`` (None: the one it names) of a round, whatever state that is in.

    ``model`` is a directory that holds the round's weights; None fetches them as the daemon does. Raises ``Rejected``
    where the round or the job was never submitted, ``Unavailable`` where something is out of reach.
    """
    with closing(Archive(settings, model)) as archive:
        judged = archive.judged_round(round_)
        claim = judged.claim(_job(judged.followed, data, job))
        policy, context = archive.policy(judged), judged.context
        (examined,) = examine(policy, context.rules, context.environment, [FetchedJob(claim, data)])
        history, whole = archive.history(judged.record_point)
        (judgement,) = judged.with_records(history, [examined.judgement])
        state = history.state(judged.record_point, claim.node)
        return Inspection(judgement, context.rules, policy, examined, state, whole)


def _job(followed: FollowedRound, data: bytes, job: int | None) -> int:
    """The job that was asked for, or else the one the artifact names, or else the only one there is."""
    if job is None:
        try:
            job = decode(data, DEFAULT_LIMITS).job
        except Rejected:
            if len(followed.leaves) != 1:
                raise
            (job,) = followed.leaves
    if job not in followed.leaves:
        raise Rejected(f"nobody submitted job {job} of round {followed.judged_round}; name one with --job")
    return job
