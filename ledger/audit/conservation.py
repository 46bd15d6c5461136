"""Conservation: nothing is made or lost between tokens, bonds, treasury, escrow and credits. Pure.

    tokens ──posted, topped up──> Registry ──slashed────> treasury
                                     └──────withdrawn──> owners
    tokens ──bought──> Credits = free + escrow + reserved ──redeemed──> owners

Anyone may send either contract tokens that nothing accounts for: what came in may be more than was booked, never less.
What went out is exactly what was booked.
"""

from __future__ import annotations

from ledger.audit.trial import Trial
from ledger.facts import Credit, Holding, Node, Round, Run, Slash
from ledger.fold.credits import NOBODY


def conserve(trial: Trial) -> None:
    """Adds everything up once all events are folded."""
    _credits(trial)
    _bonds(trial)
    _escrow(trial)
    _tokens(trial)


def _credits(trial: Trial) -> None:
    credits, runs = list(trial.book.all(Credit)), list(trial.book.all(Run))
    outstanding = sum(credit.balance for credit in credits) + sum(run.escrow + run.reserved for run in runs)
    backing = sum(credit.bought - credit.redeemed for credit in credits)
    earned = sum(credit.worked + credit.judged for credit in credits)
    _equal(trial, "credits", "free, escrowed and reserved", outstanding, backing)
    _equal(trial, "credits", "earned", earned, sum(run.paid for run in runs))
    holding = trial.book.find(Holding, trial.terms.deployment.credits)
    held = holding.tokens if holding else 0
    trial.findings.holds(
        "conservation", "Credits", "tokens", f"backs {outstanding} credits with {held}", held >= outstanding
    )
    _equal(trial, "Credits", "tokens paid out", _out(trial, trial.terms.deployment.credits), _sum(credits, "redeemed"))
    received = _in(trial, trial.terms.deployment.credits)
    trial.findings.holds(
        "conservation", "Credits", "tokens", "took what was bought", received >= _sum(credits, "bought")
    )


def _bonds(trial: Trial) -> None:
    nodes = list(trial.book.all(Node))
    registry, treasury = trial.terms.deployment.registry, trial.terms.treasury
    slashed, withdrawn = sum(slash.amount for slash in trial.book.all(Slash)), _sum(nodes, "withdrawn")
    posted = _sum(nodes, "posted") + _sum(nodes, "topped_up")
    _equal(trial, "bonds", "posted less slashed and withdrawn", _sum(nodes, "bond"), posted - slashed - withdrawn)
    _equal(trial, "bonds", "slashed, by node", _sum(nodes, "slashed"), slashed)
    _equal(trial, "Registry", "tokens paid out", _out(trial, registry), slashed + withdrawn)
    own = sum(node.withdrawn for node in nodes if node.owner == treasury)
    _equal(trial, "treasury", "tokens from slashes", trial.flows[registry, treasury] - own, slashed)
    trial.findings.holds("conservation", "Registry", "tokens", "took what was bonded", _in(trial, registry) >= posted)


def _escrow(trial: Trial) -> None:
    rounds = list(trial.book.all(Round))
    for run in trial.book.all(Run):
        funded = run.funded - run.refunded
        _equal(trial, f"run {run.run}", "escrow, reserved and paid", run.escrow + run.reserved + run.paid, funded)
        promised = sum(round_.reserved for round_ in rounds if round_.run == run.run)
        _equal(trial, f"run {run.run}", "reserved by its rounds", run.reserved, promised)
    for round_ in rounds:
        spent = round_.paid + round_.released + round_.reserved
        _equal(trial, f"round {round_.round}", "paid, released and reserved", spent, round_.reserve)


def _tokens(trial: Trial) -> None:
    held = sum(holding.tokens for holding in trial.book.all(Holding))
    _equal(trial, "tokens", "held by all", held, _out(trial, NOBODY) - _in(trial, NOBODY))


def _out(trial: Trial, sender: str) -> int:
    return sum(value for (each, _), value in trial.flows.items() if each == sender)


def _in(trial: Trial, receiver: str) -> int:
    return sum(value for (_, each), value in trial.flows.items() if each == receiver)


def _sum(facts: list, field: str) -> int:  # type: ignore[type-arg]
    return sum(getattr(fact, field) for fact in facts)


def _equal(trial: Trial, subject: str, field: str, stored: int, recomputed: int) -> None:
    trial.findings.equal("conservation", subject, "", field, stored, recomputed)
