"""Reads the chain into the database: raw events and folded facts, without gap, across reorganisations.

Each step is one transaction which moves the position, keeps the events and folds them. The position is moved first, and
only from where this process saw it: of two processes that index one database, the second finds it moved and reads on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain as chained

from sqlalchemy import Connection, select, update

from ledger.database import Database, StoredBook, position_values, read_position
from ledger.fold import fold_all
from ledger.records import decode_event, encode_event
from ledger.tables import TABLES, EventRow, PositionRow
from protocol.chain.client import Chain
from protocol.chain.events import Log
from protocol.chain.tail import BlockEvents, Cursor, Rollback, Tail

BLOCKS_PER_STEP = 5_000
"""Most blocks folded in one transaction."""

EVENT = EventRow.__table__  # type: ignore[attr-defined]
POSITION = PositionRow.__table__  # type: ignore[attr-defined]


class Index:
    """Follows one chain into one database. Not safe to share between threads."""

    def __init__(self, chain: Chain, database: Database) -> None:
        self._chain = chain
        self._database = database
        with database.reading() as connection:
            self._cursor = read_position(connection).cursor
        self._tail = Tail(chain, self._cursor)

    def advance(self) -> bool:
        """Takes one step. Returns False where there was nothing new; that costs one RPC request.

        Raises:
            Unavailable: the RPC or the database does not answer; nothing was lost.
            FinalityMoved: a block older than finality is gone.
        """
        news = self._tail.poll(BLOCKS_PER_STEP, self._cursor)
        if not news:
            return False
        with self._database.writing() as connection:
            if not _move(connection, self._cursor, self._tail.cursor):
                self._cursor = read_position(connection).cursor
                return True
            if isinstance(news, Rollback):
                roll_back(connection, news.to_block)
            else:
                record(connection, news)
        self._cursor = self._tail.cursor
        return True

    def sync(self) -> Cursor:
        """Reads up to the head, and returns the position reached."""
        while self.advance() or self._cursor.number < self._chain.head().number:
            pass
        return self._cursor


def sync(chain: Chain, database: Database) -> Cursor:
    """Brings ``database`` up to the head of ``chain``."""
    return Index(chain, database).sync()


def record(connection: Connection, blocks: Iterable[BlockEvents]) -> None:
    """Keeps the blocks' events and folds them."""
    logs = list(chained.from_iterable(block.logs for block in blocks))
    if logs:
        connection.execute(EVENT.insert(), [event_row(log) for log in logs])
    _fold(connection, logs)


def roll_back(connection: Connection, to_block: int) -> None:
    """Forgets every event above ``to_block``, and folds the ones left afresh."""
    connection.execute(EVENT.delete().where(EVENT.c.block_number > to_block))
    rebuild(connection)


def rebuild(connection: Connection) -> None:
    """Empties the derived tables and folds all raw events into them again."""
    for table in TABLES.values():
        connection.execute(table.delete())
    _fold(connection, stored_logs(connection))


def stored_logs(connection: Connection) -> Iterator[Log]:
    """Yields the raw events in the order of the chain."""
    ordered = select(EVENT).order_by(EVENT.c.block_number, EVENT.c.log_index)
    for row in connection.execute(ordered.execution_options(yield_per=1_000)):
        yield Log(
            block_number=row.block_number,
            block_hash=bytes.fromhex(row.block_hash[2:]),
            tx_hash=bytes.fromhex(row.tx_hash[2:]),
            log_index=row.log_index,
            timestamp=row.timestamp,
            event=decode_event(row.name, row.payload),
        )


def _fold(connection: Connection, logs: Iterable[Log]) -> None:
    book = StoredBook(connection)
    fold_all(book, logs)
    book.flush()


def _move(connection: Connection, old: Cursor, new: Cursor) -> bool:
    moved = connection.execute(
        update(POSITION).where(POSITION.c.cursor == old.to_json()).values(**position_values(new))
    )
    return moved.rowcount == 1


def event_row(log: Log) -> dict[str, object]:
    """Returns the columns of a raw event."""
    return {
        "block_number": log.block_number,
        "log_index": log.log_index,
        "block_hash": "0x" + log.block_hash.hex(),
        "tx_hash": "0x" + log.tx_hash.hex(),
        "timestamp": log.timestamp,
        "name": type(log.event).__name__,
        "round": getattr(log.event, "round", None),
        "payload": encode_event(log.event),
    }
