"""The state of one replay: the auditor's own book, and what has been announced but not yet carried out."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ledger.audit.report import Findings
from ledger.book import MemoryBook
from protocol.chain.deployment import Deployment
from protocol.chain.events import Log
from protocol.chain.structs import RegistryTerms, RoundsTerms


@dataclass(frozen=True, slots=True)
class Terms:
    """What the contracts were deployed with: constants of a deployment, read once."""

    deployment: Deployment
    treasury: str
    registry: RegistryTerms
    penalties: RoundsTerms


@dataclass(slots=True)
class Trial:
    """What a replay knows.

    due_credits   (round, node) to credits announced by a settlement and not yet earned
    due_slashes   (round, node) to fraud slashes announced and not yet taken, in wei before the bond caps them
    due_jobs      (round, run) to the jobs that checkpoints named and ``Rounds`` has not yet marked as trained on
    absent        (round, attempt) to the jurors penalised for absence
    flows         (sender, receiver) to the token wei that went from one to the other
    seeds         seeds whose block's hash the events do not hold: (round, block, seed)
    """

    terms: Terms
    findings: Findings
    book: MemoryBook = field(default_factory=MemoryBook)
    due_credits: Counter[tuple[int, int]] = field(default_factory=Counter)
    due_slashes: dict[tuple[int, int], deque[int]] = field(default_factory=dict)
    due_jobs: dict[tuple[int, int], deque[int]] = field(default_factory=dict)
    absent: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    flows: Counter[tuple[str, str]] = field(default_factory=Counter)
    seeds: list[tuple[int, int, bytes]] = field(default_factory=list)
    events: int = 0


Check = Callable[[Trial, Log, Any], None]
"""Tries one event against the book as it stands before that event."""
