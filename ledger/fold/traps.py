"""The events of planted faults."""

from __future__ import annotations

from ledger.book import Book, add, known
from ledger.facts import OpenedTrap, TrapSet
from protocol.chain import events


def _set(book: Book, log: events.Log, event: events.TrapsSet) -> None:
    book.put(
        TrapSet(
            event.set,
            event.run,
            event.setter,
            event.root,
            event.leaves,
            event.bounty,
            event.first,
            event.open_by,
            balance=event.leaves * event.bounty,
        )
    )


def _opened(book: Book, log: events.Log, event: events.TrapOpened) -> None:
    add(book, known(book, TrapSet, event.set), opened=1, balance=-event.bounty)
    job = (event.round, event.node, event.job, len(event.finders))
    book.put(_leaf(log, event.set, event.leaf, event.kind.name.lower(), *job))


def _decoy(book: Book, log: events.Log, event: events.DecoyOpened) -> None:
    add(book, known(book, TrapSet, event.set), opened=1, balance=-event.amount)
    book.put(_leaf(log, event.set, event.leaf, "decoy"))


def _forfeited(book: Book, log: events.Log, event: events.TrapsForfeited) -> None:
    add(book, known(book, TrapSet, event.set), opened=event.leaves, balance=-event.amount)


def _leaf(log: events.Log, number: int, leaf: bytes, kind: str, *job: int) -> OpenedTrap:
    return OpenedTrap(log.block_number, log.log_index, log.tx_hash, number, leaf, kind, *job)


TRAPS = {
    events.TrapsSet: _set,
    events.TrapOpened: _opened,
    events.DecoyOpened: _decoy,
    events.TrapsForfeited: _forfeited,
}
"""Event type to the function that folds it."""
