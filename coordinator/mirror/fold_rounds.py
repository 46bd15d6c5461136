"""Effects of the events of ``Rounds`` on the mirrored rows. PURE.

The handlers here change runs, nodes, listings and submitted leaves, and see the round as it was before the event.
``protocol.chain.round_changes`` then changes the round itself.
"""

from __future__ import annotations

from coordinator.mirror.fold_appeals import APPEAL_HANDLERS
from coordinator.mirror.market import Handler, Market
from coordinator.mirror.neglect import Neglect, NodeOutcome, neglect_after
from coordinator.tables import ListingRow, RoundRow, SubmittedRow
from protocol.chain import events as on_chain
from protocol.chain.events import Log
from protocol.chain.round_changes import opening
from protocol.chain.structs import Verdict, jobs_by_verdict
from protocol.wire.assignments import unpack_assignments
from protocol.wire.reasons import Reason
from protocol.wire.rules import Sequential


def _opened(market: Market, log: Log, event: on_chain.RoundOpened) -> None:
    run = market.runs[event.run]
    market.begin_round(RoundRow(id=event.round, reveal_seconds=run.reveal_seconds, **opening(log, event)))
    market.set(run, step=event.step, rounds_opened=run.rounds_opened + 1)
    first = 0
    for listing in unpack_assignments(event.assignments):
        row = ListingRow(round=event.round, first=first, node=listing.node, count=listing.count)
        market.listings[event.round].append(row)
        market.touch(row)
        market.add(market.nodes[listing.node], in_flight=listing.count, given=listing.count)
        first += listing.count


def _submitted(market: Market, log: Log, event: on_chain.Submitted) -> None:
    rows = market.submitted.setdefault(event.round, [])
    position = sum(row.batch == event.batch for row in rows)
    row = SubmittedRow(round=event.round, batch=event.batch, position=position, node=event.node, leaves=event.leaves)
    rows.append(row)
    market.touch(row)


def _revealed(market: Market, log: Log, event: on_chain.VoteRevealed) -> None:
    seat = market.seats[event.round][event.attempt, event.juror]
    market.set(seat, unfit=Reason.UNFIT_CHECKPOINT in event.reasons)


def _tallied(market: Market, log: Log, event: on_chain.RoundTallied) -> None:
    round_ = market.rounds[event.round]
    if round_.parent:
        return  # the result of an appeal is in the events of the round appealed against
    judged = jobs_by_verdict(event.accepted, event.fraud, round_.submitted)
    accepted, fraud = judged[Verdict.ACCEPTED].bit_count(), judged[Verdict.FRAUD].bit_count()
    void = round_.jobs - accepted - fraud
    market.add(market.runs[round_.run], jobs_accepted=accepted, jobs_fraud=fraud, jobs_void=void)
    for listing in market.listings[event.round]:
        if found := (judged[Verdict.FRAUD] & _mask(listing)).bit_count():
            market.add(market.nodes[listing.node], fraudulent=found)


def _settled_submission(market: Market, log: Log, event: on_chain.SubmissionSettled) -> None:
    """Settles the whole batch; its jobs that were appealed are freed by their appeals."""
    for row in market.submitted.get(event.round, []):
        if row.batch == event.batch and not row.settled:
            market.set(row, settled=True)
    _free(market, event.node, (event.accepted | event.fraud | event.void_jobs).bit_count())


def _settled(market: Market, log: Log, event: on_chain.RoundSettled) -> None:
    """Frees the jobs that were never submitted, and updates the records of the round's nodes."""
    round_ = market.rounds[event.round]
    if not round_.parent:
        run = market.runs[round_.run]
        market.add(run, rounds_settled=1)
        _note_neglect(market, round_, market.budgets.get(run.rules_hash))
    for listing in market.listings[event.round]:
        _free(market, listing.node, (_mask(listing) & ~round_.submitted).bit_count())


def _note_neglect(market: Market, round_: RoundRow, budgets: Sequential | None) -> None:
    """Updates the evidence of neglect of each listed node.

    A round without any submission says nothing about nodes, nor does one of a checkpoint that a majority calls unfit:
    its jobs are void, and honest nodes leave them undone.
    """
    seats = market.jurors(round_)
    if budgets is None or not round_.submitted or 2 * sum(seat.unfit for seat in seats) > len(seats):
        return
    jobs: dict[int, int] = {}
    for listing in market.listings[round_.id]:
        jobs[listing.node] = jobs.get(listing.node, 0) | _mask(listing)
    judged = jobs_by_verdict(round_.accepted, round_.fraud, round_.submitted)
    for node_id, mask in jobs.items():
        node, lost = market.nodes[node_id], mask & ~(judged[Verdict.ACCEPTED] | judged[Verdict.FRAUD])
        became = NodeOutcome(mask.bit_count(), (mask & round_.submitted).bit_count(), lost.bit_count())
        after = neglect_after(Neglect(node.neglect, node.absent), became, budgets)
        market.set(node, neglect=after.evidence, absent=after.absent)


def _mask(listing: ListingRow) -> int:
    """Returns the bitmap of the listing's jobs."""
    return (1 << listing.count) - 1 << listing.first


def _voided(market: Market, log: Log, event: on_chain.RoundVoided) -> None:
    round_ = market.rounds[event.round]
    if not round_.parent:
        market.add(market.runs[round_.run], rounds_void=1, jobs_void=round_.jobs)


def _freed(market: Market, log: Log, event: on_chain.JobsFreed) -> None:
    for listing in market.listings[event.round]:
        _free(market, listing.node, listing.count)


def _free(market: Market, node: int, jobs: int) -> None:
    market.add(market.nodes[node], in_flight=-jobs)


ROUND_HANDLERS: dict[str, Handler] = {
    "RoundOpened": _opened,
    "Submitted": _submitted,
    "VoteRevealed": _revealed,
    "RoundTallied": _tallied,
    "SubmissionSettled": _settled_submission,
    "RoundSettled": _settled,
    "RoundVoided": _voided,
    "JobsFreed": _freed,
    **APPEAL_HANDLERS,
}
"""By event name."""
