"""What the ledger knows: one frozen fact for each thing the chain speaks of.

A fact is a value. ``ledger.fold`` makes facts from events, ``ledger.tables`` stores each kind in a table of the same
fields, ``ledger.api`` answers with them. ``KEY`` names the fields that identify a fact among its kind; annotations
(``ledger.facts.columns``) say how a field is stored and written.
"""

from __future__ import annotations

from ledger.facts.credits import Credit, CreditEntry, Holding
from ledger.facts.nodes import Node, Slash, Slot
from ledger.facts.rounds import Committee, Job, Round, Seat, Submission
from ledger.facts.runs import Checkpoint, Consumption, Membership, Run

Fact = (
    Node
    | Slot
    | Slash
    | Holding
    | Credit
    | CreditEntry
    | Run
    | Membership
    | Checkpoint
    | Consumption
    | Round
    | Submission
    | Job
    | Committee
    | Seat
)
KINDS: tuple[type[Fact], ...] = (
    Node,
    Slot,
    Slash,
    Holding,
    Credit,
    CreditEntry,
    Run,
    Membership,
    Checkpoint,
    Consumption,
    Round,
    Submission,
    Job,
    Committee,
    Seat,
)
"""Every kind of fact; each has a table."""

__all__ = [
    "KINDS",
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
    "Seat",
    "Slash",
    "Slot",
    "Submission",
    "key_of",
]


def key_of(fact: Fact) -> tuple[int | str, ...]:
    """Returns the values that identify ``fact`` among its kind."""
    return tuple(getattr(fact, name) for name in fact.KEY)
