"""Facts and events as rows: statements compiled once for a table, values converted by the types of its columns.

A row is a list of values in the order of the table's columns, as the driver takes them: numbers and text only. Going to
the driver without an expression to compile for each row makes the ledger several times faster.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Dialect, Row, Table, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite

from ledger.book import Kind
from ledger.facts import Fact
from ledger.tables import TABLES

Convert = Callable[[Any], Any]


class Rows:
    """The rows of one table in one dialect."""

    def __init__(self, table: Table, dialect: Dialect) -> None:
        self._names = [column.name for column in table.columns]
        self._keys = [column.name for column in table.primary_key.columns]
        types = [column.type.dialect_impl(dialect) for column in table.columns]
        self._writes = _converts(kind.bind_processor(dialect) for kind in types)
        self._reads = _converts(kind.result_processor(dialect, None) for kind in types)
        self._key_writes = _converts(
            column.type.dialect_impl(dialect).bind_processor(dialect) for column in table.primary_key.columns
        )
        insert = inserting(dialect)(table)
        changing = {name: insert.excluded[name] for name in self._names if name not in self._keys}
        upsert = insert.on_conflict_do_update(index_elements=self._keys, set_=changing)
        wanted = [column == bindparam(column.name) for column in table.primary_key.columns]
        self._insert = _Statement(insert, dialect, self._names)
        self._upsert = _Statement(upsert, dialect, self._names)
        self._select = _Statement(select(table).where(*wanted), dialect, self._keys)
        self._delete = _Statement(table.delete().where(*wanted), dialect, self._keys)

    def row(self, values: Sequence[Any]) -> Sequence[Any]:
        """Values in the order of the columns, as the driver takes them."""
        return _converted(values, self._writes)

    def key(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values of a key, as the driver takes them."""
        return _converted(values, self._key_writes)

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
        return None if found is None else _converted(found, self._reads)


class _Statement:
    """SQL text whose parameters are ``names``, in this order."""

    def __init__(self, statement: Any, dialect: Dialect, names: Sequence[str]) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(names))
        assert not compiled.positional or compiled.positiontup == list(names)
        self.text = str(compiled)
        self._names = None if compiled.positional else names

    def arguments(self, row: Sequence[Any]) -> Any:
        """A row as this statement's parameters."""
        return tuple(row) if self._names is None else dict(zip(self._names, row, strict=True))

    def each(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Executes it for every row."""
        if rows:
            connection.exec_driver_sql(self.text, [self.arguments(row) for row in rows])


@functools.lru_cache(maxsize=512)
def rows_of(table: Table, dialect: Dialect) -> Rows:
    """The rows of a table, made once for each database."""
    return Rows(table, dialect)


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


@functools.cache
def values_of(kind: type[Fact]) -> Callable[[Any], Sequence[Any]]:
    """What takes the values of a fact of this kind in the order of its columns."""
    names = [field.name for field in dataclasses.fields(kind)]
    return attrgetter(*names)  # every kind has a key and something beside it


def inserting(dialect: Dialect) -> Callable[[Table], Any]:
    """The insert that knows what to do about a row that is there already."""
    return postgresql.insert if dialect.name == "postgresql" else sqlite.insert


def _converts(found: Iterable[Convert | None]) -> list[tuple[int, Convert]]:
    return [(index, convert) for index, convert in enumerate(found) if convert is not None]


def _converted(values: Sequence[Any], converts: list[tuple[int, Convert]]) -> Sequence[Any]:
    if not converts:
        return values
    row = list(values)
    for index, convert in converts:
        row[index] = convert(row[index])
    return row
