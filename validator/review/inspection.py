"""Inspection of one artifact, behind ``assize validator check``: judged as the daemon does, and kept for display."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import Rejected
from protocol.wire.artifact_blob import HEAD_BYTES, head_of
from protocol.wire.canonical_parquet import MAGIC
from protocol.wire.reasons import Reason
from protocol.wire.rollout import DEFAULT_LIMITS, decode, rollouts_root
from protocol.wire.rules import Rules
from validator.judging.claims import Claim
from validator.judging.judge import ExaminedJob, FetchedJob, Judgement, PolicyVersion, examine
from validator.records.record import EvidenceState
from validator.review.archive import Archive
from validator.rounds import FollowedRound
from validator.settings import ValidatorSettings


@dataclass(frozen=True, slots=True)
class Inspection:
    """A judgement and everything it rests on.

    judgement    of the artifact alone: only a juror's own measurements of earlier rounds can condemn by the record
    examination  of the artifact alone
    state        the node's evidence when the round opened, as the jurors of its earlier rounds state it
    whole        whether every bundle that counts for the record could be fetched
    """

    judgement: Judgement
    rules: Rules
    policy: PolicyVersion
    examination: ExaminedJob
    state: EvidenceState
    whole: bool

    @property
    def reason(self) -> Reason:
        """The verdict."""
        return self.judgement.reason


def inspect(
    settings: ValidatorSettings, data: bytes, round_: int, job: int | None = None, model: Path | None = None
) -> Inspection:
    """Judges ``data``, a blob or an artifact's bare file, as the artifact of ``job`` (None: the one it names).

    The round may be in any state.

    ``model`` is a directory of the round's weights; None fetches them as the daemon does.

    Raises:
        Rejected: there is no such round, or the job was not submitted.
        Unavailable: chain, coordinator or weights cannot be reached.
    """
    with closing(Archive(settings, model)) as archive:
        judged = archive.judged_round(round_)
        file = data if data.startswith(MAGIC) else data[HEAD_BYTES:]
        claim = judged.claim(_job(judged.followed, file, job))
        blob = _blob(claim, file) if data.startswith(MAGIC) else data
        policy, context = archive.policy(judged), judged.context
        (examined,) = examine(policy, context.rules, [FetchedJob(claim, blob)])
        history, whole = archive.history(judged.record_point)
        state = history.record_of(judged.record_point, judged.followed.owners[claim.node]).suspected
        return Inspection(examined.judgement, context.rules, policy, examined, state, whole)


def _blob(claim: Claim, file: bytes) -> bytes:
    """The blob that an honest node would have made of ``file``; of a file that nobody can read, one with no root."""
    try:
        root = rollouts_root(claim.chain_id, claim.rounds, decode(file, DEFAULT_LIMITS))
    except Rejected:
        root = bytes(32)
    return head_of(root, file).packed + file


def _job(followed: FollowedRound, file: bytes, job: int | None) -> int:
    """The requested job, or the one that the artifact's file names, or the only one of the round."""
    if job is None:
        try:
            job = decode(file, DEFAULT_LIMITS).job
        except Rejected:
            if len(followed.leaves) != 1:
                raise
            (job,) = followed.leaves
    if job not in followed.leaves:
        raise Rejected(f"job {job} of round {followed.judged_round} was not submitted: choose another with --job")
    return job
