"""Checks of bonds: posted, withdrawn and slashed amounts, and the treasury that receives slashes."""

from __future__ import annotations

from collections.abc import Callable

from ledger.audit.audit_state import AuditCheck, AuditState, next_due
from ledger.book import known
from ledger.facts import Node, Round, Seat
from ledger.fold.committees import seats_of
from ledger.fold.treasury import admin_of, treasury_of
from protocol.chain import events
from protocol.chain.structs import NEVER, Cause, Role

AMOUNTS = AuditCheck("amounts", "every running amount an event names is what the events before it add up to")
SLASHES = AuditCheck("slashes", "bonds were slashed exactly for fraud with a quorum, absence and overturned majorities")
TREASURY = AuditCheck(
    "treasury", "slashed bonds went to the treasury of the time, or to the appellant of an overturned verdict"
)


@AMOUNTS.tries(events.NodeRegistered)
def _required(audit: AuditState, log: events.Log, event: events.NodeRegistered) -> None:
    """Tries the bond and the activation time of a new node."""
    terms = audit.terms.registry
    bond = terms.validator_bond if event.role is Role.VALIDATOR else terms.bond_per_job * event.capacity
    audit.findings.equal("amounts", "node", event.node, "bond at registration", event.bond, bond)
    waits = event.role is Role.VALIDATOR and event.active_at == NEVER
    active_at = NEVER if waits else log.timestamp + terms.activation_delay
    audit.findings.equal("amounts", "node", event.node, "active at", event.active_at, active_at)


@AMOUNTS.tries(events.BondToppedUp)
def _topped_up(audit: AuditState, log: events.Log, event: events.BondToppedUp) -> None:
    """Tries a bond after it was topped up."""
    bond = known(audit.book, Node, event.node).bond + event.amount
    audit.findings.equal("amounts", "BondToppedUp", event.node, "bond", event.bond, bond)


@AMOUNTS.tries(events.BondWithdrawn)
def _withdrawal(audit: AuditState, log: events.Log, event: events.BondWithdrawn) -> None:
    """Tries that a withdrawn bond was unbonded, whole and idle."""
    node = known(audit.book, Node, event.node)
    # A newcomer that got no slot was never at stake.
    free_at = node.retired_at + (0 if node.active_at == NEVER else audit.terms.registry.unbonding_delay)
    audit.findings.equal("amounts", "BondWithdrawn", event.node, "amount", event.amount, node.bond)
    audit.findings.holds(
        "amounts", "BondWithdrawn", event.node, "unbonded", bool(node.retired_at) and log.timestamp >= free_at
    )
    audit.findings.equal("amounts", "BondWithdrawn", event.node, "jobs in flight", node.in_flight, 0)
    audit.findings.equal("amounts", "BondWithdrawn", event.node, "withdrawn before", node.withdrawn, False)


@AMOUNTS.tries(events.KeyRevoked)
def _revoked(audit: AuditState, log: events.Log, event: events.KeyRevoked) -> None:
    """Tries that the revoked key was the node's."""
    node = known(audit.book, Node, event.node)
    audit.findings.equal("amounts", "KeyRevoked", event.node, "key", event.key, node.key)


@SLASHES.tries(events.NodeSlashed)
def _slash(audit: AuditState, log: events.Log, event: events.NodeSlashed) -> None:
    node = known(audit.book, Node, event.node)
    due = DUE[event.cause](audit, event)
    key = (event.round, event.node)
    audit.findings.equal("slashes", "round/node", key, "amount", event.amount, min(due, node.bond))
    audit.findings.equal("slashes", "round/node", key, "bond left", event.bond, node.bond - event.amount)
    audit.findings.equal("slashes", "round/node", key, "owner", event.owner, node.owner)


def _fraud_due(audit: AuditState, event: events.NodeSlashed) -> int:
    key = (event.round, event.node)
    due = next_due(audit.due_slashes, key)
    audit.findings.holds("slashes", "round/node", key, "for fraud with a quorum", due is not None)
    return due or 0


def _absence_due(audit: AuditState, event: events.NodeSlashed) -> int:
    round_ = known(audit.book, Round, event.round)
    seat = audit.book.find(Seat, event.round, round_.attempt, event.node)
    silent = round_.state == "voting" and seat is not None and seat.state in ("drawn", "committed")
    punished = audit.absent.setdefault((event.round, round_.attempt), set())
    key = (event.round, round_.attempt, event.node)
    audit.findings.holds("slashes", "round/attempt/juror", key, "absent, once", silent and event.node not in punished)
    punished.add(event.node)
    return audit.terms.penalties.absence_penalty


def _overturned_due(audit: AuditState, event: events.NodeSlashed) -> int:
    """Notes the penalty; the decision that follows shows that the juror was in the overturned majority."""
    conclusion = audit.concluding(event.round)
    conclusion.punished.append((event.node, event.amount))
    return audit.terms.penalties.overturn_penalty


DUE: dict[Cause, Callable[[AuditState, events.NodeSlashed], int]] = {
    Cause.FRAUD: _fraud_due,
    Cause.ABSENCE: _absence_due,
    Cause.OVERTURNED: _overturned_due,
}
"""Cause of a slash to what it costs, before the bond caps it."""


@SLASHES.tries(events.RoundTallied, events.CommitteeRedrawn, events.RoundVoided)
def _absences(
    audit: AuditState, log: events.Log, event: events.RoundTallied | events.CommitteeRedrawn | events.RoundVoided
) -> None:
    round_ = known(audit.book, Round, event.round)
    if round_.state != "voting" or (isinstance(event, events.RoundVoided) and audit.expired(log, round_)):
        return
    key = (event.round, round_.attempt)
    seats = seats_of(audit.book, *key)
    # Without a quorum the windows may have been at fault, so that only a withheld reveal is penalised.
    due = ("drawn", "committed") if isinstance(event, events.RoundTallied) else ("committed",)
    silent = sorted(seat.juror for seat in seats if seat.state in due)
    punished = sorted(audit.absent.pop(key, set()))
    audit.findings.equal(
        "slashes", "round/attempt", key, "jurors penalised for absence", tuple(punished), tuple(silent)
    )


# The pot of slashed bonds


@TREASURY.tries(events.TreasurySwept)
def _swept(audit: AuditState, log: events.Log, event: events.TreasurySwept) -> None:
    key = (log.block_number, log.log_index)
    audit.findings.equal("treasury", "TreasurySwept", key, "amount", event.amount, treasury_of(audit.book).balance)
    audit.findings.equal("treasury", "TreasurySwept", key, "treasury", event.treasury, admin_of(audit.book).treasury)


@TREASURY.tries(events.SlashesAwarded)
def _awarded(audit: AuditState, log: events.Log, event: events.SlashesAwarded) -> None:
    audit.concluding(event.round).awarded[event.owner] += event.amount
    audit.due_grants[event.owner, event.round] += event.amount


@TREASURY.tries(events.CreditsGranted)
def _granted(audit: AuditState, log: events.Log, event: events.CreditsGranted) -> None:
    due = audit.due_grants.pop((event.owner, event.round), 0)
    audit.findings.equal("treasury", "CreditsGranted", (event.owner, event.round), "amount", event.amount, due)


@SLASHES.concludes
def _all_taken(audit: AuditState) -> None:
    for (round_, node), slashes in audit.due_slashes.items():
        audit.findings.equal(
            "slashes", "round/node", (round_, node), "fraud slashes owed and not taken", len(slashes), 0
        )


@TREASURY.concludes
def _all_granted(audit: AuditState) -> None:
    for key, amount in audit.due_grants.items():
        audit.findings.equal("treasury", "owed", key, "announced and not carried out", amount, 0)


CHECKS = (SLASHES, TREASURY)
