"""Events to facts: the whole meaning of the contracts' events, as pure functions.

``fold(book, log)`` reads the facts an event touches and writes their successors; nothing else has a say in them. The
same fold fills the derived tables and the auditor's own book.

    Registry, Admin        Market              Rounds                   Credits, Token
    ledger.fold.nodes      ledger.fold.runs    ledger.fold.rounds       ledger.fold.credits
    ledger.fold.treasury                       ledger.fold.committees
    Traps: ledger.fold.traps                   ledger.fold.appeals
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ledger.book import Book
from ledger.fold.appeals import APPEALS
from ledger.fold.committees import COMMITTEES
from ledger.fold.credits import CREDITS
from ledger.fold.nodes import NODES
from ledger.fold.rounds import ROUNDS
from ledger.fold.runs import RUNS
from ledger.fold.traps import TRAPS
from ledger.fold.treasury import TREASURY
from protocol.chain.events import Event, Log

Handler = Callable[[Book, Log, Event], None]

PARTS: tuple[dict[Any, Any], ...] = (NODES, TREASURY, RUNS, ROUNDS, COMMITTEES, APPEALS, CREDITS, TRAPS)
HANDLERS: dict[type[Event], Handler] = {kind: handler for part in PARTS for kind, handler in part.items()}


def fold(book: Book, log: Log) -> None:
    """Writes what one event changes. Events that change no fact (approvals, faucet drips) are passed over."""
    fold_all(book, [log])


def fold_all(book: Book, logs: Iterable[Log]) -> None:
    """Folds ``logs`` in the order of the chain."""
    for log in logs:
        if (handler := HANDLERS.get(type(log.event))) is not None:
            handler(book, log, log.event)
