"""What the events of ``Rounds`` make of the mirrored rows. PURE."""

from __future__ import annotations

from coordinator.mirror.fold_appeals import APPEAL_HANDLERS
from coordinator.mirror.market import Handler, Market
from coordinator.mirror.neglect import Neglect, Share, neglect_after
from coordinator.tables import Listing, Round, Seat, Submitted
from protocol.chain import events as on_chain
from protocol.chain.events import Log
from protocol.chain.structs import State
from protocol.wire.assignments import unpack_assignments, unpack_leaves
from protocol.wire.rules import Sequential


def _opened(market: Market, log: Log, event: on_chain.RoundOpened) -> None:
    run = market.runs[event.run]
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
        reveal_seconds=run.reveal_seconds,
        open_block=log.block_number,
        beacon=log.block_hash,
        assignments=event.assignments,
    )
    market.set(run, step=event.step, rounds_opened=run.rounds_opened + 1)
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
        market.set(node, in_flight=node.in_flight + listing.count, given=node.given + listing.count)
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
    market.set(round_, submitted=round_.submitted | _jobs(event.leaves))


def _closed(market: Market, log: Log, event: on_chain.RoundClosed) -> None:
    market.set(
        market.rounds[event.round],
        state=State.CLOSED,
        deadline=event.deadline,
        close_block=log.block_number,
        submitted=event.submitted,
    )


def _drawn(market: Market, log: Log, event: on_chain.CommitteeDrawn) -> None:
    round_ = market.rounds[event.round]
    market.set(round_, state=State.VOTING, attempt=event.attempt, deadline=event.deadline, revealing=False)
    seats = market.seats.setdefault(event.round, {})
    for juror in event.jurors:
        seats[event.attempt, juror] = Seat(round=event.round, attempt=event.attempt, juror=juror)
        market.touch(seats[event.attempt, juror])


def _committed(market: Market, log: Log, event: on_chain.VoteCommitted) -> None:
    market.set(market.seats[event.round][event.attempt, event.juror], commitment=event.commitment)


def _revealing(market: Market, log: Log, event: on_chain.RevealStarted) -> None:
    market.set(market.rounds[event.round], revealing=True, deadline=event.deadline)


def _revealed(market: Market, log: Log, event: on_chain.VoteRevealed) -> None:
    seat = market.seats[event.round][event.attempt, event.juror]
    market.set(seat, revealed=True, accept=event.accept, fraud=event.fraud, reasons=event.reasons)


def _tallied(market: Market, log: Log, event: on_chain.RoundTallied) -> None:
    round_ = market.rounds[event.round]
    market.set(
        round_,
        state=State.TALLIED,
        deadline=event.deadline,
        accepted=event.accepted,
        fraud=event.fraud,
        attempt=event.attempt,
    )
    if round_.parent:
        return  # what an appeal comes to is told by what it changes
    run, accepted, fraud = market.runs[round_.run], event.accepted.bit_count(), event.fraud.bit_count()
    market.set(
        run,
        jobs_accepted=run.jobs_accepted + accepted,
        jobs_fraud=run.jobs_fraud + fraud,
        jobs_void=run.jobs_void + round_.jobs - accepted - fraud,
    )
    for listing in market.listings[event.round]:
        _judge(market, round_, listing)


def _judge(market: Market, round_: Round, listing: Listing) -> None:
    """Puts the jobs of one listing that were found fraudulent on its node's record."""
    node, fraud = market.nodes[listing.node], (round_.fraud & _mask(listing)).bit_count()
    if fraud:
        market.set(node, fraudulent=node.fraudulent + fraud)


def _redrawn(market: Market, log: Log, event: on_chain.CommitteeRedrawn) -> None:
    market.set(
        market.rounds[event.round],
        state=State.CLOSED,
        attempt=event.attempt,
        deadline=event.deadline,
        close_block=log.block_number,
        revealing=False,
    )


def _consumed(market: Market, log: Log, event: on_chain.JobsConsumed) -> None:
    round_ = market.rounds[event.round]
    market.set(round_, consumed=round_.consumed | event.jobs)


def _settled_submission(market: Market, log: Log, event: on_chain.SubmissionSettled) -> None:
    """The whole batch is settled at once; its jobs that were appealed are freed by their appeals."""
    for row in market.submitted.get(event.round, []):
        if row.batch == event.batch and not row.settled:
            market.set(row, settled=True)
    _free(market, event.node, (event.accepted | event.fraud | event.void_jobs).bit_count())


def _settled(market: Market, log: Log, event: on_chain.RoundSettled) -> None:
    """Ends a round: the jobs never handed in come free as well."""
    round_ = market.rounds[event.round]
    market.set(round_, state=State.SETTLED)
    if not round_.parent:
        run = market.runs[round_.run]
        market.set(run, rounds_settled=run.rounds_settled + 1)
        _note_neglect(market, round_, market.budgets.get(run.rules_hash))
    for listing in market.listings[event.round]:
        _free(market, listing.node, (_mask(listing) & ~round_.submitted).bit_count())
    _forget(market, event.round)


def _note_neglect(market: Market, round_: Round, budgets: Sequential | None) -> None:
    """Puts what became of each node's jobs on its record; a round nobody handed anything in for tells of no node."""
    if budgets is None or not round_.submitted:
        return
    jobs: dict[int, int] = {}
    for listing in market.listings[round_.id]:
        jobs[listing.node] = jobs.get(listing.node, 0) | _mask(listing)
    for node_id, mask in jobs.items():
        node, lost = market.nodes[node_id], mask & ~(round_.accepted | round_.fraud)
        became = Share(mask.bit_count(), (mask & round_.submitted).bit_count(), lost.bit_count())
        after = neglect_after(Neglect(node.neglect, node.absent), became, budgets)
        market.set(node, neglect=after.evidence, absent=after.absent)


def _mask(listing: Listing) -> int:
    """The listing's jobs."""
    return (1 << listing.count) - 1 << listing.first


def _voided(market: Market, log: Log, event: on_chain.RoundVoided) -> None:
    """Ends a round without a verdict; its jobs stay in flight until ``JobsFreed``."""
    round_ = market.rounds[event.round]
    if round_.parent:
        market.set(round_, state=State.VOID)
        _forget(market, event.round)
        return
    run = market.runs[round_.run]
    market.set(round_, state=State.VOID, holding=True)
    market.set(run, rounds_void=run.rounds_void + 1, jobs_void=run.jobs_void + round_.jobs)


def _freed(market: Market, log: Log, event: on_chain.JobsFreed) -> None:
    for listing in market.listings[event.round]:
        _free(market, listing.node, listing.count)
    market.set(market.rounds[event.round], holding=False)
    _forget(market, event.round)


def _forget(market: Market, round_: int) -> None:
    market.live.discard(round_)
    market.listings.pop(round_, None)
    market.submitted.pop(round_, None)
    market.seats.pop(round_, None)


def _free(market: Market, node: int, jobs: int) -> None:
    market.set(market.nodes[node], in_flight=market.nodes[node].in_flight - jobs)


def _jobs(leaves: bytes) -> int:
    return sum(1 << leaf.job for leaf in unpack_leaves(leaves))


ROUND_HANDLERS: dict[str, Handler] = {
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
} | APPEAL_HANDLERS
"""By event name."""
