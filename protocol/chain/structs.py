"""The contracts' structs and enums, field by field as in ``contracts/src/interfaces`` (the manual for each of them).

Addresses are checksummed strings, 32-byte words are ``bytes``, bitmaps are ints with bit j for job j, amounts are wei,
times are unix seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, dataclass_transform

from protocol.errors import Rejected
from protocol.wire.assignments import LEAF_BYTES
from protocol.wire.traps import Trap, TrapKind

SIGNATURE_BYTES = 65
MAX_COUNT = 2**8 - 1
MAX_URI_BYTES = 2**16 - 1


@dataclass_transform(frozen_default=True)
class FrozenDataclass(type):
    """The type of classes that are frozen slotted dataclasses without a decorator on each of them."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> FrozenDataclass:
        """Returns the dataclass; ``slots`` builds each class twice, the second time with its slots."""
        made: type[object] = super().__new__(cls, name, bases, namespace)
        whole: object = made if "__slots__" in namespace else dataclass(frozen=True, slots=True)(made)
        assert isinstance(whole, FrozenDataclass)
        return whole


class Role(IntEnum):
    """Role of a node."""

    NONE = 0
    WORKER = 1
    VALIDATOR = 2


class Cause(IntEnum):
    """Cause of a slash."""

    FRAUD = 0
    ABSENCE = 1
    OVERTURNED = 2


class State(IntEnum):
    """State of a round."""

    NONE = 0
    OPEN = 1
    CLOSED = 2
    VOTING = 3
    TALLIED = 4
    SETTLED = 5
    VOID = 6


class Refusal(IntEnum):
    """Reason for which a submission was left out of a batch."""

    NONE = 0
    MALFORMED = 1
    NOT_ASSIGNED = 2
    ALREADY_SUBMITTED = 3
    BAD_SIGNATURE = 4


MOST_DRAWS = 4
"""Most committees drawn for one verdict."""


def most_fees(seats: int, juror_fee: int) -> int:
    """Returns the most credits that one verdict's jurors earn: committees short of a quorum, then a full one."""
    return (seats + (MOST_DRAWS - 1) * (seats // 2)) * juror_fee


def most_reserved(jobs: int, max_units: int, price_per_unit: int, seats: int, juror_fee: int) -> int:
    """Returns what a round of ``jobs`` jobs reserves: their highest pay and the highest fees."""
    return jobs * max_units * price_per_unit + most_fees(seats, juror_fee)


class Verdict(IntEnum):
    """A committee's verdict on one job: the accepted bit plus twice the fraud bit of a vote or a round."""

    VOID = 0
    ACCEPTED = 1
    FRAUD = 2
    UNAVAILABLE = 3


def verdict_in(accepted: int, fraud: int, job: int) -> Verdict:
    """Returns the verdict on one job in the two bitmaps of a vote or a round."""
    return Verdict((accepted >> job & 1) | (fraud >> job & 1) << 1)


def jobs_by_verdict(accepted: int, fraud: int, submitted: int) -> dict[Verdict, int]:
    """Returns the bitmap of the ``submitted`` jobs with each verdict in the two bitmaps of a vote or a round."""
    return {
        Verdict.ACCEPTED: submitted & accepted & ~fraud,
        Verdict.FRAUD: submitted & fraud & ~accepted,
        Verdict.UNAVAILABLE: submitted & accepted & fraud,
        Verdict.VOID: submitted & ~(accepted | fraud),
    }


def with_verdict(accepted: int, fraud: int, job: int, verdict: Verdict) -> tuple[int, int]:
    """Returns the two bitmaps of a round after an appeal has given ``job`` this verdict."""
    bit = 1 << job
    return accepted & ~bit | (verdict & 1) << job, fraud & ~bit | (verdict >> 1) << job


class RunTerms(metaclass=FrozenDataclass):
    """Terms that a requester sets when it opens a run."""

    coordinator: str
    trainer: str
    rules_hash: bytes
    price_per_unit: int
    juror_fee: int
    max_units: int
    committee: int
    appeal_seats: int
    work_seconds: int
    draw_seconds: int
    commit_seconds: int
    reveal_seconds: int
    challenge_seconds: int


class Run(metaclass=FrozenDataclass):
    """A run as stored."""

    requester: str
    version: int
    closed: bool
    escrow: int
    reserved: int
    terms: RunTerms


class Consumption(metaclass=FrozenDataclass):
    """Jobs of one round that a checkpoint was trained on, as a bitmap."""

    round: int
    jobs: int


class Node(metaclass=FrozenDataclass):
    """One registered node."""

    owner: str
    role: Role
    slot: int
    capacity: int
    in_flight: int
    active_at: int
    retired_at: int
    bond: int
    revoked: bool
    withdrawn: bool
    key: str


NEVER = 2**40 - 1
"""``active_at`` of a newcomer that waits for a validator slot, or got none."""


class RegistryTerms(metaclass=FrozenDataclass):
    """Bonds and delays, fixed at deployment."""

    bond_per_job: int
    validator_bond: int
    activation_delay: int
    unbonding_delay: int


class MarketTerms(metaclass=FrozenDataclass):
    """Delays and minimums of a run's terms, fixed at deployment; ``min_juror_fee`` in credits.

    ``max_strikes`` within an unbonding delay end a validator's service in a run.
    """

    notice_seconds: int
    max_round_seconds: int
    min_commit_seconds: int
    min_reveal_seconds: int
    min_juror_fee: int
    max_strikes: int


class RoundsTerms(metaclass=FrozenDataclass):
    """Penalties in token wei, appeal amounts in credits, fixed at deployment."""

    fraud_slash: int
    absence_penalty: int
    overturn_penalty: int
    appeal_bond: int
    appeal_bounty: int


class ProtocolTerms(metaclass=FrozenDataclass):
    """All terms fixed at deployment; ``admin_delay`` is in seconds."""

    registry: RegistryTerms
    market: MarketTerms
    rounds: RoundsTerms
    admin_delay: int


class Appeal(metaclass=FrozenDataclass):
    """An appeal: the disputed verdict and the appellant; all zeros if there is no appeal of a number."""

    round: int
    job: int
    against: Verdict
    node: int
    units: int
    appellant: str
    deposit: int


class Submission(metaclass=FrozenDataclass):
    """One worker's signed part of a batch, which the contracts read packed (``pack_submissions``)."""

    node: int
    beacon: bytes
    leaves: bytes
    uri: str
    signature: bytes


class SettledLeaves(metaclass=FrozenDataclass):
    """One part of a batch as accepted: the node and its leaves. The contracts read it packed (``pack_parts``)."""

    node: int
    leaves: bytes


def pack_submissions(submissions: Iterable[Submission]) -> bytes:
    """Packs a batch for submission.

    Each part, big-endian::

        uint32 node ‖ uint8 count ‖ leaves ‖ bytes32 beacon ‖ uint16 length ‖ uri of that length ‖ signature of 65 bytes

    Raises:
        Rejected: leaves, URI or signature have a length that the format cannot hold.
    """
    return b"".join(_pack_submission(submission) for submission in submissions)


def _pack_submission(submission: Submission) -> bytes:
    uri = submission.uri.encode()
    whole = len(submission.leaves) % LEAF_BYTES == 0 and len(submission.leaves) // LEAF_BYTES <= MAX_COUNT
    if not whole or len(uri) > MAX_URI_BYTES or len(submission.signature) != SIGNATURE_BYTES:
        raise Rejected(
            f"the submission of node {submission.node} cannot be packed: wrong length of leaves, uri or signature"
        )
    taken = pack_parts([SettledLeaves(submission.node, submission.leaves)])
    return taken + submission.beacon + len(uri).to_bytes(2, "big") + uri + submission.signature


def pack_parts(parts: Iterable[SettledLeaves]) -> bytes:
    """Packs a batch for settling and appealing: ``uint32 node ‖ uint8 count ‖ leaves`` for each part."""
    return b"".join(
        part.node.to_bytes(4, "big") + bytes([len(part.leaves) // LEAF_BYTES]) + part.leaves for part in parts
    )


class Round(metaclass=FrozenDataclass):
    """A round as stored. ``committed``, ``revealed`` and ``abstained`` are bitmaps of seats, ``eligible`` of slots."""

    state: State
    attempt: int
    committee: int
    revealing: bool
    jobs: int
    slot_count: int
    batches: int
    settled_batches: int
    committed: int
    revealed: int
    abstained: int
    policy_version: int
    opened_at: int
    deadline: int
    run: int
    max_units: int
    open_block: int
    close_block: int
    appeal_seats: int
    appeals: int
    price_per_unit: int
    juror_fee: int
    reserved: int
    draw_seconds: int
    commit_seconds: int
    reveal_seconds: int
    challenge_seconds: int
    assignments_hash: bytes
    eligible: int
    submitted: int
    accepted: int
    fraud: int
    appealed: int
    consumed: int


class Seat(metaclass=FrozenDataclass):
    """One seat of a committee."""

    node: int
    revealed: bool
    abstained: bool
    commitment: bytes
    accept: int
    fraud: int


class TrapSet(metaclass=FrozenDataclass):
    """A requester's set of traps as stored; ``opened`` equals ``leaves`` once the rest was forfeited."""

    setter: str
    run: int
    first: int
    open_by: int
    leaves: int
    opened: int
    bounty: int
    root: bytes


STRUCTS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        RunTerms,
        Run,
        Consumption,
        Node,
        RegistryTerms,
        MarketTerms,
        RoundsTerms,
        Appeal,
        Round,
        Seat,
        Trap,
        TrapSet,
    )
}
"""Solidity struct name to dataclass."""

ENUMS: dict[str, type[IntEnum]] = {enum.__name__: enum for enum in (Role, Cause, State, Refusal, Verdict, TrapKind)}
"""Solidity enum name to enum."""
