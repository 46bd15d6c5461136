"""The coordinator's database: SQLite by default, PostgreSQL by URL.

SQLite runs in WAL mode with full synchronisation, so that what was committed is on disk before anyone is told, and so
that the API reads while the driver writes. A write takes its lock at once: a transaction that starts by reading could
otherwise fail half-way because another one wrote in between.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256

from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, SQLModel, func, select

from coordinator.migrations import migrate, state_of
from protocol.errors import Misconfigured, Unavailable
from protocol.sql import Turn, answering, open_engine, upserting

BUSY_SECONDS = 5.0
"""Longest wait of a write for another process's before the store counts as down."""


TURN_SECONDS = 60.0
"""Longest wait of a thread for the writes of others to SQLite."""

IDLE_SECONDS = 5
"""Longest pause in a transaction that is checked, after which PostgreSQL ends it."""

NAME, PRAGMAS = "the coordinator's database", ("synchronous=FULL", "foreign_keys=ON")


class Store:
    """Sessions on one database. Safe to share between threads."""

    def __init__(self, url: str) -> None:
        """Opens the database at ``url`` and brings its tables to this version; ``migrated`` says what was done.

        Raises:
            Misconfigured: the URL cannot be used at all, or the tables are those of another version.
            Unavailable: the database does not answer.
        """
        self._engine = _engine(url)
        self._writer = self._engine.execution_options(writes=True)
        # In SQLite a transaction is a snapshot anyway.
        snapshot = {"isolation_level": "REPEATABLE READ"} if self._engine.dialect.name == "postgresql" else {}
        self._reader = self._engine.execution_options(**snapshot)
        self._check: Callable[[Session], None] | None = None
        self._glances = itertools.count()
        # Other databases let writers wait for the rows that they share.
        self._turn = Turn(NAME, TURN_SECONDS) if self._engine.dialect.name == "sqlite" else None
        try:
            with answering(NAME):
                self.migrated = migrate(self._writer, SQLModel.metadata)
                # A connection of its own, which never writes: SQLite tells each of the commits of all others.
                self._glance = self._engine.raw_connection() if self._engine.dialect.name == "sqlite" else None
        except BaseException:
            self._engine.dispose()
            raise

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session that sees one consistent state and writes nothing. Raises ``Unavailable``."""
        with answering(NAME), Session(self._reader) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session that is committed, durably, when the block ends, or not at all. Raises ``Unavailable``."""
        turn = answering(NAME) if self._turn is None else self._turn.taken()
        with turn, Session(self._writer, expire_on_commit=False) as session, session.begin():
            if self._check is None:
                yield session
                return
            keep_short(session)
            yield session
            session.flush()
            self._check(session)

    def checked_by(self, check: Callable[[Session], None]) -> Store:
        """Returns this store with a ``check`` that ends each writing transaction: what it raises undoes that.

        Such a transaction may not pause for long either: a process that is stopped in it must not keep others waiting.
        """
        checked = copy.copy(self)
        checked._check = check
        return checked

    def state(self) -> int:
        """A number that changes with every commit, by whichever process, at a fraction of a query's cost.

        Equal numbers mean that nothing was committed in between. Raises ``Unavailable``.
        """
        if self._glance is None:
            return next(self._glances)  # other databases do not tell: something may always have changed
        try:
            (state,) = self._glance.cursor().execute("PRAGMA data_version").fetchone()
        except self._engine.dialect.loaded_dbapi.Error as error:
            raise Unavailable(f"{NAME} does not answer: {error}") from error
        return int(state)

    def close(self) -> None:
        """Closes the connections."""
        if self._glance is not None:
            self._glance.close()
        self._engine.dispose()


def look_at(url: str) -> str:
    """Says at which revision a database is, and changes nothing in it; raises as ``Store`` does."""
    engine = _engine(url)
    try:
        with answering(NAME), engine.connect() as connection:
            return state_of(connection)
    finally:
        engine.dispose()


def _engine(url: str) -> Engine:
    try:
        return open_engine(url, BUSY_SECONDS, PRAGMAS)
    except (SQLAlchemyError, ImportError, ValueError) as error:
        raise Misconfigured(f"database_url cannot be used: {error}") from error


def keep_short(session: Session) -> None:
    """Has PostgreSQL end the transaction where its process pauses in it, and where it waits long for rows of others."""
    if session.get_bind().dialect.name == "postgresql":
        for bound in ("idle_in_transaction_session_timeout", "lock_timeout"):
            session.connection().execute(text(f"SET LOCAL {bound} = '{IDLE_SECONDS}s'"))


def take_turn(session: Session, *key: int | str) -> None:
    """Lets one transaction at a time go on under this key, until its end, where what it reads decides what it writes.

    SQLite has one writer at a time anyway.
    """
    if session.get_bind().dialect.name == "postgresql":
        digest = sha256(repr(key).encode()).digest()
        session.connection().execute(select(func.pg_advisory_xact_lock(int.from_bytes(digest[:8], "big", signed=True))))


def upsert(session: Session, rows: Sequence[SQLModel]) -> None:
    """Writes rows over those of the same keys, one statement a table; unlike ``merge`` it does not read them first."""
    by_table: dict[type[SQLModel], list[SQLModel]] = {}
    for row in rows:
        by_table.setdefault(type(row), []).append(row)
    for model, members in by_table.items():
        table = model.__table__  # type: ignore[attr-defined]  # SQLModel makes it
        values = [{name: getattr(row, name) for name in table.columns.keys()} for row in members]  # noqa: SIM118
        session.connection().execute(upserting(session.get_bind().dialect, table), values)
