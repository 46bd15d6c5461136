"""What is tried of money: settlements, fees, credits and slashes, and every running amount an event names."""

from __future__ import annotations

from collections import deque

from ledger.audit.trial import Check, Trial
from ledger.audit.verdicts import submitted_jobs
from ledger.book import known
from ledger.facts import Credit, Holding, Node, Round, Run, Seat, Submission
from ledger.fold.credits import NOBODY
from ledger.fold.rounds import seats_of
from protocol.chain.events import (
    BondToppedUp,
    BondWithdrawn,
    CommitteeRedrawn,
    CreditsEarned,
    Event,
    JurorSettled,
    Log,
    NodeRegistered,
    NodeSlashed,
    RoundSettled,
    RoundTallied,
    RoundVoided,
    RunFunded,
    RunRefunded,
    SubmissionSettled,
    Transfer,
)
from protocol.chain.structs import Cause, Role
from protocol.wire.assignments import jobs_in, unpack_leaves

# Work and its pay


def _settlement(trial: Trial, log: Log, event: SubmissionSettled) -> None:
    round_ = known(trial.book, Round, event.round)
    run = known(trial.book, Run, round_.run)
    first = jobs_in(event.accepted | event.fraud | event.void_jobs)[0]
    submission = known(trial.book, Submission, event.round, first)
    jobs = submitted_jobs(submission)
    leaves = unpack_leaves(submission.leaves)
    units = sum(min(leaf.units, run.max_units) for leaf in leaves if round_.accepted >> leaf.job & 1)
    findings, key = trial.findings, (event.round, first)
    for field, stated, due in (
        ("state", round_.state, "tallied"),
        ("settled before", submission.settled, False),
        ("node", event.node, submission.node),
        ("batch", event.batch, submission.batch),
        ("accepted", event.accepted, jobs & round_.accepted),
        ("fraud", event.fraud, jobs & round_.fraud),
        ("void", event.void_jobs, jobs & ~(round_.accepted | round_.fraud)),
        ("units", event.units, units),
        ("paid", event.paid, units * run.price_per_unit),
    ):
        findings.equal("settlements", "round/first job", key, field, stated, due)
    _owe(trial, event.round, event.node, event.paid)
    if event.fraud:
        due_slash = event.fraud.bit_count() * trial.terms.penalties.fraud_slash
        trial.due_slashes.setdefault((event.round, event.node), deque()).append(due_slash)


def _fee(trial: Trial, log: Log, event: JurorSettled) -> None:
    """A juror's pay: by agreement with the verdict, or in full where its committee reached no quorum."""
    round_ = known(trial.book, Round, event.round)
    run = known(trial.book, Run, round_.run)
    seat = known(trial.book, Seat, event.round, round_.attempt, event.juror)
    key = (event.round, round_.attempt, event.juror)
    trial.findings.equal("fees", "round/attempt/juror", key, "state", seat.state, "revealed")
    trial.findings.equal("fees", "round/attempt/juror", key, "paid before", seat.paid, 0)
    bits, paid = 0, run.juror_fee
    if round_.state == "tallied":
        apart = (seat.accept ^ round_.accepted) | (seat.fraud ^ round_.fraud)
        bits = (round_.submitted & ~apart).bit_count()
        paid = run.juror_fee * bits // round_.submitted.bit_count()
    trial.findings.equal("fees", "round/attempt/juror", key, "bits", event.bits, bits)
    trial.findings.equal("fees", "round/attempt/juror", key, "paid", event.paid, paid)
    _owe(trial, event.round, event.juror, event.paid)


def _owe(trial: Trial, round_: int, node: int, amount: int) -> None:
    if amount:
        trial.due_credits[round_, node] += amount


def _earning(trial: Trial, log: Log, event: CreditsEarned) -> None:
    key = (event.round, event.node)
    owner = known(trial.book, Node, event.node).owner
    trial.findings.equal("credits", "round/node", key, "owner paid", event.owner, owner)
    trial.findings.equal("credits", "round/node", key, "run", event.run, known(trial.book, Round, event.round).run)
    owed = trial.due_credits.pop(key, 0)
    trial.findings.equal("credits", "round/node", key, "amount", event.amount, owed)


def _released(trial: Trial, log: Log, event: RoundSettled | RoundVoided) -> None:
    round_ = known(trial.book, Round, event.round)
    trial.findings.equal("amounts", "round", event.round, "released", event.released, round_.reserved)


def _all_settled(trial: Trial, log: Log, event: RoundSettled) -> None:
    round_ = known(trial.book, Round, event.round)
    for job in jobs_in(round_.submitted):
        submission = trial.book.find(Submission, event.round, job)
        if submission is not None:
            key = (event.round, job)
            trial.findings.holds("settlements", "round/first job", key, "settled with its round", submission.settled)


# Bonds


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


def _slash(trial: Trial, log: Log, event: NodeSlashed) -> None:
    node = known(trial.book, Node, event.node)
    due = _absence_due(trial, event) if event.cause is Cause.ABSENCE else _fraud_due(trial, event)
    key = (event.round, event.node)
    trial.findings.equal("slashes", "round/node", key, "amount", event.amount, min(due, node.bond))
    trial.findings.equal("slashes", "round/node", key, "bond left", event.bond, node.bond - event.amount)
    trial.findings.equal("slashes", "round/node", key, "owner", event.owner, node.owner)


def _fraud_due(trial: Trial, event: NodeSlashed) -> int:
    key = (event.round, event.node)
    due = trial.due_slashes.get(key)
    trial.findings.holds(
        "slashes", "round/node", key, "for fraud with a quorum", bool(due) and event.cause is Cause.FRAUD
    )
    amount = due.popleft() if due else 0
    if not due:
        trial.due_slashes.pop(key, None)
    return amount


def _absence_due(trial: Trial, event: NodeSlashed) -> int:
    round_ = known(trial.book, Round, event.round)
    seat = trial.book.find(Seat, event.round, round_.attempt, event.node)
    silent = round_.state == "voting" and seat is not None and seat.state in ("drawn", "committed")
    punished = trial.absent.setdefault((event.round, round_.attempt), set())
    key = (event.round, round_.attempt, event.node)
    trial.findings.holds("slashes", "round/attempt/juror", key, "absent, once", silent and event.node not in punished)
    punished.add(event.node)
    return trial.terms.penalties.absence_penalty


def _absences(trial: Trial, log: Log, event: RoundTallied | CommitteeRedrawn | RoundVoided) -> None:
    round_ = known(trial.book, Round, event.round)
    if round_.state != "voting":
        return
    key = (event.round, round_.attempt)
    seats = seats_of(trial.book, *key)
    silent = sorted(seat.juror for seat in seats if seat.state in ("drawn", "committed"))
    punished = sorted(trial.absent.pop(key, set()))
    trial.findings.equal(
        "slashes", "round/attempt", key, "jurors penalised for absence", tuple(punished), tuple(silent)
    )


# Escrow and balances


def _funded(trial: Trial, log: Log, event: RunFunded) -> None:
    escrow = known(trial.book, Run, event.run).escrow + event.amount
    trial.findings.equal("amounts", "RunFunded", event.run, "escrow", event.escrow, escrow)


def _refunded(trial: Trial, log: Log, event: RunRefunded) -> None:
    run = known(trial.book, Run, event.run)
    trial.findings.equal("amounts", "RunRefunded", event.run, "escrow", event.escrow, run.escrow - event.amount)
    trial.findings.holds("amounts", "RunRefunded", event.run, "closed", run.closed)


def balances_stand(trial: Trial) -> None:
    """Tries that no balance, bond, escrow or reserve ever ends below zero."""
    book, findings = trial.book, trial.findings
    for kind, fields in (
        (Credit, ("balance",)),
        (Node, ("bond", "in_flight")),
        (Run, ("escrow", "reserved")),
        (Round, ("reserved",)),
        (Holding, ("tokens",)),
    ):
        for fact in book.all(kind):
            for field in fields:
                key = getattr(fact, fact.KEY[0])
                findings.holds(
                    "amounts", kind.__name__.lower(), key, f"{field} not below zero", getattr(fact, field) >= 0
                )


def _flow(trial: Trial, log: Log, event: Transfer) -> None:
    deployment = trial.terms.deployment
    if {event.sender, event.to} & {deployment.registry, deployment.credits, NOBODY}:
        trial.flows[event.sender, event.to] += event.value


MONEY: dict[type[Event], tuple[Check, ...]] = {
    SubmissionSettled: (_settlement,),
    JurorSettled: (_fee,),
    CreditsEarned: (_earning,),
    RoundSettled: (_released, _all_settled),
    RoundVoided: (_released, _absences),
    RoundTallied: (_absences,),
    CommitteeRedrawn: (_absences,),
    NodeRegistered: (_required,),
    BondToppedUp: (_topped_up,),
    BondWithdrawn: (_withdrawal,),
    NodeSlashed: (_slash,),
    RunFunded: (_funded,),
    RunRefunded: (_refunded,),
    Transfer: (_flow,),
}
"""Type of event to what is tried of it."""
