"""The market's events: runs, escrow, membership, checkpoints."""

from __future__ import annotations

from dataclasses import asdict, replace

from ledger.book import Book, add, known
from ledger.facts import Checkpoint, Consent, Consumption, Job, Membership, Node, Run, RunTerms
from ledger.facts.fact import NO_WORD
from protocol.chain import events
from protocol.wire.assignments import jobs_in


def _opened(book: Book, log: events.Log, event: events.RunOpened) -> None:
    # PostgreSQL's text holds no NUL, and a requester may write one.
    book.put(Run(event.run, event.requester, announcements=0, uri=event.uri.replace("\0", "\ufffd")))
    book.put(_terms(log, event, number=0, effective_at=log.timestamp))
    book.put(_checkpoint(log, event, version=0, previous=0, jobs=0, tainted=0))


def _announced(book: Book, log: events.Log, event: events.TermsAnnounced) -> None:
    run = known(book, Run, event.run)
    last = known(book, RunTerms, event.run, run.announcements)
    if last.effective_at > log.timestamp:
        book.put(replace(last, replaced=True))
    book.put(replace(run, announcements=run.announcements + 1))
    book.put(_terms(log, event, run.announcements + 1, event.effective_at))


def _terms(
    log: events.Log, event: events.RunOpened | events.TermsAnnounced, number: int, effective_at: int
) -> RunTerms:
    return RunTerms(event.run, number, log.timestamp, effective_at, False, **asdict(event.terms))


def terms_at(book: Book, run_id: int, timestamp: int) -> RunTerms:
    """Returns the terms of a run in effect at ``timestamp``, no earlier than the last event folded."""
    for number in range(known(book, Run, run_id).announcements, 0, -1):
        terms = known(book, RunTerms, run_id, number)
        if terms.effective_at <= timestamp and not terms.replaced:
            return terms
    return known(book, RunTerms, run_id, 0)


def _funded(book: Book, log: events.Log, event: events.RunFunded) -> None:
    add(book, known(book, Run, event.run), funded=event.amount, escrow=event.amount)


def _refunded(book: Book, log: events.Log, event: events.RunRefunded) -> None:
    add(book, known(book, Run, event.run), refunded=event.amount, escrow=-event.amount)


def _closed(book: Book, log: events.Log, event: events.RunClosed) -> None:
    book.put(replace(known(book, Run, event.run), closed=True))


def _reserved(book: Book, log: events.Log, event: events.EscrowReserved) -> None:
    add(book, known(book, Run, event.run), escrow=-event.amount, reserved=event.amount)


def _released(book: Book, log: events.Log, event: events.EscrowReleased) -> None:
    add(book, known(book, Run, event.run), escrow=event.amount, reserved=-event.amount)


def _joined(book: Book, log: events.Log, event: events.NodeJoined) -> None:
    member, node = membership_of(book, event.run, event.node), known(book, Node, event.node)
    if member.rules_hash == NO_WORD:
        add(book, node, runs=1)
    if node.role == "validator":
        present = terms_at(book, event.run, log.timestamp)
        announced = known(book, Run, event.run).announcements
        number = present.number if event.rules_hash == present.rules_hash else announced
        book.put(Consent(event.run, event.node, number, given=True))
    book.put(replace(member, rules_hash=event.rules_hash))


def membership_of(book: Book, run: int, node: int) -> Membership:
    """Returns what a node is in a run, also where it has never joined it."""
    return book.find(Membership, run, node) or Membership(run, node)


def _left(book: Book, log: events.Log, event: events.NodeLeft) -> None:
    member = membership_of(book, event.run, event.node)
    if member.rules_hash != NO_WORD:
        add(book, known(book, Node, event.node), runs=-1)
    for number in range(known(book, Run, event.run).announcements + 1):
        consent = book.find(Consent, event.run, event.node, number)
        if consent is not None:
            book.put(replace(consent, given=False))
    book.put(replace(member, rules_hash=NO_WORD))


def _published(book: Book, log: events.Log, event: events.CheckpointPublished) -> None:
    run = known(book, Run, event.run)
    before = known(book, Checkpoint, event.run, run.version)
    jobs = sum(part.jobs.bit_count() for part in event.consumed)
    book.put(replace(run, version=event.version))
    book.put(_checkpoint(log, event, event.version, previous=before.version, jobs=jobs, tainted=before.tainted))
    for part in event.consumed:
        earlier = book.find(Consumption, event.run, event.version, part.round)
        both = part.jobs | (earlier.jobs if earlier else 0)
        book.put(Consumption(event.run, event.version, part.round, both))
        for number in jobs_in(part.jobs):
            book.put(replace(known(book, Job, part.round, number), trained=event.version))


def _checkpoint(
    log: events.Log, event: events.RunOpened | events.CheckpointPublished, version: int, **counts: int
) -> Checkpoint:
    return Checkpoint(
        run=event.run,
        version=version,
        manifest_root=event.manifest_root,
        block_number=log.block_number,
        timestamp=log.timestamp,
        tx_hash=log.tx_hash,
        **counts,
    )


RUNS = {
    events.RunOpened: _opened,
    events.TermsAnnounced: _announced,
    events.RunFunded: _funded,
    events.RunRefunded: _refunded,
    events.RunClosed: _closed,
    events.EscrowReserved: _reserved,
    events.EscrowReleased: _released,
    events.NodeJoined: _joined,
    events.NodeLeft: _left,
    events.CheckpointPublished: _published,
}
"""Event type to the function that folds it."""
