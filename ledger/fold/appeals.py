"""The events of appeals: trials, deposits, final verdicts, taint."""

from __future__ import annotations

from dataclasses import replace

from ledger.book import Book, add, known
from ledger.facts import Appeal, Checkpoint, Job, Node, Round, Run, Taint
from ledger.facts.fact import NO_WORD
from ledger.fold.committees import seats_of
from ledger.fold.rounds import count_in_flight
from protocol.chain import events
from protocol.chain.structs import with_verdict
from protocol.wire.assignments import bitmap_of, jobs_in


def _opened(book: Book, log: events.Log, event: events.AppealOpened) -> None:
    parent = known(book, Round, event.round)
    bit = 1 << event.job
    book.put(replace(parent, appealed=parent.appealed | bit, appeals=parent.appeals + 1))
    book.put(replace(known(book, Job, event.round, event.job), appeal=event.appeal))
    book.put(_trial(book, log, event, parent))
    book.put(
        Appeal(
            appeal=event.appeal,
            round=event.round,
            run=parent.run,
            job=event.job,
            appellant=event.appellant,
            against=event.against.name.lower(),
            node=event.node,
            units=event.units,
            deposit=event.deposit,
            state="pending",
            verdict="",
            fees=0,
            awarded=0,
            forfeited=0,
            block_number=log.block_number,
            tx_hash=log.tx_hash,
        )
    )


def _trial(book: Book, log: events.Log, event: events.AppealOpened, parent: Round) -> Round:
    """The round under the appeal's own number: it keeps the parent's run, opening time, fee and windows."""
    return Round(
        round=event.appeal,
        run=parent.run,
        parent=event.round,
        step=parent.step,
        policy_version=parent.policy_version,
        state="closed",
        jobs=0,
        slot_count=parent.slot_count,
        committee=parent.appeal_seats,
        appeal_seats=0,
        max_units=0,
        price_per_unit=0,
        juror_fee=parent.juror_fee,
        draw_seconds=parent.draw_seconds,
        commit_seconds=parent.commit_seconds,
        reveal_seconds=parent.reveal_seconds,
        challenge_seconds=0,
        assignments=b"",
        open_block=0,
        beacon=NO_WORD,
        opened_at=parent.opened_at,
        deadline=event.deadline,
        close_block=log.block_number,
        close_hash=log.block_hash,
        eligible=parent.eligible & ~_seated_slots(book, parent),
        submitted=1 << event.job,
        reserve=event.deposit,
        reserved=event.deposit,
    )


def _seated_slots(book: Book, round_: Round) -> int:
    seats = seats_of(book, round_.round, round_.attempt)
    return bitmap_of(known(book, Node, seat.juror).slot for seat in seats)


def _deposit_locked(book: Book, log: events.Log, event: events.DepositLocked) -> None:
    add(book, known(book, Run, event.run), deposited=event.amount, reserved=event.amount)


def _deposit_paid_out(book: Book, log: events.Log, event: events.DepositPaidOut) -> None:
    for fact in (known(book, Run, event.run), known(book, Round, event.round)):
        add(book, fact, paid_out=event.amount, reserved=-event.amount)


def _job_settled(book: Book, log: events.Log, event: events.AppealedJobSettled) -> None:
    round_, verdict = known(book, Round, event.round), event.verdict.name.lower()
    accepted, fraud = with_verdict(round_.accepted, round_.fraud, event.job, event.verdict)
    book.put(replace(round_, accepted=accepted, fraud=fraud))
    book.put(replace(known(book, Job, event.round, event.job), verdict=verdict, credited=event.paid))
    count_in_flight(book, {event.node: 1}, sign=-1)


def _tainted(book: Book, log: events.Log, event: events.JobsTainted) -> None:
    for number in jobs_in(event.jobs):
        job = known(book, Job, event.round, number)
        book.put(
            Taint(
                round=event.round,
                job=number,
                run=event.run,
                version=job.trained,
                appeal=job.appeal,
                block_number=log.block_number,
                tx_hash=log.tx_hash,
            )
        )
        _taint_from(book, event.run, job.trained)


def _taint_from(book: Book, run_id: int, version: int) -> None:
    """Counts one more tainted job under ``version`` and every later one."""
    checkpoint = known(book, Checkpoint, run_id, known(book, Run, run_id).version)
    while checkpoint.version >= version:
        add(book, checkpoint, tainted=1)
        if checkpoint.version == checkpoint.previous:
            return
        checkpoint = known(book, Checkpoint, run_id, checkpoint.previous)


def _decided(book: Book, log: events.Log, event: events.AppealDecided) -> None:
    appeal = known(book, Appeal, event.appeal)
    verdict = event.verdict.name.lower()
    state = ("upheld" if verdict == appeal.against else "overturned") if event.decided else "undecided"
    book.put(
        replace(
            appeal,
            state=state,
            verdict=verdict,
            fees=event.fees,
            awarded=event.awarded,
            forfeited=event.forfeited,
        )
    )
    add(book, known(book, Round, event.round), appeals=-1)


APPEALS = {
    events.AppealOpened: _opened,
    events.DepositLocked: _deposit_locked,
    events.DepositPaidOut: _deposit_paid_out,
    events.JobsTainted: _tainted,
    events.AppealedJobSettled: _job_settled,
    events.AppealDecided: _decided,
}
"""Event type to the function that folds it."""
