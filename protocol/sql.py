"""SQL databases that hold what was read of a chain: SQLite by default, PostgreSQL by URL.

SQLite lets writers poll for its lock, and the unlucky starve, so threads of one process take turns (``Turn``). In
PostgreSQL they wait for rows; only the ledger, each of whose writes changes the same row, takes turns there too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import Dialect, Engine, Table, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft

from protocol.errors import Unavailable
from protocol.write_ahead import use_write_ahead_log

LIBPQ_WAITS = {"connect_timeout": 5, "tcp_user_timeout": 10_000, "keepalives_idle": 5, "keepalives_interval": 2}
"""Longest waits for a PostgreSQL server that a network has cut off: seconds, but milliseconds for ``tcp_user_timeout``.

Without them a process would wait for minutes where it should say that its database does not answer. What the URL sets
itself counts.
"""


KEPT_CONNECTIONS = 40
"""Connections to SQLite that are kept, one for each thread of a server: to open one costs more than a short query."""

POSTGRESQL_KEPT, POSTGRESQL_MORE = 10, 5
"""Connections to PostgreSQL that a process keeps, and opens beyond for a moment; a server takes 100 by default."""


def open_engine(url: str, busy_seconds: float, pragmas: Sequence[str]) -> Engine:
    """Returns the engine of a database.

    In SQLite, transactions begin where SQLAlchemy's do, so that a reader sees one snapshot. A connection with the
    execution option ``writes`` takes the lock at once: a transaction that starts by reading could fail half-way.

    Args:
        url: the database's URL.
        busy_seconds: longest wait for another process's write to SQLite.
        pragmas: set on each connection to SQLite, which has a write-ahead log besides.
    """
    if not url.startswith("sqlite"):
        parsed = make_url(url)
        waits = LIBPQ_WAITS if parsed.get_driver_name() in ("psycopg", "psycopg2") else {}
        unset = {name: value for name, value in waits.items() if name not in parsed.query}
        kept: dict[str, Any] = {"pool_size": POSTGRESQL_KEPT, "max_overflow": POSTGRESQL_MORE}
        return create_engine(parsed, pool_pre_ping=True, connect_args=unset, **kept)

    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        use_write_ahead_log(connection, busy_seconds)

    def begin(connection: Any) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    how: dict[str, Any] = {"timeout": busy_seconds, "check_same_thread": False}
    engine = create_engine(url, connect_args=how, pool_size=KEPT_CONNECTIONS)
    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


def inserting(dialect: Dialect, table: Table) -> Any:
    """Returns the insert that can say what to do about a row that is there already."""
    return _insert(dialect.name, table)


def inserting_new(dialect: Dialect, table: Table) -> Any:
    """Returns the insert that leaves a row with the same key as it is; ``rowcount`` is 0 where there was one."""
    return _insert_new(dialect.name, table)


def upserting(dialect: Dialect, table: Table) -> Any:
    """Returns the insert that replaces a row with the same key."""
    return _upsert(dialect.name, table)


def _insert(dialect: str, table: Table) -> Any:
    return (postgresql.insert if dialect == "postgresql" else sqlite.insert)(table)


@cache
def _insert_new(dialect: str, table: Table) -> Any:
    keys = table.primary_key.columns.keys()
    return _insert(dialect, table).on_conflict_do_nothing(index_elements=keys).execution_options(preserve_rowcount=True)


@cache
def _upsert(dialect: str, table: Table) -> Any:
    """Made once a table: making it takes longer than running it."""
    statement, keys = _insert(dialect, table), list(table.primary_key.columns.keys())
    rest = {name: statement.excluded[name] for name in table.columns.keys() if name not in keys}  # noqa: SIM118
    if not rest:
        return statement.on_conflict_do_nothing(index_elements=keys)
    return statement.on_conflict_do_update(index_elements=keys, set_=rest)


def reason(error: Exception) -> str:
    """Returns the driver's message, or the error's own, in one line."""
    return (str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__])[0]


@contextmanager
def answering(database: str) -> Iterator[None]:
    """Raises ``Unavailable`` if ``database``, named in words, does not answer in the block; lets refused rows pass."""
    try:
        yield
    except IntegrityError:
        raise
    except (DBAPIError, NoConnectionLeft) as error:
        raise Unavailable(f"{database} does not answer: {reason(error)}") from error


class Turn:
    """One writer at a time among the threads of this process."""

    def __init__(self, database: str, seconds: float) -> None:
        self._database, self._seconds, self._lock = database, seconds, threading.Lock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Waits for the turn and holds it in the block; raises ``Unavailable`` after the longest wait."""
        if not self._lock.acquire(timeout=self._seconds):
            raise Unavailable(f"{self._database} has been busy for {self._seconds:g} s")
        try:
            with answering(self._database):
                yield
        finally:
            self._lock.release()
