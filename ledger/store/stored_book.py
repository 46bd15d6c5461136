"""The book that lies in the derived tables, and how to undo what blocks did to it.

Beside each change made by a block that is not final yet lies what stood there before: after a reorganisation the facts
go back as they were, at the cost of the blocks undone, not of the whole chain.

    undo   block | JSON: {table: [[row before, ...], [key where no row was, ...]], ...}, values as the driver takes them
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from pydantic_core import from_json, to_json
from sqlalchemy import Connection, select

from ledger.book import Kind
from ledger.facts import Fact, keys_of
from ledger.store.rows import find_fact, rows_of
from ledger.store.tables import METADATA, TABLES, BlockUndoRow

Key = tuple[int | str, ...]
Held = defaultdict[type[Any], dict[Key, Any]]
"""Facts as the tables have them, by kind and key, None where they have none: what need not be read again."""

UNDO = BlockUndoRow.__table__  # type: ignore[attr-defined]
KIND_OF = {table.name: kind for kind, table in TABLES.items()}


def nothing_held() -> Held:
    """Returns an empty cache of the tables."""
    return defaultdict(dict)


class StoredBook:
    """A ``Book`` in the derived tables, within one transaction. ``flush`` writes what was put.

    Args:
        held: what is known of the tables; what is read and put is added to it.
    """

    def __init__(self, connection: Connection, held: Held) -> None:
        self._connection = connection
        self._held = held
        self._changed, self._before = nothing_held(), nothing_held()
        self._block, self._undoable = 0, False
        self._undo: list[tuple[int, str]] = []

    def find(self, kind: type[Kind], *key: int | str) -> Kind | None:
        """Returns the fact, or None; each row is read once."""
        held = self._held[kind]
        if key not in held:
            held[key] = find_fact(self._connection, kind, *key)
        found: Kind | None = held[key]
        return found

    def put(self, fact: Fact) -> None:
        """Writes a fact, at the next ``flush``."""
        kind = type(fact)
        key = keys_of(kind)(fact)
        if self._undoable and key not in (before := self._before[kind]):
            before[key] = self.find(kind, *key)
        self._held[kind][key] = self._changed[kind][key] = fact

    def begin_block(self, number: int, undoable: bool) -> None:
        """Attributes further changes to block ``number``; records how to undo them if ``undoable``."""
        self._end_block()
        self._block, self._undoable = number, undoable

    def flush(self) -> None:
        """Writes all changed facts, a statement for each kind."""
        self._end_block()
        for kind, facts in self._changed.items():
            rows = rows_of(TABLES[kind], self._connection.dialect)
            rows.upsert(self._connection, list(map(rows.of_fact, facts.values())))
        rows_of(UNDO, self._connection.dialect).insert(self._connection, self._undo)
        self._changed.clear()
        self._undo.clear()

    def _end_block(self) -> None:
        if not self._before:
            return
        changes = {}
        for kind, facts in self._before.items():
            rows = rows_of(TABLES[kind], self._connection.dialect)
            stood = [rows.of_fact(fact) for fact in facts.values() if fact is not None]
            absent = [rows.key(key) for key, fact in facts.items() if fact is None]
            changes[TABLES[kind].name] = (stood, absent)
        self._undo.append((self._block, to_json(changes).decode()))
        self._before.clear()


def undo(connection: Connection, to_block: int, held: Held) -> None:
    """Puts every fact back as it was after block ``to_block``; of those, ``held`` knows nothing any more."""
    newest_first = select(UNDO).where(UNDO.c.block_number > to_block).order_by(UNDO.c.block_number.desc())
    before: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
    for undoing in connection.execute(newest_first):
        for table, (stood, absent) in from_json(undoing.changes).items():
            rows = rows_of(METADATA.tables[table], connection.dialect)
            before[table] |= {rows.key_in(row): row for row in stood}  # the oldest block's counts
            before[table] |= dict.fromkeys(map(tuple, absent))
    for table, of_table in before.items():
        rows = rows_of(METADATA.tables[table], connection.dialect)
        rows.upsert(connection, [row for row in of_table.values() if row is not None])
        rows.delete(connection, [key for key, row in of_table.items() if row is None])
        for key in of_table:
            held[KIND_OF[table]].pop(rows.key_back(key), None)
    connection.execute(UNDO.delete().where(UNDO.c.block_number > to_block))


def forget_undoing(connection: Connection, up_to_block: int) -> None:
    """Drops what could undo blocks that nothing goes back behind any more."""
    connection.execute(UNDO.delete().where(UNDO.c.block_number <= up_to_block))
