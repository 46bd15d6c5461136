"""Conservation: nothing is made or lost between tokens, bonds, treasury, escrow and credits. Pure.

    tokens ──posted, topped up──> bonds ──returned──> owners
                                    └───slashed───> pot ──swept──> treasury
                                                     └──awarded──> credits granted to appellants
    tokens ──bought──> credits = free + escrow + reserved ──redeemed──> owners

    deposits = bonds + unbonding + pot + escrow + free credits + withdrawn      (M: nothing made, nothing lost)

Anyone may send either contract tokens that nothing accounts for: what came in may be more than was booked, never less.
What went out is exactly what was booked.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ledger.audit.trial import Trial
from ledger.facts import Credit, Holding, Node, Round, Run, Slash, Sweep
from ledger.fold.credits import NOBODY
from ledger.fold.treasury import treasury_of


def conserve(trial: Trial) -> None:
    """Adds everything up once all events are folded."""
    _credits(trial)
    _bonds(trial)
    _escrow(trial)
    _rounds(trial)
    _all(trial)
    _tokens(trial)


def _credits(trial: Trial) -> None:
    credits, runs = list(trial.book.all(Credit)), list(trial.book.all(Run))
    here = trial.terms.deployment.credits
    outstanding = _sum(credits, "balance") + _sum(runs, "escrow", "reserved")
    came = _sum(credits, "bought", "granted")
    _equal(trial, "credits", "free, escrowed and reserved", outstanding, came - _sum(credits, "redeemed"))
    _equal(trial, "credits", "earned", _sum(credits, "worked", "judged"), _sum(runs, "paid"))
    _equal(trial, "credits", "granted", _sum(credits, "granted"), treasury_of(trial.book).awarded)
    holding = trial.book.find(Holding, here)
    held = holding.tokens if holding else 0
    backed = f"backs {outstanding} credits with {held}"
    trial.findings.holds("conservation", "Credits", "tokens", backed, held >= outstanding)
    for credit in credits:
        _equal(trial, f"credits of {credit.owner}", "tokens redeemed", trial.flows[here, credit.owner], credit.redeemed)
        _paid_for(trial, credit.owner, here, "credits bought", credit.bought)
    _equal(trial, "Credits", "tokens paid out", _out(trial, here), _sum(credits, "redeemed"))
    trial.findings.holds("conservation", "Credits", "tokens", "took what was bought", _in(trial, here) >= came)


def _bonds(trial: Trial) -> None:
    nodes, treasury = list(trial.book.all(Node)), treasury_of(trial.book)
    slashed, posted = _sum(list(trial.book.all(Slash)), "amount"), _sum(nodes, "posted", "topped_up")
    returned = _sum(nodes, "returned")
    _equal(trial, "bonds", "posted less slashed and returned", _sum(nodes, "bond"), posted - slashed - returned)
    _equal(trial, "bonds", "slashed, by node", _sum(nodes, "slashed"), slashed)
    _equal(trial, "treasury", "slashed", treasury.slashed, slashed)
    _equal(trial, "treasury", "pot", treasury.balance, slashed - treasury.swept - treasury.awarded)
    registry = trial.terms.deployment.registry
    for receiver, tokens in _due_from_registry(trial).items():
        _equal(trial, "Registry", f"tokens paid to {receiver}", trial.flows[registry, receiver], tokens)
    for owner, tokens in _posted(nodes).items():
        _paid_for(trial, owner, registry, "bonds posted", tokens)
    paid_out = returned + treasury.swept + treasury.awarded
    _equal(trial, "Registry", "tokens paid out", _out(trial, registry), paid_out)
    trial.findings.holds("conservation", "Registry", "tokens", "took what was bonded", _in(trial, registry) >= posted)


def _posted(nodes: list[Node]) -> Counter[str]:
    """Owner to the tokens its nodes were registered with; a bond may be topped up by others."""
    posted: Counter[str] = Counter()
    for node in nodes:
        posted[node.owner] += node.posted
    return posted


def _paid_for(trial: Trial, owner: str, contract: str, what: str, tokens: int) -> None:
    field = f"tokens of {owner} for {what}, {tokens}, came"
    trial.findings.holds("conservation", "tokens", owner, field, trial.flows[owner, contract] >= tokens)


def _due_from_registry(trial: Trial) -> Counter[str]:
    """Receiver to the tokens that bonds returned, sweeps and awards owed it."""
    due: Counter[str] = Counter({trial.terms.deployment.credits: treasury_of(trial.book).awarded})
    for node in trial.book.all(Node):
        due[node.owner] += node.returned
    for sweep in trial.book.all(Sweep):
        due[sweep.treasury] += sweep.amount
    return due


def _escrow(trial: Trial) -> None:
    promised: Counter[int] = Counter()
    for round_ in trial.book.all(Round):
        promised[round_.run] += round_.reserved
    for run in trial.book.all(Run):
        came = run.funded - run.refunded + run.deposited - run.paid_out
        _equal(trial, f"run {run.run}", "escrow, reserved and paid", run.escrow + run.reserved + run.paid, came)
        _equal(trial, f"run {run.run}", "reserved by its rounds", run.reserved, promised[run.run])


def _rounds(trial: Trial) -> None:
    covered: Counter[int] = Counter()
    for round_ in trial.book.all(Round):
        # What its appeals' fees took from a round is what they got.
        covered[round_.parent or round_.round] += round_.covered if round_.parent else -round_.covered
        came, went = (round_.covered, 0) if round_.parent else (0, round_.covered)
        spent = round_.paid + round_.paid_out + round_.released + round_.reserved + went
        _equal(trial, f"round {round_.round}", "paid, released and reserved", spent, round_.reserve + came)
    for number, difference in covered.items():
        _equal(trial, f"round {number}", "fees covered for its appeals", difference, 0)


def _all(trial: Trial) -> None:
    """M: what came in is where it should be, or went out."""
    nodes, credits, runs = list(trial.book.all(Node)), list(trial.book.all(Credit)), list(trial.book.all(Run))
    treasury = treasury_of(trial.book)
    deposits = _sum(nodes, "posted", "topped_up") + _sum(credits, "bought")
    bonds = sum(node.bond for node in nodes if not node.retired_at)
    unbonding = sum(node.bond for node in nodes if node.retired_at)
    free, escrow = _sum(credits, "balance"), _sum(runs, "escrow", "reserved")
    withdrawn = _sum(nodes, "returned") + _sum(credits, "redeemed") + treasury.swept
    within = bonds + unbonding + treasury.balance + escrow + free
    _equal(trial, "all", "bonds, unbonding, treasury, escrow, credits, withdrawn", within + withdrawn, deposits)


def _tokens(trial: Trial) -> None:
    held = sum(holding.tokens for holding in trial.book.all(Holding))
    _equal(trial, "tokens", "held by all", held, _out(trial, NOBODY) - _in(trial, NOBODY))


def _out(trial: Trial, sender: str) -> int:
    return sum(value for (each, _), value in trial.flows.items() if each == sender)


def _in(trial: Trial, receiver: str) -> int:
    return sum(value for (_, each), value in trial.flows.items() if each == receiver)


def _sum(facts: list[Any], *fields: str) -> int:
    return sum(getattr(fact, field) for fact in facts for field in fields)


def _equal(trial: Trial, subject: str, field: str, stored: int, recomputed: int) -> None:
    trial.findings.equal("conservation", subject, "", field, stored, recomputed)
