"""Events of ``Rounds``. The field ``void_`` is named ``void_jobs`` here."""

from __future__ import annotations

from protocol.chain.events.base import Event
from protocol.chain.structs import Refusal, Verdict


class RoundOpened(Event):
    """A round was opened, with its list of nodes."""

    round: int
    run: int
    step: int
    policy_version: int
    jobs: int
    slot_count: int
    reserved: int
    deadline: int
    assignments: bytes


class Submitted(Event):
    """A node submitted leaves in a batch."""

    round: int
    node: int
    batch: int
    beacon: bytes
    leaves: bytes
    uri: str
    signature: bytes


class RoundClosed(Event):
    """The work phase ended; a committee must be drawn by ``deadline``."""

    round: int
    submitted: int
    deadline: int


class CommitteeDrawn(Event):
    """A committee was drawn."""

    round: int
    attempt: int
    seed_block: int
    seed: bytes
    jurors: tuple[int, ...]
    deadline: int


class VoteCommitted(Event):
    """A juror committed to a vote."""

    round: int
    juror: int
    attempt: int
    commitment: bytes


class RevealStarted(Event):
    """The commit phase ended; votes are revealed until ``deadline``."""

    round: int
    attempt: int
    deadline: int


class VoteRevealed(Event):
    """A juror revealed its vote."""

    round: int
    juror: int
    attempt: int
    accept: int
    fraud: int
    reasons: bytes
    evidence_root: bytes
    salt: bytes


class RoundTallied(Event):
    """A round has its verdict, which can be appealed until ``deadline``."""

    round: int
    attempt: int
    accepted: int
    fraud: int
    deadline: int


class CommitteeRedrawn(Event):
    """There was no quorum: every seat is drawn again."""

    round: int
    attempt: int
    deadline: int


class JobsConsumed(Event):
    """Accepted jobs were trained on."""

    round: int
    run: int
    jobs: int


class SubmissionSettled(Event):
    """A submission was settled."""

    round: int
    node: int
    batch: int
    accepted: int
    fraud: int
    void_jobs: int
    units: int
    paid: int


class JurorSettled(Event):
    """A juror was settled."""

    round: int
    juror: int
    bits: int
    paid: int


class RoundSettled(Event):
    """The round ended; ``released`` credits went back to escrow."""

    round: int
    released: int


class RoundVoided(Event):
    """The round ended without a verdict; ``released`` credits went back to escrow."""

    round: int
    released: int


class JobsFreed(Event):
    """The jobs of a void round no longer count as in flight."""

    round: int
    jobs: int


class SubmissionRefused(Event):
    """The submission at ``index`` of a batch was left out."""

    round: int
    node: int
    index: int
    reason: Refusal


class JobsTainted(Event):
    """Jobs that a checkpoint was trained on are no longer accepted."""

    round: int
    run: int
    jobs: int


class AppealOpened(Event):
    """A job of ``round`` was appealed: the round ``appeal`` judges it again, with a draw by ``deadline``."""

    appeal: int
    round: int
    appellant: str
    job: int
    against: Verdict
    node: int
    units: int
    deposit: int
    deadline: int


class AppealDecided(Event):
    """An appeal ended with the job's last ``verdict``; ``decided`` if most of its seats named one. In credits."""

    appeal: int
    round: int
    job: int
    verdict: Verdict
    decided: bool
    fees: int
    awarded: int
    forfeited: int


class AppealedJobSettled(Event):
    """An appealed job was settled."""

    round: int
    node: int
    job: int
    verdict: Verdict
    units: int
    paid: int
