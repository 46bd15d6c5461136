"""Events of ``Rounds``; ``void_`` reads ``void_jobs`` here."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.chain.events.base import Event
from protocol.chain.structs import Refusal, Verdict


@dataclass(frozen=True, slots=True)
class RoundOpened(Event):
    """Nodes were listed for a round."""

    round: int
    run: int
    step: int
    policy_version: int
    jobs: int
    slot_count: int
    reserved: int
    deadline: int
    assignments: bytes


@dataclass(frozen=True, slots=True)
class Submitted(Event):
    """One node's leaves in one batch."""

    round: int
    node: int
    batch: int
    beacon: bytes
    leaves: bytes
    uri: str
    signature: bytes


@dataclass(frozen=True, slots=True)
class RoundClosed(Event):
    """Work ended; a committee must be drawn by ``deadline``."""

    round: int
    submitted: int
    deadline: int


@dataclass(frozen=True, slots=True)
class CommitteeDrawn(Event):
    """Validators were seated."""

    round: int
    attempt: int
    seed_block: int
    seed: bytes
    jurors: tuple[int, ...]
    deadline: int


@dataclass(frozen=True, slots=True)
class VoteCommitted(Event):
    """A juror's commitment."""

    round: int
    juror: int
    attempt: int
    commitment: bytes


@dataclass(frozen=True, slots=True)
class RevealStarted(Event):
    """Committing has ended; reveals until ``deadline``."""

    round: int
    attempt: int
    deadline: int


@dataclass(frozen=True, slots=True)
class VoteRevealed(Event):
    """A juror's vote."""

    round: int
    juror: int
    attempt: int
    accept: int
    fraud: int
    reasons: bytes
    evidence_root: bytes
    salt: bytes


@dataclass(frozen=True, slots=True)
class RoundTallied(Event):
    """The verdict; it may be challenged until ``deadline``."""

    round: int
    attempt: int
    accepted: int
    fraud: int
    deadline: int


@dataclass(frozen=True, slots=True)
class CommitteeRedrawn(Event):
    """No quorum: every seat is drawn again."""

    round: int
    attempt: int
    deadline: int


@dataclass(frozen=True, slots=True)
class JobsConsumed(Event):
    """Accepted jobs were trained on."""

    round: int
    run: int
    jobs: int


@dataclass(frozen=True, slots=True)
class SubmissionSettled(Event):
    """What one submission came to."""

    round: int
    node: int
    batch: int
    accepted: int
    fraud: int
    void_jobs: int
    units: int
    paid: int


@dataclass(frozen=True, slots=True)
class JurorSettled(Event):
    """What one juror's vote came to."""

    round: int
    juror: int
    bits: int
    paid: int


@dataclass(frozen=True, slots=True)
class RoundSettled(Event):
    """The round ended; ``released`` credits went back to escrow."""

    round: int
    released: int


@dataclass(frozen=True, slots=True)
class RoundVoided(Event):
    """The round ended without a verdict; ``released`` credits went back to escrow."""

    round: int
    released: int


@dataclass(frozen=True, slots=True)
class JobsFreed(Event):
    """The jobs of a void round no longer count as in flight."""

    round: int
    jobs: int


@dataclass(frozen=True, slots=True)
class SubmissionRefused(Event):
    """The part of a batch at ``index`` was left out."""

    round: int
    node: int
    index: int
    reason: Refusal


@dataclass(frozen=True, slots=True)
class JobsTainted(Event):
    """Jobs that went into a checkpoint are no longer accepted."""

    round: int
    run: int
    jobs: int


@dataclass(frozen=True, slots=True)
class AppealOpened(Event):
    """One job of ``round`` is tried again, as a round under the number ``appeal``, drawn until ``deadline``."""

    appeal: int
    round: int
    appellant: str
    job: int
    against: Verdict
    node: int
    units: int
    deposit: int
    deadline: int


@dataclass(frozen=True, slots=True)
class AppealDecided(Event):
    """What an appeal came to: the job is void where it was not ``decided``. Amounts are credits."""

    appeal: int
    round: int
    job: int
    verdict: Verdict
    decided: bool
    fees: int
    covered: int
    awarded: int
    forfeited: int


@dataclass(frozen=True, slots=True)
class AppealedJobSettled(Event):
    """What an appealed job came to in the end."""

    round: int
    node: int
    job: int
    verdict: Verdict
    units: int
    paid: int
