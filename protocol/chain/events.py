"""One frozen value per event, named and ordered as in ``contracts/src/interfaces``; fields in snake case.

``void_`` reads ``void_jobs`` here. Types as in ``structs``.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.chain.structs import Cause, Consumption, Role, RunTerms


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


# Token


@dataclass(frozen=True, slots=True)
class Transfer(Event):
    """Tokens moved; minted where ``sender`` is zero."""

    sender: str
    to: str
    value: int


@dataclass(frozen=True, slots=True)
class Approval(Event):
    """An owner lets a spender take tokens."""

    owner: str
    spender: str
    value: int


@dataclass(frozen=True, slots=True)
class Dripped(Event):
    """The faucet minted ``amount``; ``total`` is all it gave this address."""

    to: str
    amount: int
    total: int


# Registry


@dataclass(frozen=True, slots=True)
class NodeRegistered(Event):
    """A node was registered and bonded."""

    node: int
    owner: str
    key: str
    role: Role
    slot: int
    capacity: int
    bond: int
    active_at: int


@dataclass(frozen=True, slots=True)
class BondToppedUp(Event):
    """``amount`` was added to a bond, which is now ``bond``."""

    node: int
    owner: str
    amount: int
    bond: int


@dataclass(frozen=True, slots=True)
class NodeRetired(Event):
    """A node left service."""

    node: int
    owner: str
    retired_at: int
    withdrawable_at: int


@dataclass(frozen=True, slots=True)
class BondWithdrawn(Event):
    """What was left of a bond went back to its owner."""

    node: int
    owner: str
    amount: int


@dataclass(frozen=True, slots=True)
class NodeSlashed(Event):
    """``amount`` was taken from a bond; ``bond`` remains."""

    node: int
    owner: str
    round: int
    cause: Cause
    amount: int
    bond: int


@dataclass(frozen=True, slots=True)
class KeyRotated(Event):
    """A node has a new session key."""

    node: int
    owner: str
    key: str


# Market


@dataclass(frozen=True, slots=True)
class RunOpened(Event):
    """A run was opened; ``manifest_root`` is its version 0."""

    run: int
    requester: str
    terms: RunTerms
    manifest_root: bytes
    uri: str


@dataclass(frozen=True, slots=True)
class RunFunded(Event):
    """``amount`` credits were locked; free escrow is now ``escrow``."""

    run: int
    requester: str
    amount: int
    escrow: int


@dataclass(frozen=True, slots=True)
class RunClosed(Event):
    """No new rounds of this run."""

    run: int
    requester: str


@dataclass(frozen=True, slots=True)
class RunRefunded(Event):
    """``amount`` credits went back to the requester; free escrow is now ``escrow``."""

    run: int
    requester: str
    amount: int
    escrow: int


@dataclass(frozen=True, slots=True)
class NodeJoined(Event):
    """A node consented to a run's rules."""

    run: int
    node: int
    rules_hash: bytes


@dataclass(frozen=True, slots=True)
class NodeLeft(Event):
    """A node no longer takes part in a run."""

    run: int
    node: int


@dataclass(frozen=True, slots=True)
class EscrowReserved(Event):
    """Escrow was promised to a round."""

    run: int
    round: int
    amount: int


@dataclass(frozen=True, slots=True)
class EscrowReleased(Event):
    """What a round did not need went back to free escrow."""

    run: int
    round: int
    amount: int


@dataclass(frozen=True, slots=True)
class CheckpointPublished(Event):
    """New weights, and the jobs they were trained on."""

    run: int
    version: int
    manifest_root: bytes
    consumed: tuple[Consumption, ...]


# Rounds


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


# Credits


@dataclass(frozen=True, slots=True)
class CreditsBought(Event):
    """Tokens became credits."""

    owner: str
    amount: int


@dataclass(frozen=True, slots=True)
class CreditsRedeemed(Event):
    """Credits became tokens."""

    owner: str
    amount: int


@dataclass(frozen=True, slots=True)
class CreditsLocked(Event):
    """Credits went into a run's escrow."""

    owner: str
    run: int
    amount: int


@dataclass(frozen=True, slots=True)
class CreditsUnlocked(Event):
    """Credits left a run's escrow for its requester."""

    owner: str
    run: int
    amount: int


@dataclass(frozen=True, slots=True)
class CreditsEarned(Event):
    """Credits left a run's escrow for the owner of ``node``."""

    owner: str
    run: int
    round: int
    node: int
    amount: int


EVENTS: dict[str, type[Event]] = {
    name: value
    for name, value in list(globals().items())
    if isinstance(value, type) and issubclass(value, Event) and value is not Event
}
"""Solidity event name to dataclass."""


@dataclass(frozen=True, slots=True)
class Log:
    """An event and where on the chain it stands; ``timestamp`` is its block's, in unix seconds."""

    block_number: int
    block_hash: bytes
    tx_hash: bytes
    log_index: int
    timestamp: int
    event: Event
