"""What ``assize validator check`` does: one artifact, by hand, as the daemon would, and then token by token."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import Rejected
from protocol.wire.reasons import Reason
from protocol.wire.rollout import DEFAULT_LIMITS, Artifact, decode
from protocol.wire.rules import Rules
from protocol.wire.sampling import noise_key
from validator.judging import checks
from validator.judging.claims import Claim
from validator.judging.judge import FetchedJob, Judgement, PolicyVersion, judge, problems_of
from validator.judging.prefill import DTYPES, Completed, Prefill, prefill
from validator.judging.runs import RunContext
from validator.records.record import EvidenceState
from validator.review.archive import Archive
from validator.rounds import FollowedRound
from validator.settings import ValidatorSettings


@dataclass(frozen=True, slots=True)
class CloseUp:
    """An artifact that could be run, and what the policy says of each of its tokens."""

    artifact: Artifact
    prefill: Prefill
    policy: PolicyVersion


@dataclass(frozen=True, slots=True)
class Inspection:
    """A judgement and what it rests on.

    close_up  None where the artifact could not be run
    state  where the node's record stood when the round opened
    whole     whether every bundle that counts for the record could be had
    """

    judgement: Judgement
    rules: Rules
    close_up: CloseUp | None
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
        judgements = judge(policy, context.rules, context.environment, [FetchedJob(claim, data)])
        history, whole = archive.history(judged.followed)
        (judgement,) = history.weigh(judged, judgements)
        state = history.state(judged.followed, claim.node)
        return Inspection(judgement, context.rules, look_closer(policy, context, claim, data), state, whole)


def look_closer(policy: PolicyVersion, context: RunContext, claim: Claim, data: bytes) -> CloseUp | None:
    """Runs the artifact once more and keeps what is said of each token; None where it cannot be run."""
    rules = context.rules
    problems = problems_of(rules, context.environment, claim)
    try:
        artifact = checks.read_artifact(claim, data, checks.artifact_limits(rules, [one.prompt for one in problems]))
    except Rejected:
        return None
    if checks.check_shape(artifact, rules, policy.vocabulary):
        return None
    sequences = [
        Completed(rollout.prompt_tokens, rollout.output_tokens, noise_key(claim.seed, n))
        for n, rollout in enumerate(artifact.rollouts)
    ]
    return CloseUp(
        artifact, prefill(policy.model, sequences, rules.temperature, DTYPES[rules.model.head_dtype]), policy
    )


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
        raise Rejected(f"nobody submitted job {job} of round {followed.opened.round}; name one with --job")
    return job
