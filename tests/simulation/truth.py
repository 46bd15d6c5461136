"""What really happened on the simulated chain, against what the services keep of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Connection, select
from sqlmodel import select as select_rows

from coordinator.mirror.mirror import Mirror
from coordinator.store import Store
from coordinator.tables import MIRROR, CursorRow
from ledger.book import MemoryBook
from ledger.facts import KINDS, Fact
from ledger.fold import fold_all
from ledger.store.database import Database, read_position
from ledger.store.index import event_row
from ledger.store.rows import fact_of
from ledger.store.tables import TABLES, EventRow
from protocol.chain.block import Block
from protocol.chain.deployment import Deployment
from protocol.chain.events import Log
from protocol.chain.reading.client import Chain
from protocol.chain.reading.decoding import log_of
from tests.simulation.world import World

EVENT = EventRow.__table__  # type: ignore[attr-defined]
SHOWN = 3
"""Differences of one table that are told one by one."""


def logs(world: World, deployment: Deployment) -> list[Log]:
    """Every event of the canonical chain, in order."""
    names = deployment.contract_names()
    found: list[Log] = []
    for block in world.canonical():
        index = 0
        for digest, raws, _ in block.transactions():
            for raw in raws:
                place = {
                    "topics": list(raw.topics),
                    "data": raw.data,
                    "transactionHash": "0x" + digest.hex(),
                    "logIndex": hex(index),
                }
                log = log_of(place, names[raw.address.lower()], Block(block.number, block.hash, None, block.timestamp))
                found += [log] if log else []
                index += 1
    return found


def effects(world: World, address: str) -> Iterator[int]:
    """Value of every payment of ``address`` that took effect."""
    for block in world.canonical():
        for payment in block.payments:
            if payment.sender == address.lower() and not payment.reverts:
                yield payment.value


def stored_events(path: Path) -> list[tuple[Any, ...]]:
    """The raw events a ledger keeps."""
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT * FROM event ORDER BY block_number, log_index").fetchall()


def ledger_differences(path: Path, deployment: Deployment, world: World, logs: Sequence[Log]) -> list[str]:
    """Where the ledger's tables say something else than the canonical events."""
    book = MemoryBook()
    fold_all(book, logs)
    with closing(Database(str(path), deployment)) as database, database.reading() as connection:
        position = read_position(connection)
        found = [] if position.block_hash == world.head.hash else ["the ledger does not stand at the head"]
        found += _apart("event", _event_rows(connection), [event_row(log) for log in logs])
        for kind in KINDS:
            found += _apart(kind.__name__, _facts(connection, kind), list(book.all(kind)))
    return found


def mirror_differences(path: Path, connect: Callable[[], Chain], world: World) -> list[str]:
    """Where the coordinator's tables say something else than a mirror that met no fault."""
    with TemporaryDirectory() as folder, closing(connect()) as chain:
        clean = Store(f"sqlite:///{folder}/clean.db")
        lived = Store(f"sqlite:///{path}")
        Mirror(chain, clean).follow()
        found: list[str] = []
        for table in MIRROR:
            if table is not CursorRow:
                found += _apart(table.__name__, _rows(lived, table), _rows(clean, table))
        if [row["number"] for row in _rows(lived, CursorRow)] != [world.head.number]:
            found.append("the mirror does not stand at the head")
        clean.close()
        lived.close()
    return found


def _rows(store: Store, table: Any) -> list[dict[str, Any]]:
    with store.reading() as session:
        return [row.model_dump() for row in session.exec(select_rows(table))]


def _event_rows(connection: Connection) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in connection.execute(select(EVENT))]


def _facts(connection: Connection, kind: type[Fact]) -> list[Any]:
    return [fact_of(kind, row) for row in connection.execute(select(TABLES[kind]))]  # type: ignore[type-var]


def _apart(what: str, mine: Sequence[Any], theirs: Sequence[Any]) -> list[str]:
    """The rows that only one side has, in words."""
    ours, truth = sorted(map(repr, mine)), sorted(map(repr, theirs))
    if ours == truth:
        return []
    extra, missing = set(ours) - set(truth), set(truth) - set(ours)
    told = [f"{what}: should not be there: {row}" for row in sorted(extra)[:SHOWN]]
    told += [f"{what}: is missing: {row}" for row in sorted(missing)[:SHOWN]]
    rest = len(extra) + len(missing) - len(told)
    return [*told, *([f"{what}: {rest} more rows"] * max(0, rest))] or [f"{what}: rows are there twice"]
