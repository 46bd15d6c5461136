"""Facts: one frozen value for each thing the chain records.

``ledger.fold`` makes facts from events, ``ledger.store.tables`` stores each kind in a table with the same fields, and
``ledger.api`` answers with them. Annotations (``ledger.facts.fact``) define how a field is stored and written.
"""

from ledger.facts.appeals import Appeal, Taint
from ledger.facts.credits import Credit, CreditEntry, Holding
from ledger.facts.fact import KINDS, Fact, key_of, keys_of
from ledger.facts.nodes import Node, Slash, Slot
from ledger.facts.rounds import Committee, Job, Round, Seat, Service, Submission
from ledger.facts.runs import Checkpoint, Consent, Consumption, Membership, Run, RunTerms
from ledger.facts.traps import OpenedTrap, TrapSet
from ledger.facts.treasury import THE_ONE, Admin, Sweep, Treasury

__all__ = [
    "KINDS",
    "THE_ONE",
    "Admin",
    "Appeal",
    "Checkpoint",
    "Committee",
    "Consent",
    "Consumption",
    "Credit",
    "CreditEntry",
]
__all__ += ["Fact", "Holding", "Job", "Membership", "Node", "Round", "Run", "RunTerms", "Seat", "Service", "Slash"]
__all__ += ["OpenedTrap", "Slot", "Submission", "Sweep", "Taint", "TrapSet", "Treasury", "key_of", "keys_of"]
