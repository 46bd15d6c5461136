"""The market's events: runs, escrow, membership, checkpoints."""

from __future__ import annotations

from dataclasses import asdict, replace

from ledger.book import Book, known
from ledger.facts import Checkpoint, Consumption, Membership, Run
from protocol.chain.events import (
    CheckpointPublished,
    EscrowReleased,
    EscrowReserved,
    Log,
    NodeJoined,
    NodeLeft,
    RunClosed,
    RunFunded,
    RunOpened,
    RunRefunded,
)

NOT_JOINED = bytes(32)


def _opened(book: Book, log: Log, event: RunOpened) -> None:
    book.put(
        Run(
            run=event.run,
            requester=event.requester,
            **asdict(event.terms),
            # PostgreSQL's text holds no NUL, and a requester may write one.
            uri=event.uri.replace("\0", "\ufffd"),
            version=0,
            closed=False,
            funded=0,
            refunded=0,
            paid=0,
            escrow=0,
            reserved=0,
        )
    )
    book.put(Checkpoint(event.run, 0, event.manifest_root, 0, log.block_number, log.timestamp, log.tx_hash))


def _funded(book: Book, log: Log, event: RunFunded) -> None:
    run = known(book, Run, event.run)
    book.put(replace(run, funded=run.funded + event.amount, escrow=run.escrow + event.amount))


def _refunded(book: Book, log: Log, event: RunRefunded) -> None:
    run = known(book, Run, event.run)
    book.put(replace(run, refunded=run.refunded + event.amount, escrow=run.escrow - event.amount))


def _closed(book: Book, log: Log, event: RunClosed) -> None:
    book.put(replace(known(book, Run, event.run), closed=True))


def _reserved(book: Book, log: Log, event: EscrowReserved) -> None:
    run = known(book, Run, event.run)
    book.put(replace(run, escrow=run.escrow - event.amount, reserved=run.reserved + event.amount))


def _released(book: Book, log: Log, event: EscrowReleased) -> None:
    run = known(book, Run, event.run)
    book.put(replace(run, escrow=run.escrow + event.amount, reserved=run.reserved - event.amount))


def _joined(book: Book, log: Log, event: NodeJoined) -> None:
    book.put(Membership(event.run, event.node, event.rules_hash))


def _left(book: Book, log: Log, event: NodeLeft) -> None:
    book.put(Membership(event.run, event.node, NOT_JOINED))


def _published(book: Book, log: Log, event: CheckpointPublished) -> None:
    jobs = sum(part.jobs.bit_count() for part in event.consumed)
    book.put(replace(known(book, Run, event.run), version=event.version))
    book.put(
        Checkpoint(event.run, event.version, event.manifest_root, jobs, log.block_number, log.timestamp, log.tx_hash)
    )
    for part in event.consumed:
        earlier = book.find(Consumption, event.run, event.version, part.round)
        both = part.jobs | (earlier.jobs if earlier else 0)
        book.put(Consumption(event.run, event.version, part.round, both))


RUNS = {
    RunOpened: _opened,
    RunFunded: _funded,
    RunRefunded: _refunded,
    RunClosed: _closed,
    EscrowReserved: _reserved,
    EscrowReleased: _released,
    NodeJoined: _joined,
    NodeLeft: _left,
    CheckpointPublished: _published,
}
"""Event type to the function that folds it."""
