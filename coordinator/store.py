"""The coordinator's database: SQLite by default, PostgreSQL by URL.

SQLite runs in WAL mode with full synchronisation, so that what was committed is on disk before anyone is told, and so
that the API reads while the background process writes. A write takes its lock at once: a transaction that starts by
reading could otherwise fail half-way because another one wrote in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlmodel import Session, SQLModel, create_engine

from protocol.errors import Misconfigured, Unavailable

BUSY_SECONDS = 5.0
"""How long a write waits for another process's before the store counts as down."""


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
        except (SQLAlchemyError, ImportError) as error:
            raise Misconfigured(f"database_url {url!r} cannot be used: {error}") from error
        with _answering():
            SQLModel.metadata.create_all(self._writer)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session that sees one consistent state and writes nothing. Raises ``Unavailable``."""
        with _answering(), Session(self._engine) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session that is committed, durably, when the block ends, or not at all. Raises ``Unavailable``."""
        with _answering(), Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    def close(self) -> None:
        """Closes the connections."""
        self._engine.dispose()


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
