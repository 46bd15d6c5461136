"""Events in, rows out: what the chain's events make of the mirror's tables. PURE: no I/O, no clock.

``Market`` holds the rows that later events or decisions need, keyed as the tables are. ``fold`` applies one log and
notes which rows it touched, so that the caller can write exactly those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from sqlmodel import SQLModel

from coordinator.tables import Checkpoint, Earning, Listing, Member, Node, Round, Run, Seat, Submitted
from protocol.chain import events as on_chain
from protocol.chain.events import Log
from protocol.chain.structs import Cause, State
from protocol.wire.assignments import unpack_assignments, unpack_leaves

RECORD_JOBS = 256
"""A node's late record is halved when it holds this many judged jobs, so that what is long past counts less."""


@dataclass(slots=True)
class Market:
    """The mirrored rows. ``live`` are the rounds that still hold anything; of others only the round itself is kept."""

    runs: dict[int, Run] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)
    members: dict[tuple[int, int], Member] = field(default_factory=dict)
    earnings: dict[tuple[int, str], Earning] = field(default_factory=dict)
    rounds: dict[int, Round] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)
    listings: dict[int, list[Listing]] = field(default_factory=dict)
    submitted: dict[int, list[Submitted]] = field(default_factory=dict)
    seats: dict[int, dict[tuple[int, int], Seat]] = field(default_factory=dict)
    touched: dict[int, SQLModel] = field(default_factory=dict)
    removed: list[Member] = field(default_factory=list)

    def touch(self, row: SQLModel) -> None:
        """Notes that ``row`` must be written."""
        self.touched[id(row)] = row

    def take_changes(self) -> tuple[list[SQLModel], list[Member]]:
        """Returns the rows to write, in the order they were first touched, and those to delete since the last call."""
        changes = list(self.touched.values()), list(self.removed)
        self.touched.clear()
        self.removed.clear()
        return changes

    def rounds_of(self, run: int) -> Iterator[Round]:
        """The rounds of a run, newest first."""
        return (each for each in reversed(self.rounds.values()) if each.run == run)

    def jurors(self, round_: Round) -> list[Seat]:
        """The seats of the present attempt."""
        seats = self.seats.get(round_.id, {})
        return [seat for (attempt, _), seat in seats.items() if attempt == round_.attempt]


def fold(market: Market, log: Log) -> None:
    """Applies one log. Events that no table shows are passed over."""
    handler = _HANDLERS.get(type(log.event).__name__)
    if handler is not None:
        handler(market, log, log.event)


def _opened_run(market: Market, log: Log, event: on_chain.RunOpened) -> None:
    terms = {
        each.name: getattr(event.terms, each.name) for each in fields(event.terms) if each.name in Run.model_fields
    }
    market.runs[event.run] = Run(id=event.run, requester=event.requester, uri=event.uri, **terms)
    market.touch(market.runs[event.run])
    market.touch(Checkpoint(run=event.run, version=0, manifest_root=event.manifest_root))


def _escrow(market: Market, log: Log, event: on_chain.RunFunded | on_chain.RunRefunded) -> None:
    _set(market, market.runs[event.run], escrow=event.escrow)


def _closed_run(market: Market, log: Log, event: on_chain.RunClosed) -> None:
    _set(market, market.runs[event.run], closed=True)


def _reserved(market: Market, log: Log, event: on_chain.EscrowReserved) -> None:
    run = market.runs[event.run]
    _set(market, run, escrow=run.escrow - event.amount, reserved=run.reserved + event.amount)


def _released(market: Market, log: Log, event: on_chain.EscrowReleased) -> None:
    run = market.runs[event.run]
    _set(market, run, escrow=run.escrow + event.amount, reserved=run.reserved - event.amount)


def _earned(market: Market, log: Log, event: on_chain.CreditsEarned) -> None:
    run = market.runs[event.run]
    _set(market, run, reserved=run.reserved - event.amount)
    earning = market.earnings.setdefault((event.run, event.owner), Earning(run=event.run, owner=event.owner))
    _set(market, earning, amount=earning.amount + event.amount)


def _joined(market: Market, log: Log, event: on_chain.NodeJoined) -> None:
    member = Member(run=event.run, node=event.node, rules_hash=event.rules_hash)
    market.members[event.run, event.node] = member
    market.touch(member)


def _left(market: Market, log: Log, event: on_chain.NodeLeft) -> None:
    member = market.members.pop((event.run, event.node), None)
    if member is not None:
        market.touched.pop(id(member), None)
        market.removed.append(member)


def _published(market: Market, log: Log, event: on_chain.CheckpointPublished) -> None:
    _set(market, market.runs[event.run], version=event.version)
    market.touch(Checkpoint(run=event.run, version=event.version, manifest_root=event.manifest_root))


def _registered(market: Market, log: Log, event: on_chain.NodeRegistered) -> None:
    # Registering takes exactly the required bond, so the event tells what that is.
    market.nodes[event.node] = Node(
        id=event.node,
        owner=event.owner,
        key=event.key,
        role=event.role,
        slot=event.slot,
        capacity=event.capacity,
        active_at=event.active_at,
        bond=event.bond,
        required=event.bond,
    )
    market.touch(market.nodes[event.node])


def _topped_up(market: Market, log: Log, event: on_chain.BondToppedUp) -> None:
    _set(market, market.nodes[event.node], bond=event.bond)


def _retired(market: Market, log: Log, event: on_chain.NodeRetired) -> None:
    _set(market, market.nodes[event.node], retired_at=event.retired_at)


def _withdrawn(market: Market, log: Log, event: on_chain.BondWithdrawn) -> None:
    _set(market, market.nodes[event.node], bond=0)


def _slashed(market: Market, log: Log, event: on_chain.NodeSlashed) -> None:
    node = market.nodes[event.node]
    _set(market, node, bond=event.bond, slashed=node.slashed + event.amount)
    if event.cause is Cause.FRAUD and not node.fraudulent:
        _set(market, node, fraudulent=1)


def _rotated(market: Market, log: Log, event: on_chain.KeyRotated) -> None:
    _set(market, market.nodes[event.node], key=event.key)


def _opened(market: Market, log: Log, event: on_chain.RoundOpened) -> None:
    round_ = Round(
        id=event.round,
        run=event.run,
        state=State.OPEN,
        step=event.step,
        policy_version=event.policy_version,
        jobs=event.jobs,
        slot_count=event.slot_count,
        opened_at=log.timestamp,
        deadline=event.deadline,
        open_block=log.block_number,
        beacon=log.block_hash,
        assignments=event.assignments,
    )
    run = market.runs[event.run]
    _set(market, run, step=event.step, rounds_opened=run.rounds_opened + 1)
    market.rounds[event.round] = round_
    market.live.add(event.round)
    market.touch(round_)
    market.listings[event.round] = []
    first = 0
    for listing in unpack_assignments(event.assignments):
        row = Listing(round=event.round, first=first, node=listing.node, count=listing.count)
        market.listings[event.round].append(row)
        market.touch(row)
        node = market.nodes[listing.node]
        _set(market, node, in_flight=node.in_flight + listing.count, given=node.given + listing.count)
        first += listing.count


def _submitted(market: Market, log: Log, event: on_chain.Submitted) -> None:
    rows = market.submitted.setdefault(event.round, [])
    position = sum(row.batch == event.batch for row in rows)
    row = Submitted(
        round=event.round,
        batch=event.batch,
        position=position,
        node=event.node,
        leaves=event.leaves,
        uri=event.uri,
    )
    rows.append(row)
    market.touch(row)
    round_ = market.rounds[event.round]
    _set(market, round_, submitted=round_.submitted | _jobs(event.leaves))


def _closed(market: Market, log: Log, event: on_chain.RoundClosed) -> None:
    _set(
        market,
        market.rounds[event.round],
        state=State.CLOSED,
        deadline=event.deadline,
        close_block=log.block_number,
        submitted=event.submitted,
    )


def _drawn(market: Market, log: Log, event: on_chain.CommitteeDrawn) -> None:
    round_ = market.rounds[event.round]
    _set(market, round_, state=State.VOTING, attempt=event.attempt, deadline=event.deadline, revealing=False)
    seats = market.seats.setdefault(event.round, {})
    for juror in event.jurors:
        seats[event.attempt, juror] = Seat(round=event.round, attempt=event.attempt, juror=juror)
        market.touch(seats[event.attempt, juror])


def _committed(market: Market, log: Log, event: on_chain.VoteCommitted) -> None:
    _set(market, market.seats[event.round][event.attempt, event.juror], commitment=event.commitment)


def _revealing(market: Market, log: Log, event: on_chain.RevealStarted) -> None:
    _set(market, market.rounds[event.round], revealing=True, deadline=event.deadline)


def _revealed(market: Market, log: Log, event: on_chain.VoteRevealed) -> None:
    seat = market.seats[event.round][event.attempt, event.juror]
    _set(market, seat, revealed=True, accept=event.accept, fraud=event.fraud, reasons=event.reasons)


def _tallied(market: Market, log: Log, event: on_chain.RoundTallied) -> None:
    round_ = market.rounds[event.round]
    _set(
        market,
        round_,
        state=State.TALLIED,
        deadline=event.deadline,
        accepted=event.accepted,
        fraud=event.fraud,
        attempt=event.attempt,
    )
    run, accepted, fraud = market.runs[round_.run], event.accepted.bit_count(), event.fraud.bit_count()
    _set(
        market,
        run,
        jobs_accepted=run.jobs_accepted + accepted,
        jobs_fraud=run.jobs_fraud + fraud,
        jobs_void=run.jobs_void + round_.jobs - accepted - fraud,
    )
    for listing in market.listings[event.round]:
        _judge(market, round_, listing)


def _judge(market: Market, round_: Round, listing: Listing) -> None:
    """Puts the verdict on one listing's jobs on its node's record; a job never handed in counts as void."""
    mask = (1 << listing.count) - 1 << listing.first
    accepted, fraud = (round_.accepted & mask).bit_count(), (round_.fraud & mask).bit_count()
    node = market.nodes[listing.node]
    judged, voided = node.judged + listing.count, node.voided + listing.count - accepted - fraud
    if judged >= RECORD_JOBS:
        judged, voided = judged // 2, voided // 2
    _set(market, node, judged=judged, voided=voided, fraudulent=node.fraudulent + fraud)


def _redrawn(market: Market, log: Log, event: on_chain.CommitteeRedrawn) -> None:
    _set(
        market,
        market.rounds[event.round],
        state=State.CLOSED,
        attempt=event.attempt,
        deadline=event.deadline,
        close_block=log.block_number,
        revealing=False,
    )


def _consumed(market: Market, log: Log, event: on_chain.JobsConsumed) -> None:
    round_ = market.rounds[event.round]
    _set(market, round_, consumed=round_.consumed | event.jobs)


def _settled_submission(market: Market, log: Log, event: on_chain.SubmissionSettled) -> None:
    for row in market.submitted.get(event.round, []):
        if row.batch == event.batch and row.node == event.node and not row.settled:
            _set(market, row, settled=True)
            _free(market, event.node, len(unpack_leaves(row.leaves)))
            return


def _settled(market: Market, log: Log, event: on_chain.RoundSettled) -> None:
    """Ends a round: the jobs never handed in come free as well."""
    round_ = market.rounds[event.round]
    run = market.runs[round_.run]
    _set(market, round_, state=State.SETTLED)
    _set(market, run, rounds_settled=run.rounds_settled + 1)
    for listing in market.listings[event.round]:
        mask = (1 << listing.count) - 1 << listing.first
        _free(market, listing.node, (mask & ~round_.submitted).bit_count())
    _forget(market, event.round)


def _voided(market: Market, log: Log, event: on_chain.RoundVoided) -> None:
    """Ends a round without a verdict; its jobs stay in flight until ``JobsFreed``."""
    round_ = market.rounds[event.round]
    run = market.runs[round_.run]
    _set(market, round_, state=State.VOID, holding=True)
    _set(market, run, rounds_void=run.rounds_void + 1, jobs_void=run.jobs_void + round_.jobs)


def _freed(market: Market, log: Log, event: on_chain.JobsFreed) -> None:
    for listing in market.listings[event.round]:
        _free(market, listing.node, listing.count)
    _set(market, market.rounds[event.round], holding=False)
    _forget(market, event.round)


def _forget(market: Market, round_: int) -> None:
    market.live.discard(round_)
    market.listings.pop(round_, None)
    market.submitted.pop(round_, None)
    market.seats.pop(round_, None)


def _free(market: Market, node: int, jobs: int) -> None:
    _set(market, market.nodes[node], in_flight=market.nodes[node].in_flight - jobs)


def _set(market: Market, row: SQLModel, **values: Any) -> None:
    for name, value in values.items():
        setattr(row, name, value)
    market.touch(row)


def _jobs(leaves: bytes) -> int:
    return sum(1 << leaf.job for leaf in unpack_leaves(leaves))


Handler = Callable[[Market, Log, Any], None]

_HANDLERS: dict[str, Handler] = {
    "RunOpened": _opened_run,
    "RunFunded": _escrow,
    "RunRefunded": _escrow,
    "RunClosed": _closed_run,
    "EscrowReserved": _reserved,
    "EscrowReleased": _released,
    "CreditsEarned": _earned,
    "NodeJoined": _joined,
    "NodeLeft": _left,
    "CheckpointPublished": _published,
    "NodeRegistered": _registered,
    "BondToppedUp": _topped_up,
    "NodeRetired": _retired,
    "BondWithdrawn": _withdrawn,
    "NodeSlashed": _slashed,
    "KeyRotated": _rotated,
    "RoundOpened": _opened,
    "Submitted": _submitted,
    "RoundClosed": _closed,
    "CommitteeDrawn": _drawn,
    "VoteCommitted": _committed,
    "RevealStarted": _revealing,
    "VoteRevealed": _revealed,
    "RoundTallied": _tallied,
    "CommitteeRedrawn": _redrawn,
    "JobsConsumed": _consumed,
    "SubmissionSettled": _settled_submission,
    "RoundSettled": _settled,
    "RoundVoided": _voided,
    "JobsFreed": _freed,
}
