"""Facts: one frozen value for each thing the chain records.

``ledger.fold`` makes facts from events, ``ledger.store.tables`` stores each kind in a table with the same fields, and
``ledger.api`` answers with them. ``KEY`` names the fields that identify a fact among its kind; annotations
(``ledger.facts.columns``) define how a field is stored and written.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from ledger.facts.appeals import Appeal, Taint
from ledger.facts.credits import Credit, CreditEntry, Holding
from ledger.facts.nodes import Node, Slash, Slot
from ledger.facts.rounds import Committee, Job, Round, Seat, Service, Submission
from ledger.facts.runs import Checkpoint, Consumption, Membership, Run, RunTerms
from ledger.facts.treasury import THE_ONE, Admin, Sweep, Treasury

Fact = (
    Node
    | Slot
    | Slash
    | Holding
    | Credit
    | CreditEntry
    | Run
    | RunTerms
    | Membership
    | Checkpoint
    | Consumption
    | Round
    | Submission
    | Job
    | Committee
    | Seat
    | Service
    | Appeal
    | Taint
    | Admin
    | Treasury
    | Sweep
)
KINDS: tuple[type[Fact], ...] = (
    Node,
    Slot,
    Slash,
    Holding,
    Credit,
    CreditEntry,
    Run,
    RunTerms,
    Membership,
    Checkpoint,
    Consumption,
    Round,
    Submission,
    Job,
    Committee,
    Seat,
    Service,
    Appeal,
    Taint,
    Admin,
    Treasury,
    Sweep,
)
"""Every kind of fact; each has a table."""

__all__ = [
    "KINDS",
    "THE_ONE",
    "Admin",
    "Appeal",
    "Checkpoint",
    "Committee",
    "Consumption",
    "Credit",
    "CreditEntry",
    "Fact",
    "Holding",
    "Job",
    "Membership",
    "Node",
    "Round",
    "Run",
    "RunTerms",
    "Seat",
    "Service",
    "Slash",
    "Slot",
    "Submission",
    "Sweep",
    "Taint",
    "Treasury",
    "key_of",
    "keys_of",
]


def key_of(fact: Fact) -> tuple[int | str, ...]:
    """Returns the values that identify ``fact`` among its kind."""
    return keys_of(type(fact))(fact)


def keys_of(kind: type[Any]) -> Callable[[Any], tuple[int | str, ...]]:
    """Returns the function that reads the key of a fact of this kind."""
    return _KEY_READERS[kind]


def _key_reader(names: tuple[str, ...]) -> Callable[[Any], tuple[int | str, ...]]:
    read: Callable[[Any], Any] = attrgetter(*names)
    return read if len(names) > 1 else lambda fact: (read(fact),)


_KEY_READERS = {kind: _key_reader(kind.KEY) for kind in KINDS}
