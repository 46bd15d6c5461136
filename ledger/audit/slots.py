"""Checks of validator slots: who contests which, who keeps it, and how many change hands."""

from __future__ import annotations

from ledger.audit.audit_state import AuditCheck, AuditState
from ledger.book import known
from ledger.facts import Node, Slot
from protocol.chain import events
from protocol.chain.structs import NEVER, Role

SLOTS = AuditCheck(
    "slots",
    "newcomers bid a quarter over the least bond of a full house; a slot passes unmatched only, and one in sixteen",
)

HOUSE = 256
"""Validator slots."""

TURNS = 16
"""Slots that may be contested, or have passed within an unbonding delay."""


@SLOTS.tries(events.NodeRegistered)
def _taken(audit: AuditState, log: events.Log, event: events.NodeRegistered) -> None:
    if event.role is not Role.VALIDATOR or event.active_at == NEVER:
        return
    taken = {slot.slot for slot in audit.book.all(Slot) if slot.node}
    lowest = next(slot for slot in range(HOUSE + 1) if slot not in taken)
    audit.findings.equal("slots", "NodeRegistered", event.node, "lowest free slot", event.slot, lowest)


@SLOTS.tries(events.SlotContested)
def _contested(audit: AuditState, log: events.Log, event: events.SlotContested) -> None:
    slots, terms = list(audit.book.all(Slot)), audit.terms.registry
    posted = {slot.slot: known(audit.book, Node, slot.node).bond for slot in slots if slot.node and not slot.newcomer}
    full = len(slots) == HOUSE and all(slot.node for slot in slots)
    audit.findings.holds("slots", "SlotContested", event.slot, "a full house", full)
    least = min(posted, key=lambda slot: (posted[slot], slot), default=None)
    audit.findings.equal("slots", "SlotContested", event.slot, "least bond", event.slot, least)
    bond = max(terms.validator_bond, -(-5 * posted.get(event.slot, 0) // 4))
    newcomer = known(audit.book, Node, event.newcomer)
    audit.findings.equal("slots", "SlotContested", event.slot, "bond", (event.bond, newcomer.bond), (bond, bond))
    until = log.timestamp + terms.activation_delay
    audit.findings.equal("slots", "SlotContested", event.slot, "until", event.until, until)
    audit.findings.equal("slots", "SlotContested", event.slot, "newcomer waits", newcomer.active_at, NEVER)
    holder = known(audit.book, Slot, event.slot).node
    audit.findings.equal("slots", "SlotContested", event.slot, "holder", event.holder, holder)
    recent = sum(passed + terms.unbonding_delay > log.timestamp for passed in audit.slots_passed)
    taken = recent + sum(slot.newcomer != 0 for slot in slots)
    audit.findings.holds("slots", "SlotContested", event.slot, "one in sixteen", taken < TURNS)


@SLOTS.tries(events.SlotKept)
def _kept(audit: AuditState, log: events.Log, event: events.SlotKept) -> None:
    slot, newcomer = known(audit.book, Slot, event.slot), known(audit.book, Node, event.newcomer)
    matched = known(audit.book, Node, event.holder).bond >= newcomer.bond and log.timestamp < slot.until
    audit.findings.holds("slots", "SlotKept", event.slot, "matched in time", matched)
    parties = (slot.node, slot.newcomer)
    audit.findings.equal("slots", "SlotKept", event.slot, "parties", (event.holder, event.newcomer), parties)


@SLOTS.tries(events.NodeRetired)
def _retired(audit: AuditState, log: events.Log, event: events.NodeRetired) -> None:
    node = known(audit.book, Node, event.node)
    if node.active_at == NEVER:
        waits = known(audit.book, Slot, node.slot).newcomer == event.node
        audit.findings.equal("slots", "NodeRetired", event.node, "while it waits for a slot", waits, False)


@SLOTS.tries(events.SlotPassed)
def _passed(audit: AuditState, log: events.Log, event: events.SlotPassed) -> None:
    slot, displaced = known(audit.book, Slot, event.slot), known(audit.book, Node, event.displaced)
    audit.findings.holds("slots", "SlotPassed", event.slot, "not matched in time", log.timestamp >= slot.until)
    audit.findings.holds("slots", "SlotPassed", event.slot, "the displaced is retired", bool(displaced.retired_at))
    parties = (slot.node, slot.newcomer)
    audit.findings.equal("slots", "SlotPassed", event.slot, "parties", (event.displaced, event.newcomer), parties)
    active_at = log.timestamp + audit.terms.market.max_round_seconds + 1
    audit.findings.equal("slots", "SlotPassed", event.slot, "active at", event.active_at, active_at)
    audit.slots_passed.append(log.timestamp)


CHECKS = (SLOTS,)
