"""Facts and events as rows: statements compiled once for a table, values converted by the types of its columns.

A row is a list of values in the order of the table's columns, as the driver takes them: numbers and text only. Going to
the driver without an expression to compile for each row makes the ledger several times faster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Dialect, Row, Table, bindparam, select

from ledger.book import Kind
from ledger.facts import Fact
from ledger.store.tables import TABLES
from protocol.sql import inserting, upserting

Convert = Callable[[Any], Any]
Values = tuple[Any, ...]

TOGETHER = 50
"""Rows in one statement of SQLite: what it costs to go from one statement to the next is a quarter of an insert."""


class Rows:
    """The rows of one table in one dialect."""

    def __init__(self, table: Table, dialect: Dialect) -> None:
        self._names = [column.name for column in table.columns]
        self._keys = [column.name for column in table.primary_key.columns]
        self._key_places = [self._names.index(name) for name in self._keys]
        types = {column.name: column.type.dialect_impl(dialect) for column in table.columns}
        writes = {name: kind.bind_processor(dialect) for name, kind in types.items()}
        self.of_fact = written_out(attributes(self._names), writes.values())
        """Converts a fact, or a value with the same fields, to what the driver takes."""
        self.key = written_out(places(self._keys), [writes[name] for name in self._keys])
        """Converts the values of a key to what the driver takes."""
        reads = {name: kind.result_processor(dialect, None) for name, kind in types.items()}
        self.key_back = written_out(places(self._keys), [reads[name] for name in self._keys])
        """Converts a key back from what the driver takes."""
        self._read = written_out(places(reads), reads.values())
        wanted = [column == bindparam(column.name) for column in table.primary_key.columns]
        self._insert = _Statement(inserting(dialect, table), dialect, self._names)
        self._upsert = _Statement(upserting(dialect, table), dialect, self._names)
        self._select = _Statement(select(table).where(*wanted), dialect, self._keys)
        self._delete = _Statement(table.delete().where(*wanted), dialect, self._keys)

    def key_in(self, row: Sequence[Any]) -> Sequence[Any]:
        """The key of a row; both as the driver takes them."""
        return tuple([row[place] for place in self._key_places])

    def insert(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Writes rows whose keys are new."""
        self._insert.each(connection, rows)

    def upsert(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Writes rows in the place of those with the same keys."""
        self._upsert.each(connection, rows)

    def delete(self, connection: Connection, keys: Sequence[Sequence[Any]]) -> None:
        """Removes the rows of these keys."""
        self._delete.each(connection, keys)

    def find(self, connection: Connection, key: Sequence[Any]) -> Sequence[Any] | None:
        """The values of the row of this key, as Python has them; None where there is none."""
        found = connection.exec_driver_sql(self._select.text, self._select.arguments(key)).one_or_none()
        return None if found is None else self._read(found)


class _Statement:
    """SQL text whose parameters are ``names``, in this order."""

    def __init__(self, statement: Any, dialect: Dialect, names: Sequence[str]) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(names))
        assert not compiled.positional or compiled.positiontup == list(names)
        self.text = str(compiled)
        self._names = None if compiled.positional else names
        one = f"({', '.join('?' * len(names))})"
        self._of_many = self.text.replace(f"VALUES {one}", f"VALUES {', '.join([one] * TOGETHER)}")

    def arguments(self, row: Sequence[Any]) -> Any:
        """A row as this statement's parameters."""
        return tuple(row) if self._names is None else dict(zip(self._names, row, strict=True))

    def each(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Executes it for every row."""
        whole = 0 if self._of_many == self.text else len(rows) // TOGETHER * TOGETHER
        if whole:
            starts = range(0, whole, TOGETHER)
            many = [tuple(chain.from_iterable(rows[start : start + TOGETHER])) for start in starts]
            connection.exec_driver_sql(self._of_many, many)
        if whole < len(rows):
            connection.exec_driver_sql(self.text, [self.arguments(row) for row in rows[whole:]])


def rows_of(table: Table, dialect: Dialect) -> Rows:
    """The rows of a table, made once for each kind of database."""
    wanted = (table, dialect.name, dialect.driver)
    if wanted not in _MADE:
        _MADE[wanted] = Rows(table, dialect)
    return _MADE[wanted]


_MADE: dict[tuple[Table, str, str], Rows] = {}


def find_fact(connection: Connection, kind: type[Kind], *key: int | str) -> Kind | None:
    """Reads one fact by its key."""
    rows = rows_of(TABLES[kind], connection.dialect)
    values = rows.find(connection, rows.key(key))
    return None if values is None else kind(*values)


def fact_of(kind: type[Kind], row: Row[Any]) -> Kind:
    """Returns the fact a row of a query holds."""
    return kind(**row._mapping)


def row_of(fact: Fact) -> dict[str, Any]:
    """Returns the columns of a fact, not looking inside its values."""
    return {field.name: getattr(fact, field.name) for field in dataclasses.fields(fact)}


def attributes(names: Iterable[str]) -> list[str]:
    """Returns the expressions that read these attributes of ``it``; see ``written_out``."""
    return [f"it.{name}" for name in names]


def places(names: Iterable[str]) -> list[str]:
    """Returns the expressions that read as many values of the sequence ``it``; see ``written_out``."""
    return [f"it[{place}]" for place, _ in enumerate(names)]


def written_out(sources: Iterable[str], converts: Iterable[Convert | None]) -> Callable[[Any], Values]:
    """Returns a function that converts a whole row, written out and compiled; None leaves a value as it is.

    A loop over the columns takes twice as long, and ``make bench-mirror`` then misses its mark against ranges. A
    balance, for example: ``lambda it: (it.holder, convert1(it.tokens),)``.
    """
    made = list(converts)
    names = {f"convert{place}": convert for place, convert in enumerate(made)}
    parts = [f"convert{place}({source})" if made[place] else source for place, source in enumerate(sources)]
    together: Callable[[Any], Values] = eval(f"lambda it: ({', '.join(parts)},)", names)
    return together
