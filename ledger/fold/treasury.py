"""The events of the admin, and of the pot of slashed bonds."""

from __future__ import annotations

from dataclasses import replace

from ledger.book import Book, add
from ledger.facts import THE_ONE, Admin, Sweep, Treasury
from protocol.chain.events import Log, Paused, SlashesAwarded, TreasuryChanged, TreasurySwept, Unpaused


def admin_of(book: Book) -> Admin:
    """Returns what the admin last said."""
    return book.find(Admin, THE_ONE) or Admin()


def treasury_of(book: Book) -> Treasury:
    """Returns the pot of slashed bonds."""
    return book.find(Treasury, THE_ONE) or Treasury()


def _paused(book: Book, log: Log, event: Paused) -> None:
    book.put(replace(admin_of(book), paused=True))


def _unpaused(book: Book, log: Log, event: Unpaused) -> None:
    book.put(replace(admin_of(book), paused=False))


def _changed(book: Book, log: Log, event: TreasuryChanged) -> None:
    book.put(replace(admin_of(book), treasury=event.treasury))


def _swept(book: Book, log: Log, event: TreasurySwept) -> None:
    add(book, treasury_of(book), swept=event.amount, balance=-event.amount)
    book.put(Sweep(log.block_number, log.log_index, log.tx_hash, event.treasury, event.amount))


def _awarded(book: Book, log: Log, event: SlashesAwarded) -> None:
    add(book, treasury_of(book), awarded=event.amount, balance=-event.amount)


TREASURY = {
    Paused: _paused,
    Unpaused: _unpaused,
    TreasuryChanged: _changed,
    TreasurySwept: _swept,
    SlashesAwarded: _awarded,
}
"""Event type to the function that folds it."""
