"""Conservation: nothing is made or lost between tokens, bonds, treasury, escrow and credits. Pure.

    tokens ──posted, topped up──> bonds ──returned──> owners
                                    └───slashed───> pot ──swept──> treasury
                                                     └──awarded──> credits granted to appellants
    tokens ──deposited──> traps ──found, forfeited, returned──> finders, treasury, setters
    tokens ──bought──> credits = free + escrow + reserved ──redeemed──> whom owners name

    deposits = bonds + unbonding + pot + escrow + free credits + withdrawn      (M: nothing made, nothing lost)

Anyone may send either contract tokens that nothing accounts for: what came in may be more than was booked, never less.
What went out is exactly what was booked.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ledger.audit.audit_state import AuditCheck, AuditState
from ledger.facts import Credit, CreditEntry, Holding, Node, Round, Run, Slash, Sweep, TrapSet
from ledger.fold.credits import NOBODY
from ledger.fold.treasury import treasury_of
from protocol.chain.events import Log, Transfer

CONSERVATION = AuditCheck(
    "conservation", "tokens and credits are conserved: bonds, treasury, escrow, balances and what was withdrawn add up"
)


@CONSERVATION.concludes
def _conserve(audit: AuditState) -> None:
    """Adds everything up once all events are folded."""
    _credits(audit)
    _bonds(audit)
    _escrow(audit)
    _rounds(audit)
    _traps(audit)
    _all(audit)
    _tokens(audit)


def _credits(audit: AuditState) -> None:
    credits, runs = list(audit.book.all(Credit)), list(audit.book.all(Run))
    here = audit.terms.deployment.credits
    outstanding = _sum(credits, "balance") + _sum(runs, "escrow", "reserved")
    came = _sum(credits, "bought", "granted")
    _equal(audit, "credits", "free, escrowed and reserved", outstanding, came - _sum(credits, "redeemed"))
    _equal(audit, "credits", "earned", _sum(credits, "worked", "judged"), _sum(runs, "paid"))
    _equal(audit, "credits", "granted", _sum(credits, "granted"), treasury_of(audit.book).awarded)
    holding = audit.book.find(Holding, here)
    held = holding.tokens if holding else 0
    backed = f"backs {outstanding} credits with {held}"
    audit.findings.holds("conservation", "Credits", "tokens", backed, held >= outstanding)
    for receiver, tokens in _redeemed(audit).items():
        _equal(audit, "Credits", f"tokens redeemed to {receiver}", audit.flows[here, receiver], tokens)
    for credit in credits:
        _paid_for(audit, credit.owner, here, "credits bought", credit.bought)
    _equal(audit, "Credits", "tokens paid out", _out(audit, here), _sum(credits, "redeemed"))
    audit.findings.holds("conservation", "Credits", "tokens", "took what was bought", _in(audit, here) >= came)


def _redeemed(audit: AuditState) -> Counter[str]:
    """Receiver to the tokens that owners redeemed to it."""
    redeemed: Counter[str] = Counter()
    for entry in audit.book.all(CreditEntry):
        if entry.kind == "redeemed":
            redeemed[entry.receiver] += entry.amount
    return redeemed


def _bonds(audit: AuditState) -> None:
    nodes, treasury = list(audit.book.all(Node)), treasury_of(audit.book)
    slashed, posted = _sum(list(audit.book.all(Slash)), "amount"), _sum(nodes, "posted", "topped_up")
    returned = _sum(nodes, "returned")
    _equal(audit, "bonds", "posted less slashed and returned", _sum(nodes, "bond"), posted - slashed - returned)
    _equal(audit, "bonds", "slashed, by node", _sum(nodes, "slashed"), slashed)
    _equal(audit, "treasury", "slashed", treasury.slashed, slashed)
    _equal(audit, "treasury", "pot", treasury.balance, slashed - treasury.swept - treasury.awarded)
    registry = audit.terms.deployment.registry
    for receiver, tokens in _due_from_registry(audit).items():
        _equal(audit, "Registry", f"tokens paid to {receiver}", audit.flows[registry, receiver], tokens)
    for owner, tokens in _posted(nodes).items():
        _paid_for(audit, owner, registry, "bonds posted", tokens)
    paid_out = returned + treasury.swept + treasury.awarded
    _equal(audit, "Registry", "tokens paid out", _out(audit, registry), paid_out)
    audit.findings.holds("conservation", "Registry", "tokens", "took what was bonded", _in(audit, registry) >= posted)


def _posted(nodes: list[Node]) -> Counter[str]:
    """Owner to the tokens its nodes were registered with; a bond may be topped up by others."""
    posted: Counter[str] = Counter()
    for node in nodes:
        posted[node.owner] += node.posted
    return posted


def _paid_for(audit: AuditState, owner: str, contract: str, what: str, tokens: int) -> None:
    field = f"tokens of {owner} for {what}, {tokens}, came"
    audit.findings.holds("conservation", "tokens", owner, field, audit.flows[owner, contract] >= tokens)


def _due_from_registry(audit: AuditState) -> Counter[str]:
    """Receiver to the tokens that bonds returned, sweeps and awards owed it."""
    due: Counter[str] = Counter({audit.terms.deployment.credits: treasury_of(audit.book).awarded})
    for node in audit.book.all(Node):
        due[node.owner] += node.returned
    for sweep in audit.book.all(Sweep):
        due[sweep.treasury] += sweep.amount
    return due


def _escrow(audit: AuditState) -> None:
    promised: Counter[int] = Counter()
    for round_ in audit.book.all(Round):
        promised[round_.run] += round_.reserved
    for run in audit.book.all(Run):
        came = run.funded - run.refunded + run.deposited - run.paid_out
        _equal(audit, f"run {run.run}", "escrow, reserved and paid", run.escrow + run.reserved + run.paid, came)
        _equal(audit, f"run {run.run}", "reserved by its rounds", run.reserved, promised[run.run])


def _traps(audit: AuditState) -> None:
    """Deposits of traps: what is not opened yet lies in their contract, which paid nobody but those it owed."""
    here, sets = audit.terms.deployment.traps, list(audit.book.all(TrapSet))
    deposited = sum(made.leaves * made.bounty for made in sets)
    for receiver, tokens in audit.due_bounties.items():
        _equal(audit, "Traps", f"tokens paid to {receiver}", audit.flows[here, receiver], tokens)
    _equal(audit, "Traps", "tokens paid out", _out(audit, here), deposited - _sum(sets, "balance"))
    audit.findings.holds("conservation", "Traps", "tokens", "took what was deposited", _in(audit, here) >= deposited)


def _rounds(audit: AuditState) -> None:
    for round_ in audit.book.all(Round):
        spent = round_.paid + round_.paid_out + round_.released + round_.reserved
        _equal(audit, f"round {round_.round}", "paid, released and reserved", spent, round_.reserve)


def _all(audit: AuditState) -> None:
    """M: what came in is where it should be, or went out."""
    nodes, credits, runs = list(audit.book.all(Node)), list(audit.book.all(Credit)), list(audit.book.all(Run))
    treasury = treasury_of(audit.book)
    deposits = _sum(nodes, "posted", "topped_up") + _sum(credits, "bought")
    bonds = sum(node.bond for node in nodes if not node.retired_at)
    unbonding = sum(node.bond for node in nodes if node.retired_at)
    free, escrow = _sum(credits, "balance"), _sum(runs, "escrow", "reserved")
    withdrawn = _sum(nodes, "returned") + _sum(credits, "redeemed") + treasury.swept
    within = bonds + unbonding + treasury.balance + escrow + free
    _equal(audit, "all", "bonds, unbonding, treasury, escrow, credits, withdrawn", within + withdrawn, deposits)


def _tokens(audit: AuditState) -> None:
    held = sum(holding.tokens for holding in audit.book.all(Holding))
    _equal(audit, "tokens", "held by all", held, _out(audit, NOBODY) - _in(audit, NOBODY))


def _out(audit: AuditState, sender: str) -> int:
    return sum(value for (each, _), value in audit.flows.items() if each == sender)


def _in(audit: AuditState, receiver: str) -> int:
    return sum(value for (_, each), value in audit.flows.items() if each == receiver)


def _sum(facts: list[Any], *fields: str) -> int:
    return sum(getattr(fact, field) for fact in facts for field in fields)


def _equal(audit: AuditState, subject: str, field: str, stored: int, recomputed: int) -> None:
    audit.findings.equal("conservation", subject, "", field, stored, recomputed)


@CONSERVATION.tries(Transfer)
def _flow(audit: AuditState, log: Log, event: Transfer) -> None:
    deployment = audit.terms.deployment
    if {event.sender, event.to} & {deployment.registry, deployment.credits, deployment.traps, NOBODY}:
        audit.flows[event.sender, event.to] += event.value


CHECKS = (CONSERVATION,)
