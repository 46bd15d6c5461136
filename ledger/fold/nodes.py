"""The registry's events: nodes, slots, bonds, slashes."""

from __future__ import annotations

from dataclasses import replace

from ledger.book import Book, add, known
from ledger.facts import Node, Service, Slash, Slot
from ledger.fold.treasury import treasury_of
from protocol.chain import events
from protocol.chain.structs import NEVER, Cause, Role

NO_KEY = "0x" + "0" * 40


def _registered(book: Book, log: events.Log, event: events.NodeRegistered) -> None:
    book.put(
        Node(
            node=event.node,
            owner=event.owner,
            role=event.role.name.lower(),
            slot=event.slot,
            capacity=event.capacity,
            key=event.key,
            active_at=event.active_at,
            posted=event.bond,
            bond=event.bond,
        )
    )
    if event.role is Role.VALIDATOR:
        if event.active_at != NEVER:
            book.put(Slot(event.slot, event.node))
        book.put(Service(event.node, event.owner))


def _topped_up(book: Book, log: events.Log, event: events.BondToppedUp) -> None:
    add(book, known(book, Node, event.node), topped_up=event.amount, bond=event.amount)


def _retired(book: Book, log: events.Log, event: events.NodeRetired) -> None:
    book.put(replace(known(book, Node, event.node), retired_at=event.retired_at))


def _withdrawn(book: Book, log: events.Log, event: events.BondWithdrawn) -> None:
    node = known(book, Node, event.node)
    returned = node.returned + event.amount
    book.put(replace(node, withdrawn=True, returned=returned, bond=node.bond - event.amount, key=NO_KEY))
    if node.role == "validator":
        slot = known(book, Slot, node.slot)
        if slot.node == event.node and not slot.newcomer:
            book.put(Slot(node.slot, 0))


def _contested(book: Book, log: events.Log, event: events.SlotContested) -> None:
    book.put(replace(known(book, Slot, event.slot), newcomer=event.newcomer, until=event.until))


def _kept(book: Book, log: events.Log, event: events.SlotKept) -> None:
    book.put(replace(known(book, Slot, event.slot), newcomer=0, until=0))


def _passed(book: Book, log: events.Log, event: events.SlotPassed) -> None:
    # A holder that was not active yet leaves the draws of older rounds to the one before it.
    before = seated_at(book, event.slot, log.timestamp)
    book.put(Slot(event.slot, event.newcomer, before=before))
    book.put(replace(known(book, Node, event.newcomer), active_at=event.active_at))


def seated_at(book: Book, number: int, timestamp: int) -> int:
    """Returns the validator that a draw at ``timestamp`` seats at a slot; 0 if the slot is free."""
    slot = known(book, Slot, number)
    waits = slot.before != 0 and timestamp < known(book, Node, slot.node).active_at
    return slot.before if waits else slot.node


def _slashed(book: Book, log: events.Log, event: events.NodeSlashed) -> None:
    node = known(book, Node, event.node)
    add(book, treasury_of(book), slashed=event.amount, balance=event.amount)
    add(book, node, slashed=event.amount, bond=-event.amount)
    book.put(
        Slash(
            block_number=log.block_number,
            log_index=log.log_index,
            tx_hash=log.tx_hash,
            node=event.node,
            owner=event.owner,
            round=event.round,
            cause=event.cause.name.lower(),
            amount=event.amount,
            bond=event.bond,
        )
    )
    if node.role == "validator":
        absent, overturned = event.cause is Cause.ABSENCE, event.cause is Cause.OVERTURNED
        add(book, known(book, Service, event.node), absent=absent, overturned=overturned)


def _key_rotated(book: Book, log: events.Log, event: events.KeyRotated) -> None:
    book.put(replace(known(book, Node, event.node), key=event.key, revoked=False))


def _key_revoked(book: Book, log: events.Log, event: events.KeyRevoked) -> None:
    book.put(replace(known(book, Node, event.node), key=NO_KEY, revoked=True))


NODES = {
    events.NodeRegistered: _registered,
    events.BondToppedUp: _topped_up,
    events.NodeRetired: _retired,
    events.SlotContested: _contested,
    events.SlotKept: _kept,
    events.SlotPassed: _passed,
    events.BondWithdrawn: _withdrawn,
    events.NodeSlashed: _slashed,
    events.KeyRotated: _key_rotated,
    events.KeyRevoked: _key_revoked,
}
"""Event type to the function that folds it."""
