"""Replays the chain's events, trying each against the protocol before folding it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ledger.audit.audit_state import AuditState
from ledger.audit.checks import CHECKS
from ledger.fold import fold
from protocol.chain.events import Log
from protocol.errors import AssizeError


def replay(audit: AuditState, logs: Iterable[Log]) -> None:
    """Tries and folds ``logs``, which continue where the last ones ended."""
    for log in logs:
        audit.events += 1
        try:
            for check in audit.tries.get(type(log.event), ()):
                check(audit, log, log.event)
            fold(audit.book, log)
        except (AssizeError, LookupError) as error:
            # An event that contradicts earlier ones is a discrepancy; the replay continues with the next event.
            place = f"{log.block_number}/{log.log_index}"
            audit.findings.equal(
                "chain", type(log.event).__name__, place, "event", f"not to be folded: {error}", "sound"
            )
        else:
            audit.findings.equal("chain", type(log.event).__name__, "", "event", "sound", "sound")


def conclude(audit: AuditState) -> None:
    """Runs the checks that need all events folded: nothing below zero, everything announced was carried out."""
    for check in CHECKS.values():
        for concluding in check.concluding:
            concluding(audit)
