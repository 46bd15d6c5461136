"""Registry of audit checks, in the order in which an event is tried and results are reported.

To add a check, define an `AuditCheck` and name it in the ``CHECKS`` of its module.
"""

from __future__ import annotations

from collections.abc import Mapping

from ledger.audit import (
    appeals,
    bonds,
    code,
    comparison,
    conservation,
    market,
    money,
    phases,
    rounds,
    slots,
    traps,
    verdicts,
    views,
)
from ledger.audit.audit_state import AuditCheck, Try
from protocol.chain.events import Event

CHAIN = AuditCheck(
    "chain", "blocks and events follow each other without a gap, and events speak of what earlier ones made"
)
"""Counted by the replay itself."""

MODULES = (
    market,
    rounds,
    phases,
    verdicts,
    money,
    bonds,
    slots,
    appeals,
    traps,
    conservation,
    comparison,
    views,
    code,
)

CHECKS: dict[str, AuditCheck] = {check.name: check for check in (CHAIN, *(c for m in MODULES for c in m.CHECKS))}
"""Every check by its name."""


def tries() -> Mapping[type[Event], tuple[Try, ...]]:
    """Returns, for each event type, the functions that try such an event."""
    found: dict[type[Event], tuple[Try, ...]] = {}
    for check in CHECKS.values():
        for kind, functions in check.tried.items():
            found[kind] = (*found.get(kind, ()), *functions)
    return found


def sentences() -> dict[str, str]:
    """Returns the name of each check with the sentence it shows."""
    return {name: check.shows for name, check in CHECKS.items()}
