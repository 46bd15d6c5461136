"""State of one audit: the auditor's own book, announcements still to be carried out, and the form of a check."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection

from ledger.audit.report import Findings
from ledger.book import MemoryBook
from ledger.facts import Round
from protocol.chain.block import Block
from protocol.chain.deployment import Deployment
from protocol.chain.events import Event, Log
from protocol.chain.reading.client import Chain
from protocol.chain.reading.contracts import Reader
from protocol.chain.structs import MarketTerms, RegistryTerms, RoundsTerms


@dataclass(frozen=True, slots=True)
class Terms:
    """Constants of a deployment, read once."""

    deployment: Deployment
    registry: RegistryTerms
    market: MarketTerms
    penalties: RoundsTerms


def read_terms(reader: Reader, deployment: Deployment) -> Terms:
    """Asks the contracts for their constants."""
    return Terms(deployment, reader.registry_terms(), reader.market_terms(), reader.rounds_terms())


@dataclass(slots=True)
class Conclusion:
    """Events of one appeal's conclusion that came before its decision.

    ``settled`` is the appeal whose job was settled, 0 before; ``tainted`` the jobs reported as tainted; ``punished``
    the jurors slashed as overturned and how much of each; ``awarded`` and ``paid_out`` what came to whom out of slashed
    bonds and out of the deposit.
    """

    settled: int = 0
    tainted: int = 0
    punished: list[tuple[int, int]] = field(default_factory=list)
    awarded: Counter[str] = field(default_factory=Counter)
    paid_out: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class AuditState:
    """Everything a replay has learned so far, and the checks it makes.

    tries         event type to the functions that try such an event
    due_credits   (round, node) to credits announced by settlements and not yet earned, one after another
    due_slashes   (round, node) to fraud slashes announced and not yet taken, in wei before the bond caps them
    due_jobs      (round, run) to the jobs that checkpoints named and ``Rounds`` has not yet marked as trained on
    due_deposits  appeal to the deposit announced and not yet locked
    due_locks     (owner, run) to credits announced as locked in a run and not yet locked; ``due_unlocks`` likewise
    due_grants    (owner, round) to slashed tokens awarded and not yet granted as credits
    due_bounties  receiver to the tokens that the deposits of traps owe it
    conclusions   round to the appeal on it that is being concluded
    absent        (round, attempt) to the jurors penalised for absence; ``settled`` to those paid, until it ends
    revealing     (round, attempt) in which votes are revealed
    flows         (sender, receiver) to the token wei that went from one to the other
    slots_passed  when validator slots passed to newcomers
    seeds         seeds whose block's hash the events do not hold: (round, block, seed)
    """

    terms: Terms
    findings: Findings
    tries: Mapping[type[Event], tuple[Try, ...]]
    book: MemoryBook = field(default_factory=MemoryBook)
    due_credits: dict[tuple[int, int], deque[int]] = field(default_factory=dict)
    due_slashes: dict[tuple[int, int], deque[int]] = field(default_factory=dict)
    due_jobs: dict[tuple[int, int], deque[int]] = field(default_factory=dict)
    due_deposits: Counter[int] = field(default_factory=Counter)
    due_locks: Counter[tuple[str, int]] = field(default_factory=Counter)
    due_unlocks: Counter[tuple[str, int]] = field(default_factory=Counter)
    due_grants: Counter[tuple[str, int]] = field(default_factory=Counter)
    due_bounties: Counter[str] = field(default_factory=Counter)
    conclusions: dict[int, Conclusion] = field(default_factory=dict)
    absent: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    settled: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    revealing: set[tuple[int, int]] = field(default_factory=set)
    flows: Counter[tuple[str, str]] = field(default_factory=Counter)
    slots_passed: list[int] = field(default_factory=list)
    seeds: list[tuple[int, int, bytes]] = field(default_factory=list)
    events: int = 0

    def owe(self, round_: int, node: int, credits: int, fraudulent: int = 0) -> None:
        """Notes what a settlement announced: pay for ``node``'s owner, and a slash for ``fraudulent`` jobs."""
        if credits:
            self.due_credits.setdefault((round_, node), deque()).append(credits)
        if fraudulent:
            slash = fraudulent * self.terms.penalties.fraud_slash
            self.due_slashes.setdefault((round_, node), deque()).append(slash)

    def concluding(self, round_: int) -> Conclusion:
        """Returns what was said so far of the appeal on ``round_`` that is being concluded."""
        return self.conclusions.setdefault(round_, Conclusion())

    def expired(self, log: Log, round_: Round) -> bool:
        """Returns whether ``round_`` may be ended by force, which penalises no juror."""
        late = log.timestamp > round_.opened_at + self.terms.market.max_round_seconds
        return late and not self.absent.get((round_.round, round_.attempt))


def next_due(dues: dict[tuple[int, int], deque[int]], key: tuple[int, int]) -> int | None:
    """Takes the oldest of what is due under ``key``; None where nothing is."""
    if key not in dues:
        return None
    due = dues[key].popleft()
    if not dues[key]:
        del dues[key]
    return due


_Function = TypeVar("_Function", bound=Callable[..., None])
Try = Callable[[AuditState, Log, Any], None]
"""Tries one event against the book as it stands before that event."""


@dataclass(frozen=True, slots=True)
class AuditSources:
    """Everything besides events that an audit compares: the database, and the chain pinned to the audited block."""

    chain: Chain
    block: Block
    reader: Reader
    connection: Connection


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """One property that an audit shows.

    Its functions count comparisons with ``audit.findings`` under ``name``, or under another check's name where one
    event bears on both.

    Args:
        name: name in reports.
        shows: sentence that is true if the check holds.
        tried: event type to the functions that try such an event before it is folded.
        concluding: functions called once all events are folded.
        comparing: functions called after those, with the database and the contracts' views.
    """

    name: str
    shows: str
    tried: dict[type[Event], list[Try]] = field(default_factory=dict)
    concluding: list[Callable[[AuditState], None]] = field(default_factory=list)
    comparing: list[Callable[[AuditState, AuditSources], None]] = field(default_factory=list)

    def tries(self, *kinds: type[Event]) -> Callable[[_Function], _Function]:
        """Returns a decorator for a function that tries events of these types."""

        def add(function: _Function) -> _Function:
            for kind in kinds:
                self.tried.setdefault(kind, []).append(function)
            return function

        return add

    def concludes(self, function: Callable[[AuditState], None]) -> Callable[[AuditState], None]:
        """Decorates a function to be called once all events are folded."""
        self.concluding.append(function)
        return function

    def compares(
        self, function: Callable[[AuditState, AuditSources], None]
    ) -> Callable[[AuditState, AuditSources], None]:
        """Decorates a function to be called at the end, with the database and the contracts' views."""
        self.comparing.append(function)
        return function
