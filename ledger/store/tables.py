"""The ledger's tables, private to it: a cache of the chain that can be dropped and rebuilt at any moment.

    raw      event     every event of the contracts as it came, in canonical JSON
             position  how far the chain was read; one row
             undo      what the derived tables held before each block that is not final
             reckoned  workers' shares as counted up to a final block; one row, or none yet
    derived  one table for each kind of fact in ``ledger.facts``, with exactly its fields and its key

Derived tables are made from the facts' annotations, so that a table cannot say something its fact does not.
SQLite and PostgreSQL hold the same text: wide integers in decimal, bytes and bitmaps in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Dialect, Index, MetaData, Table, Text, TextClause, text
from sqlalchemy.types import UserDefinedType
from sqlmodel import Field, SQLModel

from ledger.facts import (
    KINDS,
    Appeal,
    Checkpoint,
    Consumption,
    CreditEntry,
    Fact,
    Job,
    Membership,
    Node,
    Round,
    Run,
    RunTerms,
    Seat,
    Slash,
    Taint,
)
from ledger.facts.fact import CODECS, Bitmap, Hex, Wide, annotations_of


class AsText(UserDefinedType[Any]):
    """Text of a field with this annotation, as ``ledger.facts.fact.CODECS`` writes it.

    Text that does not read as such a value comes back as it is, for the audit to name.
    """

    cache_ok = True

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation

    def get_col_spec(self, **_: Any) -> str:
        """Returns the type in SQL."""
        return "TEXT"

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str]:
        """Returns the function that writes a value."""
        return CODECS[self.annotation][0]

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Returns the function that reads a value."""
        read = CODECS[self.annotation][1]

        def lenient(text: Any) -> Any:
            try:
                return read(text)
            except (ValueError, TypeError, AttributeError):
                return text

        return lenient


TABLES_VERSION = 8
"""Of the tables below; a database of another version is not read."""

METADATA = MetaData()
"""The ledger's own: another service's tables may share a process and a name."""


_OF_A_ROUND = text("round IS NOT NULL")


class EventRow(SQLModel, table=True):
    """One event as the chain emitted it. ``block_hash`` and ``tx_hash`` are 0x-hexadecimal; ``round`` where it has one.

    An appeal's own events have its number there, as a round of its own.
    """

    __tablename__ = "event"
    __table_args__ = (
        Index("event_name", "name", "block_number", "log_index"),
        Index("event_round", "round", sqlite_where=_OF_A_ROUND, postgresql_where=_OF_A_ROUND),
        {"sqlite_with_rowid": False},
    )
    metadata = METADATA

    block_number: int = Field(primary_key=True, sa_type=BigInteger)
    log_index: int = Field(primary_key=True)
    block_hash: str
    tx_hash: str
    timestamp: int = Field(sa_type=BigInteger)
    name: str
    round: int | None = Field(default=None, sa_type=BigInteger)
    payload: str


class PositionRow(SQLModel, table=True):
    """Position in the chain, and the deployment. ``cursor`` is that of ``protocol.chain.reading.cursor``."""

    __tablename__ = "position"
    metadata = METADATA

    id: int = Field(default=1, primary_key=True)
    deployment: str
    cursor: str
    block_number: int = Field(sa_type=BigInteger)
    block_hash: str


class BlockUndoRow(SQLModel, table=True):
    """Rows of derived tables before one block; ``changes`` as in ``ledger.store.stored_book``."""

    __tablename__ = "undo"
    metadata = METADATA

    block_number: int = Field(primary_key=True, sa_type=BigInteger)
    changes: str


class ReckonedRow(SQLModel, table=True):
    """Count of workers' shares up to a final block, as ``ledger.queries.fairness`` writes it."""

    __tablename__ = "reckoned"
    metadata = METADATA

    id: int = Field(default=1, primary_key=True)
    block_number: int = Field(sa_type=BigInteger)
    counted: str


COLUMN_TYPES: dict[Any, Any] = {
    int: BigInteger,
    bool: Boolean,
    str: Text().with_variant(Text(collation="C"), "postgresql"),  # by code points, as SQLite does
    **{annotation: AsText(annotation) for annotation in (Wide, Bitmap, Hex)},
}
"""Annotation of a fact's field to the type of its column."""

ASKED_BY: dict[type[Any], tuple[str, ...]] = {
    Node: ("owner", "key"),
    Slash: ("node", "owner", "round"),
    CreditEntry: ("owner", "round", "node"),
    Run: ("requester",),
    RunTerms: ("coordinator", "trainer"),
    Membership: ("node",),
    Checkpoint: ("manifest_root",),
    Round: ("run", "beacon"),
    Job: ("node", "root"),
    Consumption: ("round",),
    Appeal: ("round",),
    Seat: ("evidence_root",),
    Taint: ("run",),
}
"""Fields by which facts of a kind are asked for, other than the first of its key: each has an index, in which the key
follows, so that a page is read from where it begins."""

UNDER_WAY, TRAINED = text("state NOT IN ('settled', 'void')"), text("version > 0")
"""Conditions on rounds and on checkpoints. A query that has one as it stands here reads only what fulfils it."""

OF_FEW: dict[type[Any], tuple[str, TextClause, str]] = {
    Round: ("round_under_way", UNDER_WAY, "round"),
    Checkpoint: ("checkpoint_trained", TRAINED, "block_number"),
}
"""Indexes of some facts of a kind: name, condition, and the field of their order."""


def snake(kind: type) -> str:
    """Returns the table's name for a kind of fact: ``CreditEntry`` lies in ``credit_entry``."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in kind.__name__).lstrip("_")


def _table(kind: type[Fact]) -> Table:
    columns = [
        Column(name, COLUMN_TYPES[annotation], primary_key=name in kind.KEY, nullable=False, autoincrement=False)
        for name, annotation in annotations_of(kind).items()
    ]
    indexes = [Index(f"{snake(kind)}_{name}", name, *kind.KEY) for name in ASKED_BY.get(kind, ())]
    if kind in OF_FEW:
        name, where, ordered = OF_FEW[kind]
        indexes.append(Index(name, ordered, sqlite_where=where, postgresql_where=where))
    return Table(snake(kind), METADATA, *columns, *indexes)


TABLES: dict[type[Any], Table] = {kind: _table(kind) for kind in KINDS}
"""Kind of fact to its table."""
