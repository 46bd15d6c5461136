"""The book that lies in the derived tables, and how to undo what blocks did to it.

Beside each change made by a block that is not final yet lies what stood there before: after a reorganisation the facts
go back as they were, at the cost of the blocks undone, not of the whole chain.

    undo   block | JSON: [[table, key, row before or null], ...], values as the driver takes them
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, select

from ledger.book import Kind
from ledger.facts import Fact, key_of
from ledger.rows import find_fact, rows_of, values_of
from ledger.tables import METADATA, TABLES, UndoRow

Key = tuple[int | str, ...]
Held = defaultdict[type[Any], dict[Key, Any]]
"""Facts as the tables have them, by kind and key, None where they have none: what need not be read again."""

UNDO = UndoRow.__table__  # type: ignore[attr-defined]


def nothing_held() -> Held:
    """Where nothing is known of the tables."""
    return defaultdict(dict)


class StoredBook:
    """A ``Book`` in the derived tables, within one transaction. ``flush`` writes what was put.

    Args:
        held: what is known of the tables; what is read and put is added to it.
    """

    def __init__(self, connection: Connection, held: Held) -> None:
        self._connection = connection
        self._held = held
        self._changed: defaultdict[type[Any], dict[Key, Any]] = defaultdict(dict)
        self._before: dict[tuple[type[Any], Key], Fact | None] = {}
        self._block, self._undoable = 0, False
        self._undo: list[list[Any]] = []

    def find(self, kind: type[Kind], *key: int | str) -> Kind | None:
        """Returns the fact, or None; each row is read once."""
        held = self._held[kind]
        if key not in held:
            held[key] = find_fact(self._connection, kind, *key)
        found: Kind | None = held[key]
        return found

    def put(self, fact: Fact) -> None:
        """Writes a fact, at the next ``flush``."""
        kind, key = type(fact), key_of(fact)
        if self._undoable and (kind, key) not in self._before:
            self._before[kind, key] = self.find(kind, *key)
        self._held[kind][key] = self._changed[kind][key] = fact

    def begin_block(self, number: int, undoable: bool) -> None:
        """What is put from now on is block ``number``'s; where it is ``undoable``, its undoing is written."""
        self._end_block()
        self._block, self._undoable = number, undoable

    def flush(self) -> None:
        """Writes all changed facts, a statement for each kind."""
        self._end_block()
        for kind, facts in self._changed.items():
            rows, values = rows_of(TABLES[kind], self._connection.dialect), values_of(kind)
            rows.upsert(self._connection, [rows.row(values(fact)) for fact in facts.values()])
        rows_of(UNDO, self._connection.dialect).insert(self._connection, self._undo)
        self._changed.clear()
        self._undo.clear()

    def _end_block(self) -> None:
        if not self._before:
            return
        changes = []
        for (kind, key), fact in self._before.items():
            rows = rows_of(TABLES[kind], self._connection.dialect)
            before = None if fact is None else rows.row(values_of(kind)(fact))
            changes.append([TABLES[kind].name, rows.key(key), before])
        self._undo.append([self._block, json.dumps(changes)])
        self._before.clear()


def undo(connection: Connection, to_block: int) -> None:
    """Puts every fact back as it was after block ``to_block``."""
    newest_first = select(UNDO).where(UNDO.c.block_number > to_block).order_by(UNDO.c.block_number.desc())
    before: dict[str, dict[str, tuple[Any, Any]]] = {}
    for row in connection.execute(newest_first):
        for table, key, old in json.loads(row.changes):
            before.setdefault(table, {})[json.dumps(key)] = (key, old)  # the oldest block's counts
    for table, of_table in before.items():
        rows = rows_of(METADATA.tables[table], connection.dialect)
        rows.upsert(connection, [old for _, old in of_table.values() if old is not None])
        rows.delete(connection, [key for key, old in of_table.values() if old is None])
    connection.execute(UNDO.delete().where(UNDO.c.block_number > to_block))


def forget_undoing(connection: Connection, up_to_block: int) -> None:
    """Drops what could undo blocks that nothing goes back behind any more."""
    connection.execute(UNDO.delete().where(UNDO.c.block_number <= up_to_block))
