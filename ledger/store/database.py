"""One database: connections, whole transactions, and how far it has read the chain."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, select, text, update
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from ledger.store.tables import METADATA, TABLES_VERSION, PositionRow
from protocol.chain.deployment import Deployment
from protocol.chain.reading.cursor import Cursor
from protocol.errors import Misconfigured, Unavailable
from protocol.sql import Turn, answering, inserting, open_engine, reason

BUSY_SECONDS = 30
"""Longest wait for another process that is writing to the same SQLite file."""
CLOSE_SECONDS = 5.0
"""Longest wait of a closing database for those that read it."""

PRAGMAS = ("page_size=16384", "cache_size=-16000", "synchronous=NORMAL")
"""Larger pages are fewer to write; the cache, in kibibytes, holds what a step changes and queries read again."""

PASSWORD = re.compile(r"(://[^/@:]*):[^@/]*@")
"""Password in a database URL, after the user name."""


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """The block up to which the database holds the chain."""

    cursor: Cursor
    block_number: int
    block_hash: bytes


class OtherTables(Misconfigured):
    """The database holds this deployment's ledger in the tables of another version of Assize."""


class Database:
    """The ledger of one deployment in SQLite or PostgreSQL; made on first use.

    Args:
        where: a file's path, or a database URL; ``shown`` is that without its password.
        deployment: whose ledger it is.
        rebuilds: whether tables of another version of Assize are emptied, to be read from the chain again; ``rebuilt``
            is True then.

    Raises:
        Misconfigured: it cannot be opened, or holds the ledger of another deployment.
        OtherTables: it has the tables of another version, and is not to be rebuilt.
    """

    def __init__(self, where: str | Path, deployment: Deployment, rebuilds: bool = False) -> None:
        self.where = str(where)
        self.shown = PASSWORD.sub(r"\1:***@", self.where)
        self._name = f"the ledger's database {self.shown}"
        self._readers, self._reading, self._closed = threading.Condition(), 0, False
        self._identity = json.dumps(deployment.identity() | {"tables": TABLES_VERSION}, sort_keys=True)
        try:
            self._engine = _engine(self.where)
            self._turn = Turn(self._name, BUSY_SECONDS)
            METADATA.create_all(self._engine)
        except OperationalError as error:
            if "locked" in reason(error):
                raise Unavailable(f"{self._name} does not answer: {reason(error)}") from error
            raise Misconfigured(f"cannot open {self._name}: {reason(error)}") from error
        except (SQLAlchemyError, ImportError, OSError, ValueError, RuntimeError) as error:
            raise Misconfigured(f"cannot open {self._name}: {reason(error)}") from error
        self.rebuilt = rebuilds and self._rebuilt()
        self._claim(Cursor(deployment.start_block, deployment.start_hash))

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction: all of it is kept, or nothing.

        Raises:
            Unavailable: another process keeps the database locked, or it does not answer.
        """
        with self._turn.taken(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Opens one snapshot: all reads see the same position, also while another process writes.

        Raises:
            Unavailable: the database does not answer, or is closed.
        """
        level = "REPEATABLE READ" if self._engine.dialect.name == "postgresql" else None
        with self._admitted(), answering(self._name), self._engine.connect() as connection:
            yield connection.execution_options(isolation_level=level) if level else connection

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        with self._readers:
            if self._closed:
                raise Unavailable(f"{self._name} is closed")
            self._reading += 1
        try:
            yield
        finally:
            with self._readers:
                self._reading -= 1
                self._readers.notify_all()

    @contextmanager
    def trying(self) -> Iterator[Connection]:
        """Opens a transaction that is rolled back at the end; other writers wait for it.

        Raises:
            Unavailable: another process keeps the database locked, or it does not answer.
        """
        with self._turn.taken(), self._engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'"))
            connection.execute(update(_POSITION).values(id=1))  # every writer's first step: the others wait for it
            yield connection

    def close(self) -> None:
        """Closes every connection; waits a while for threads that read, as a connection lent now would stay open."""
        with self._readers:
            self._closed = True
            self._readers.wait_for(lambda: not self._reading, CLOSE_SECONDS)
        self._engine.dispose()

    def _rebuilt(self) -> bool:
        """Drops tables of this deployment that another version of Assize made, and makes them anew."""
        with self.writing() as connection:
            held = connection.execute(select(_POSITION.c.deployment)).scalar()
            if held is None or held == self._identity or _without_tables(held) != _without_tables(self._identity):
                return False
            METADATA.drop_all(connection)
            METADATA.create_all(connection)
        return True

    def _claim(self, start: Cursor) -> None:
        # The write comes first, so that of two processes which make one database only one begins it.
        first = inserting(self._engine.dialect, _POSITION).values(id=1, deployment=self._identity)
        with self.writing() as connection:
            connection.execute(first.values(**position_values(start)).on_conflict_do_nothing())
            row = connection.execute(select(_POSITION)).one()
        if row.deployment == self._identity:
            return
        self.close()
        if _without_tables(row.deployment) == _without_tables(self._identity):
            raise OtherTables(
                f"the database {self.shown} was made by another version of Assize; "
                "`assize ledger serve` reads the chain into it anew"
            )
        raise Misconfigured(
            f"the database {self.shown} holds the ledger of another deployment; "
            "give another --db, or remove it: the chain has it all"
        )


def move(connection: Connection, old: Cursor, new: Cursor) -> bool:
    """Says that the chain was read up to ``new``; False where the database does not stand at ``old``."""
    moved = connection.execute(
        update(_POSITION).where(_POSITION.c.cursor == old.to_json()).values(**position_values(new))
    )
    return moved.rowcount == 1


def position_values(cursor: Cursor) -> dict[str, Any]:
    """Returns the columns that say how far the chain was read."""
    return {"cursor": cursor.to_json(), "block_number": cursor.number, "block_hash": "0x" + cursor.hash.hex()}


def read_position(connection: Connection) -> Position:
    """Returns how far this database has read the chain."""
    row = connection.execute(select(_POSITION)).one()
    return Position(Cursor.from_json(row.cursor), row.block_number, bytes.fromhex(row.block_hash[2:]))


def _without_tables(identity: str) -> dict[str, Any]:
    """Returns whose ledger it is, whatever the version of its tables."""
    return {name: value for name, value in json.loads(identity).items() if name != "tables"}


def _engine(where: str) -> Engine:
    path = where.removeprefix("sqlite:///")
    if path.startswith("sqlite:"):
        raise Misconfigured(f"invalid database {where!r}: expected a file, sqlite:///PATH or a PostgreSQL URL")
    if "://" not in path:
        Path(path).expanduser().parent.mkdir(parents=True, exist_ok=True)
        where = f"sqlite:///{Path(path).expanduser()}"
    return open_engine(where, BUSY_SECONDS, PRAGMAS)


_POSITION = PositionRow.__table__  # type: ignore[attr-defined]
