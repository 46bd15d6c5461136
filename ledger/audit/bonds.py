"""What is tried of bonds: what was posted, withdrawn and slashed, and what became of the slashed ones."""

from __future__ import annotations

from collections.abc import Callable

from ledger.audit.trial import Check, Trial, next_due
from ledger.book import known
from ledger.facts import Node, Round, Seat
from ledger.fold.committees import seats_of
from ledger.fold.treasury import admin_of, treasury_of
from protocol.chain.events import (
    BondToppedUp,
    BondWithdrawn,
    CommitteeRedrawn,
    CreditsGranted,
    Event,
    KeyRevoked,
    Log,
    NodeRegistered,
    NodeSlashed,
    RoundTallied,
    RoundVoided,
    SlashesAwarded,
    TreasurySwept,
)
from protocol.chain.structs import Cause, Role


def _required(trial: Trial, log: Log, event: NodeRegistered) -> None:
    terms = trial.terms.registry
    bond = terms.validator_bond if event.role is Role.VALIDATOR else terms.bond_per_job * event.capacity
    trial.findings.equal("amounts", "node", event.node, "bond at registration", event.bond, bond)
    active_at = log.timestamp + terms.activation_delay
    trial.findings.equal("amounts", "node", event.node, "active at", event.active_at, active_at)


def _topped_up(trial: Trial, log: Log, event: BondToppedUp) -> None:
    bond = known(trial.book, Node, event.node).bond + event.amount
    trial.findings.equal("amounts", "BondToppedUp", event.node, "bond", event.bond, bond)


def _withdrawal(trial: Trial, log: Log, event: BondWithdrawn) -> None:
    node = known(trial.book, Node, event.node)
    free_at = node.retired_at + trial.terms.registry.unbonding_delay
    trial.findings.equal("amounts", "BondWithdrawn", event.node, "amount", event.amount, node.bond)
    trial.findings.holds(
        "amounts", "BondWithdrawn", event.node, "unbonded", bool(node.retired_at) and log.timestamp >= free_at
    )
    trial.findings.equal("amounts", "BondWithdrawn", event.node, "jobs in flight", node.in_flight, 0)
    trial.findings.equal("amounts", "BondWithdrawn", event.node, "withdrawn before", node.withdrawn, False)


def _revoked(trial: Trial, log: Log, event: KeyRevoked) -> None:
    node = known(trial.book, Node, event.node)
    trial.findings.equal("amounts", "KeyRevoked", event.node, "key", event.key, node.key)


def _slash(trial: Trial, log: Log, event: NodeSlashed) -> None:
    node = known(trial.book, Node, event.node)
    due = DUE[event.cause](trial, event)
    key = (event.round, event.node)
    trial.findings.equal("slashes", "round/node", key, "amount", event.amount, min(due, node.bond))
    trial.findings.equal("slashes", "round/node", key, "bond left", event.bond, node.bond - event.amount)
    trial.findings.equal("slashes", "round/node", key, "owner", event.owner, node.owner)


def _fraud_due(trial: Trial, event: NodeSlashed) -> int:
    key = (event.round, event.node)
    due = next_due(trial.due_slashes, key)
    trial.findings.holds("slashes", "round/node", key, "for fraud with a quorum", due is not None)
    return due or 0


def _absence_due(trial: Trial, event: NodeSlashed) -> int:
    round_ = known(trial.book, Round, event.round)
    seat = trial.book.find(Seat, event.round, round_.attempt, event.node)
    silent = round_.state == "voting" and seat is not None and seat.state in ("drawn", "committed")
    punished = trial.absent.setdefault((event.round, round_.attempt), set())
    key = (event.round, round_.attempt, event.node)
    trial.findings.holds("slashes", "round/attempt/juror", key, "absent, once", silent and event.node not in punished)
    punished.add(event.node)
    return trial.terms.penalties.absence_penalty


def _overturned_due(trial: Trial, event: NodeSlashed) -> int:
    """Whether the juror was of the overturned majority, the decision will tell."""
    conclusion = trial.concluding(event.round)
    conclusion.punished.append((event.node, event.amount))
    return trial.terms.penalties.overturn_penalty


DUE: dict[Cause, Callable[[Trial, NodeSlashed], int]] = {
    Cause.FRAUD: _fraud_due,
    Cause.ABSENCE: _absence_due,
    Cause.OVERTURNED: _overturned_due,
}
"""Cause of a slash to what it costs, before the bond caps it."""


def _absences(trial: Trial, log: Log, event: RoundTallied | CommitteeRedrawn | RoundVoided) -> None:
    round_ = known(trial.book, Round, event.round)
    if round_.state != "voting" or (isinstance(event, RoundVoided) and trial.expired(log, round_)):
        return
    key = (event.round, round_.attempt)
    seats = seats_of(trial.book, *key)
    silent = sorted(seat.juror for seat in seats if seat.state in ("drawn", "committed"))
    punished = sorted(trial.absent.pop(key, set()))
    trial.findings.equal(
        "slashes", "round/attempt", key, "jurors penalised for absence", tuple(punished), tuple(silent)
    )


# The pot of slashed bonds


def _swept(trial: Trial, log: Log, event: TreasurySwept) -> None:
    key = (log.block_number, log.log_index)
    trial.findings.equal("treasury", "TreasurySwept", key, "amount", event.amount, treasury_of(trial.book).balance)
    trial.findings.equal("treasury", "TreasurySwept", key, "treasury", event.treasury, admin_of(trial.book).treasury)


def _awarded(trial: Trial, log: Log, event: SlashesAwarded) -> None:
    trial.concluding(event.round).awarded[event.owner] += event.amount
    trial.due_grants[event.owner, event.round] += event.amount


def _granted(trial: Trial, log: Log, event: CreditsGranted) -> None:
    due = trial.due_grants.pop((event.owner, event.round), 0)
    trial.findings.equal("treasury", "CreditsGranted", (event.owner, event.round), "amount", event.amount, due)


BONDS: dict[type[Event], tuple[Check, ...]] = {
    NodeRegistered: (_required,),
    BondToppedUp: (_topped_up,),
    BondWithdrawn: (_withdrawal,),
    KeyRevoked: (_revoked,),
    NodeSlashed: (_slash,),
    RoundTallied: (_absences,),
    CommitteeRedrawn: (_absences,),
    RoundVoided: (_absences,),
    TreasurySwept: (_swept,),
    SlashesAwarded: (_awarded,),
    CreditsGranted: (_granted,),
}
"""Type of event to what is tried of it."""
