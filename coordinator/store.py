"""The coordinator's database: SQLite by default, PostgreSQL by URL.

SQLite runs in WAL mode with full synchronisation, so that what was committed is on disk before anyone is told, and so
that the API reads while the driver writes. A write takes its lock at once: a transaction that starts by reading could
otherwise fail half-way because another one wrote in between.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlmodel import Session, SQLModel, create_engine

from protocol.errors import Misconfigured, Unavailable

BUSY_SECONDS = 5.0
"""Longest wait of a write for another process's before the store counts as down."""


class Store:
    """Sessions on one database. Safe to share between threads."""

    def __init__(self, url: str) -> None:
        """Opens the database at ``url`` and makes its tables.

        Raises:
            Misconfigured: the URL cannot be used at all.
            Unavailable: the database does not answer.
        """
        try:
            self._engine = _engine(url)
            self._writer = self._engine.execution_options(writes=True)
        except (SQLAlchemyError, ImportError, ValueError) as error:
            raise Misconfigured(f"database_url cannot be used: {error}") from error
        self._glances = itertools.count()
        # SQLite lets writers poll for its lock, and the unlucky starve: threads of one process wait in turn instead.
        self._turn = threading.Lock() if self._engine.dialect.name == "sqlite" else nullcontext()
        with _answering():
            SQLModel.metadata.create_all(self._writer)
            # A connection of its own, which never writes: SQLite tells each of the commits of all others.
            self._glance = self._engine.raw_connection() if self._engine.dialect.name == "sqlite" else None

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session that sees one consistent state and writes nothing. Raises ``Unavailable``."""
        with _answering(), Session(self._engine) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session that is committed, durably, when the block ends, or not at all. Raises ``Unavailable``."""
        with self._turn, _answering(), Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    def state(self) -> int:
        """A number that changes with every commit, by whichever process, at a fraction of a query's cost.

        Equal numbers mean that nothing was committed in between. Raises ``Unavailable``.
        """
        if self._glance is None:
            return next(self._glances)  # other databases do not tell: something may always have changed
        try:
            (state,) = self._glance.cursor().execute("PRAGMA data_version").fetchone()
        except self._engine.dialect.loaded_dbapi.Error as error:
            raise Unavailable(f"the coordinator's database did not answer: {error}") from error
        return int(state)

    def close(self) -> None:
        """Closes the connections."""
        if self._glance is not None:
            self._glance.close()
        self._engine.dispose()


def upsert(session: Session, rows: Sequence[SQLModel]) -> None:
    """Writes rows over those of the same keys, one statement a table; unlike ``merge`` it does not read them first."""
    inserting: Any = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[session.get_bind().dialect.name]
    by_table: dict[type[SQLModel], list[SQLModel]] = {}
    for row in rows:
        by_table.setdefault(type(row), []).append(row)
    for model, members in by_table.items():
        table = model.__table__  # type: ignore[attr-defined]  # SQLModel makes it
        names, keys = table.columns.keys(), list(table.primary_key.columns.keys())
        statement = inserting(table)
        rest = {name: statement.excluded[name] for name in names if name not in keys}
        if rest:
            statement = statement.on_conflict_do_update(index_elements=keys, set_=rest)
        else:
            statement = statement.on_conflict_do_nothing(index_elements=keys)
        session.connection().execute(statement, [{name: getattr(row, name) for name in names} for row in members])


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise  # it did answer: what was written is there already
    except DBAPIError as error:
        raise Unavailable(f"the coordinator's database did not answer: {error.orig}") from error


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url, pool_pre_ping=True)
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False})
    event.listen(engine, "connect", _pragmas)
    event.listen(engine, "begin", _begin)
    return engine


def _pragmas(connection: object, _record: object) -> None:
    connection.isolation_level = None  # type: ignore[attr-defined]  # transactions are begun below, not by the driver
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")  # type: ignore[attr-defined]


def _begin(connection: object) -> None:
    writes = connection.get_execution_options().get("writes")  # type: ignore[attr-defined]
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")  # type: ignore[attr-defined]
