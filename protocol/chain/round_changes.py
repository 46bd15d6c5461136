"""The effect of each event on a round. PURE.

    opening, appeal_round    the fields of a round that an event begins
    advance                  the fields, seats and leaves that an event changes

``RoundState`` applies the changes in memory, the coordinator's mirror to its rows. The ledger folds these events on its
own, because an audit is a second opinion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict

from protocol.chain import events
from protocol.chain.structs import State, with_verdict
from protocol.wire.assignments import LEAF_BYTES, Leaf, bitmap_of, unpack_leaves
from protocol.wire.votes import Vote

SeatKey = tuple[int, int]
"""(attempt, juror)."""


@dataclass(frozen=True, slots=True)
class SubmittedLeaf:
    """One job's leaf, the node that submitted it, and the beacon and URI that the node signed with it."""

    leaf: Leaf
    node: int
    beacon: bytes
    uri: str


class Beginning(TypedDict):
    """The fields of a round when it begins; see ``round_state.RoundState``."""

    run: int
    parent: int
    state: State
    step: int
    policy_version: int
    jobs: int
    slot_count: int
    opened_at: int
    open_block: int
    deadline: int
    beacon: bytes
    assignments: bytes
    submitted: int


class RoundChanges(TypedDict, total=False):
    """New values of a round's fields; see ``round_state.RoundState``."""

    state: State
    attempt: int
    deadline: int
    closed_at: int
    revealing: bool
    holding: bool
    submitted: int
    accepted: int
    fraud: int
    consumed: int
    appealed: int
    concluded: int
    appeals: int


class SeatChanges(TypedDict, total=False):
    """New values of a seat's fields; see ``round_state.SeatState``."""

    committed: bool
    revealed: bool
    vote: Vote


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes made by one event: fields of the round, seats by (attempt, juror), leaves by job."""

    fields: RoundChanges = field(default_factory=RoundChanges)
    seats: Mapping[SeatKey, SeatChanges] = field(default_factory=dict)
    leaves: Mapping[int, SubmittedLeaf] = field(default_factory=dict)


class RoundFields(Protocol):
    """The fields that ``advance`` and ``appeal_round`` read, of a ``round_state.RoundState`` or of a row."""

    run: int
    parent: int
    step: int
    policy_version: int
    slot_count: int
    opened_at: int
    beacon: bytes
    submitted: int
    accepted: int
    fraud: int
    consumed: int
    appealed: int
    concluded: int
    appeals: int


def opening(log: events.Log, event: events.RoundOpened) -> Beginning:
    """Returns the fields of a round just opened."""
    return Beginning(
        run=event.run,
        parent=0,
        state=State.OPEN,
        step=event.step,
        policy_version=event.policy_version,
        jobs=event.jobs,
        slot_count=event.slot_count,
        opened_at=log.timestamp,
        open_block=log.block_number,
        deadline=event.deadline,
        beacon=log.block_hash,
        assignments=event.assignments,
        submitted=0,
    )


def appeal_round(parent: RoundFields, event: events.AppealOpened) -> Beginning:
    """Returns the fields of the round that tries an appeal: it lists no jobs, and the disputed one is submitted."""
    return Beginning(
        run=parent.run,
        parent=event.round,
        state=State.CLOSED,
        step=parent.step,
        policy_version=parent.policy_version,
        jobs=0,
        slot_count=parent.slot_count,
        opened_at=parent.opened_at,
        open_block=0,
        deadline=event.deadline,
        beacon=parent.beacon,
        assignments=b"",
        submitted=1 << event.job,
    )


def changed_round(event: events.Event) -> int | None:
    """Returns the number of the round that ``advance`` changes by this event, or None."""
    number: int | None = getattr(event, "round", None) if type(event) in _RULES else None
    return number


def advance(round_: RoundFields, log: events.Log) -> Changes:
    """Returns what ``log`` changes in the round that it names; nothing for events that leave rounds alone."""
    rule = _RULES.get(type(log.event))
    return UNCHANGED if rule is None else rule(round_, log, log.event)


def _submitted(round_: RoundFields, log: events.Log, event: events.Submitted) -> Changes:
    leaves = {
        leaf.job: SubmittedLeaf(leaf, event.node, event.beacon, event.uri) for leaf in submitted_leaves(event.leaves)
    }
    return Changes({"submitted": round_.submitted | bitmap_of(leaves)}, leaves=leaves)


def submitted_leaves(packed: bytes) -> Iterator[Leaf]:
    """Yields packed leaves in the order given; a reader need not rely on the contract for their order."""
    for start in range(0, len(packed), LEAF_BYTES):
        yield from unpack_leaves(packed[start : start + LEAF_BYTES])


def _closed(round_: RoundFields, log: events.Log, event: events.RoundClosed) -> Changes:
    return Changes(
        {"state": State.CLOSED, "submitted": event.submitted, "deadline": event.deadline, "closed_at": log.timestamp}
    )


def _drawn(round_: RoundFields, log: events.Log, event: events.CommitteeDrawn) -> Changes:
    return Changes(
        {"state": State.VOTING, "attempt": event.attempt, "deadline": event.deadline, "revealing": False},
        seats={(event.attempt, juror): {} for juror in event.jurors},
    )


def _committed(round_: RoundFields, log: events.Log, event: events.VoteCommitted) -> Changes:
    return Changes(seats={(event.attempt, event.juror): {"committed": True}})


def _revealing(round_: RoundFields, log: events.Log, event: events.RevealStarted) -> Changes:
    return Changes({"revealing": True, "deadline": event.deadline})


def _revealed(round_: RoundFields, log: events.Log, event: events.VoteRevealed) -> Changes:
    vote = Vote(event.accept, event.fraud, event.reasons, event.evidence_root)
    return Changes(seats={(event.attempt, event.juror): {"revealed": True, "vote": vote}})


def _redrawn(round_: RoundFields, log: events.Log, event: events.CommitteeRedrawn) -> Changes:
    return Changes({"state": State.CLOSED, "attempt": event.attempt, "deadline": event.deadline, "revealing": False})


def _tallied(round_: RoundFields, log: events.Log, event: events.RoundTallied) -> Changes:
    verdict: RoundChanges = {"accepted": event.accepted, "fraud": event.fraud}
    return Changes({"state": State.TALLIED, "attempt": event.attempt, "deadline": event.deadline, **verdict})


def _consumed(round_: RoundFields, log: events.Log, event: events.JobsConsumed) -> Changes:
    return Changes({"consumed": round_.consumed | event.jobs})


def _appealed(round_: RoundFields, log: events.Log, event: events.AppealOpened) -> Changes:
    return Changes({"appealed": round_.appealed | 1 << event.job, "appeals": round_.appeals + 1})


def _decided(round_: RoundFields, log: events.Log, event: events.AppealDecided) -> Changes:
    return Changes({"appeals": round_.appeals - 1})


def _job_settled(round_: RoundFields, log: events.Log, event: events.AppealedJobSettled) -> Changes:
    accepted, fraud = with_verdict(round_.accepted, round_.fraud, event.job, event.verdict)
    return Changes({"accepted": accepted, "fraud": fraud, "concluded": round_.concluded | 1 << event.job})


def _settled(round_: RoundFields, log: events.Log, event: events.RoundSettled) -> Changes:
    return Changes({"state": State.SETTLED})


def _voided(round_: RoundFields, log: events.Log, event: events.RoundVoided) -> Changes:
    return Changes({"state": State.VOID, "holding": not round_.parent})


def _freed(round_: RoundFields, log: events.Log, event: events.JobsFreed) -> Changes:
    return Changes({"holding": False})


UNCHANGED = Changes()
"""The changes of an event that leaves rounds alone."""

_RULES: dict[type[events.Event], Callable[[RoundFields, events.Log, Any], Changes]] = {
    events.Submitted: _submitted,
    events.RoundClosed: _closed,
    events.CommitteeDrawn: _drawn,
    events.VoteCommitted: _committed,
    events.RevealStarted: _revealing,
    events.VoteRevealed: _revealed,
    events.CommitteeRedrawn: _redrawn,
    events.RoundTallied: _tallied,
    events.JobsConsumed: _consumed,
    events.AppealOpened: _appealed,
    events.AppealDecided: _decided,
    events.AppealedJobSettled: _job_settled,
    events.RoundSettled: _settled,
    events.RoundVoided: _voided,
    events.JobsFreed: _freed,
}
