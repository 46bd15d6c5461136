"""Replays the chain's events, trying each against the protocol before folding it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ledger.audit.appeals import APPEALS
from ledger.audit.bonds import BONDS
from ledger.audit.market import MARKET
from ledger.audit.money import MONEY, balances_stand
from ledger.audit.phases import PHASES
from ledger.audit.rounds import ROUNDS
from ledger.audit.trial import Check, Trial
from ledger.audit.verdicts import VERDICTS
from ledger.fold import fold
from protocol.chain.events import Event, Log
from protocol.errors import AssizeError

PARTS = (MARKET, ROUNDS, PHASES, VERDICTS, MONEY, BONDS, APPEALS)
CHECKS: dict[type[Event], tuple[Check, ...]] = {
    kind: tuple(check for part in PARTS for check in part.get(kind, ())) for kind in set().union(*PARTS)
}
"""Type of event to what is tried of it."""


def replay(trial: Trial, logs: Iterable[Log]) -> None:
    """Tries and folds ``logs``, which go on where the last ones ended."""
    for log in logs:
        trial.events += 1
        try:
            for check in CHECKS.get(type(log.event), ()):
                check(trial, log, log.event)
            fold(trial.book, log)
        except (AssizeError, LookupError) as error:
            # An event that contradicts those before it is what an audit is there to name; it goes on to the others.
            place = f"{log.block_number}/{log.log_index}"
            trial.findings.equal(
                "chain", type(log.event).__name__, place, "event", f"not to be folded: {error}", "sound"
            )
        else:
            trial.findings.equal("chain", type(log.event).__name__, "", "event", "sound", "sound")


def conclude(trial: Trial) -> None:
    """Tries what must hold once all events are folded: no balance below zero, all that was announced carried out."""
    balances_stand(trial)
    for (round_, node), amounts in trial.due_credits.items():
        trial.findings.equal("credits", "round/node", (round_, node), "credits owed and not earned", sum(amounts), 0)
    for (round_, node), slashes in trial.due_slashes.items():
        trial.findings.equal(
            "slashes", "round/node", (round_, node), "fraud slashes owed and not taken", len(slashes), 0
        )
    for check, dues in (
        ("escrow", trial.due_locks),
        ("escrow", trial.due_unlocks),
        ("escrow", trial.due_deposits),
        ("treasury", trial.due_grants),
    ):
        for key, amount in dues.items():
            trial.findings.equal(check, "owed", key, "announced and not carried out", amount, 0)
    for parent in trial.conclusions:
        trial.findings.equal("appeals", "round", parent, "appeal concluded", "without a decision", "decided")
    for (round_, run), jobs in trial.due_jobs.items():
        trial.findings.equal("consumption", "round/run", (round_, run), "checkpoints without a mark", len(jobs), 0)
