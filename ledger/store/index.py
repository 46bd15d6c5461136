"""Reads the chain into the database: raw events and folded facts, without gap, across reorganisations.

Each step is one transaction which moves the position, keeps the events and folds them. The position is moved first, and
only from where this process saw it: of two processes that index one database, the second finds it moved and reads on.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

from sqlalchemy import Connection, select

from ledger.fold import fold_all
from ledger.store.database import Database, move, read_position
from ledger.store.records import decode_event, encode_event
from ledger.store.rows import Values, rows_of
from ledger.store.stored_book import Held, StoredBook, forget_undoing, nothing_held, undo
from ledger.store.tables import EventRow
from protocol.chain.events import Event, Log
from protocol.chain.reading.client import Chain
from protocol.chain.reading.cursor import Cursor
from protocol.chain.reading.tail import BlockEvents, Rollback, Tail

BLOCKS_PER_STEP = 5_000
"""Most blocks folded in one transaction."""

MOST_HELD = 15_000
"""Facts remembered from one step to the next; a hundred bytes to a kilobyte each."""

EVENT = EventRow.__table__  # type: ignore[attr-defined]


class Index:
    """Follows one chain into one database. Not safe to share between threads.

    ``ahead`` fetches what is to be written next; None takes one thing after the other.
    """

    def __init__(self, chain: Chain, database: Database, ahead: Executor | None = None) -> None:
        self._database = database
        with database.reading() as connection:
            self._cursor = read_position(connection).cursor
        self._tail = Tail(chain, self._cursor, ahead=ahead)
        self._held = nothing_held()

    def advance(self) -> bool:
        """Takes one step. Returns False where there was nothing new; that costs one RPC request.

        Raises:
            Unavailable: the RPC or the database does not answer; nothing was lost.
            FinalityMoved: a block older than finality is gone.
        """
        with not_collecting():
            return self._step()

    def _step(self) -> bool:
        news = self._tail.poll(BLOCKS_PER_STEP, self._cursor)
        if not news:
            return False
        try:
            self._take(news)
        except BaseException:
            self._held.clear()  # it may hold what was not committed
            raise
        return True

    def _take(self, news: list[BlockEvents] | Rollback) -> None:
        with self._database.writing() as connection:
            if not move(connection, self._cursor, self._tail.cursor):
                self._held.clear()
                self._cursor = read_position(connection).cursor
                return
            if isinstance(news, Rollback):
                roll_back(connection, news.to_block, self._held)
            else:
                record(connection, news, self._tail.cursor.oldest, self._held)
        if sum(map(len, self._held.values())) > MOST_HELD:
            self._held.clear()
        self._cursor = self._tail.cursor

    def sync(self) -> Cursor:
        """Reads up to the head, and returns the position reached."""
        self.advance()
        while self._cursor.number < self._tail.head_number:
            self.advance()
        return self._cursor


def sync(chain: Chain, database: Database) -> Cursor:
    """Brings ``database`` up to the head of ``chain``."""
    with ThreadPoolExecutor(1) as ahead:
        return Index(chain, database, ahead).sync()


def record(connection: Connection, blocks: Iterable[BlockEvents], oldest: int, held: Held) -> None:
    """Keeps the blocks' events and folds them, so that it can be undone down to block ``oldest``.

    ``held`` is what is known of the derived tables.
    """
    rows, book = rows_of(EVENT, connection.dialect), StoredBook(connection, held)
    events: list[Values] = []
    for block in blocks:
        events += map(event_values, block.logs)
        book.begin_block(block.block.number, undoable=block.block.number > oldest)
        fold_all(book, block.logs)
    rows.insert(connection, events)
    book.flush()
    forget_undoing(connection, oldest)


def roll_back(connection: Connection, to_block: int, held: Held) -> None:
    """Forgets every event above ``to_block``, and what it did; ``held`` is what is known of the derived tables."""
    connection.execute(EVENT.delete().where(EVENT.c.block_number > to_block))
    undo(connection, to_block, held)


def stored_logs(
    connection: Connection, kinds: Collection[type[Event]] = (), after: int = -1, up_to: int = 2**63 - 1
) -> Iterator[Log]:
    """Yields the raw events above block ``after`` in the order of the chain; those of some ``kinds`` where given."""
    ordered = select(EVENT).order_by(EVENT.c.block_number, EVENT.c.log_index)
    ordered = ordered.where(EVENT.c.block_number > after, EVENT.c.block_number <= up_to)
    if kinds:
        ordered = ordered.where(EVENT.c.name.in_([kind.__name__ for kind in kinds]))
    for row in connection.execute(ordered.execution_options(yield_per=1_000)):
        yield Log(
            block_number=row.block_number,
            block_hash=bytes.fromhex(row.block_hash[2:]),
            tx_hash=bytes.fromhex(row.tx_hash[2:]),
            log_index=row.log_index,
            timestamp=row.timestamp,
            event=decode_event(row.name, row.payload),
        )


@contextmanager
def not_collecting() -> Iterator[None]:
    """Leaves cycles alone. A step makes many values and no cycles: looking for some would cost a fifth of its time.

    They must be gone when it ends, or they are all looked through then: what makes them is a function of its own.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def event_row(log: Log) -> dict[str, object]:
    """Returns the columns of a raw event."""
    return dict(zip(_COLUMNS, event_values(log), strict=True))


def event_values(log: Log) -> tuple[object, ...]:
    """Returns a raw event in the order of its table's columns."""
    event = log.event
    return (
        log.block_number,
        log.log_index,
        "0x" + log.block_hash.hex(),
        "0x" + log.tx_hash.hex(),
        log.timestamp,
        type(event).__name__,
        getattr(event, "round", None),
        encode_event(event),
    )


_COLUMNS = tuple(EVENT.columns.keys())
