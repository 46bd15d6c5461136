"""The events of credits and of the token beneath them."""

from __future__ import annotations

from dataclasses import replace

from ledger.book import Book, add, known
from ledger.facts import Credit, CreditEntry, Holding, Node, Round, Run
from protocol.chain import events

NOBODY = "0x" + "0" * 40


def _bought(book: Book, log: events.Log, event: events.CreditsBought) -> None:
    add(book, _credit(book, event.owner), bought=event.amount, balance=event.amount)
    book.put(_entry(log, event.owner, "bought", event.amount))


def _redeemed(book: Book, log: events.Log, event: events.CreditsRedeemed) -> None:
    add(book, _credit(book, event.owner), redeemed=event.amount, balance=-event.amount)
    book.put(replace(_entry(log, event.owner, "redeemed", event.amount), receiver=event.to))


def _locked(book: Book, log: events.Log, event: events.CreditsLocked) -> None:
    add(book, _credit(book, event.owner), locked=event.amount, balance=-event.amount)
    book.put(_entry(log, event.owner, "locked", event.amount, run=event.run))


def _unlocked(book: Book, log: events.Log, event: events.CreditsUnlocked) -> None:
    add(book, _credit(book, event.owner), unlocked=event.amount, balance=event.amount)
    book.put(_entry(log, event.owner, "unlocked", event.amount, run=event.run))


def _earned(book: Book, log: events.Log, event: events.CreditsEarned) -> None:
    kind = "judged" if known(book, Node, event.node).role == "validator" else "worked"
    add(book, _credit(book, event.owner), **{kind: event.amount}, balance=event.amount)
    book.put(_entry(log, event.owner, kind, event.amount, event.run, event.round, event.node))
    for fact in (known(book, Run, event.run), known(book, Round, event.round)):
        add(book, fact, paid=event.amount, reserved=-event.amount)


def _granted(book: Book, log: events.Log, event: events.CreditsGranted) -> None:
    add(book, _credit(book, event.owner), granted=event.amount, balance=event.amount)
    book.put(_entry(log, event.owner, "granted", event.amount, round_=event.round))


def _transferred(book: Book, log: events.Log, event: events.Transfer) -> None:
    # Minting comes from the zero address and burning goes to it; it holds nothing.
    for holder, change in ((event.sender, -event.value), (event.to, event.value)):
        if holder != NOBODY:
            holding = book.find(Holding, holder)
            book.put(Holding(holder, holding.tokens + change if holding else change))


def _credit(book: Book, owner: str) -> Credit:
    return book.find(Credit, owner) or Credit(owner)


def _entry(
    log: events.Log, owner: str, kind: str, amount: int, run: int = 0, round_: int = 0, node: int = 0
) -> CreditEntry:
    return CreditEntry(log.block_number, log.log_index, log.tx_hash, owner, kind, run, round_, node, amount)


CREDITS = {
    events.CreditsBought: _bought,
    events.CreditsRedeemed: _redeemed,
    events.CreditsLocked: _locked,
    events.CreditsUnlocked: _unlocked,
    events.CreditsEarned: _earned,
    events.CreditsGranted: _granted,
    events.Transfer: _transferred,
}
"""Event type to the function that folds it."""
