"""The book that lies in the derived tables, and how to undo what blocks did to it.

Beside each change made by a block that is not final yet lies what stood there before: after a reorganisation the facts
go back as they were, at the cost of the blocks undone, not of the whole chain.

    undo   block | JSON: [[table, key, row before or null], ...], values as the driver takes them
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from ledger.book import Kind
from ledger.facts import Fact, key_of
from ledger.rows import find_fact, rows_of, values_of
from ledger.tables import METADATA, TABLES, UndoRow

Place = tuple[type[Any], tuple[int | str, ...]]
Held = dict[Place, Any]
"""Facts as the tables have them, None where they have none: what need not be read again."""

UNDO = UndoRow.__table__  # type: ignore[attr-defined]


class StoredBook:
    """A ``Book`` in the derived tables, within one transaction. ``flush`` writes what was put.

    Args:
        held: what is known of the tables; what is read and put is added to it.
    """

    def __init__(self, connection: Connection, held: Held) -> None:
        self._connection = connection
        self._held = held
        self._changed: dict[Place, Fact] = {}
        self._before: dict[Place, Fact | None] = {}
        self._undo: list[list[Any]] = []

    def find(self, kind: type[Kind], *key: int | str) -> Kind | None:
        """Returns the fact, or None; each row is read once."""
        place = (kind, key)
        if place not in self._held:
            self._held[place] = find_fact(self._connection, kind, *key)
        held: Kind | None = self._held[place]
        return held

    def put(self, fact: Fact) -> None:
        """Writes a fact, at the next ``flush``."""
        kind, key = place = (type(fact), key_of(fact))
        if place not in self._before:
            self._before[place] = self._held[place] if place in self._held else self.find(kind, *key)
        self._held[place] = self._changed[place] = fact

    def end_block(self, number: int, undoable: bool) -> None:
        """What was put since the last call is block ``number``'s; where it is ``undoable`` its undoing is written."""
        if undoable and self._before:
            changes = []
            for (kind, key), fact in self._before.items():
                rows = rows_of(TABLES[kind], self._connection.dialect)
                before = None if fact is None else rows.row(values_of(kind)(fact))
                changes.append([TABLES[kind].name, rows.key(key), before])
            self._undo.append([number, json.dumps(changes)])
        self._before.clear()

    def flush(self) -> None:
        """Writes all changed facts, a statement for each kind."""
        by_kind: dict[type[Fact], list[Sequence[Any]]] = {}
        for (kind, _), fact in self._changed.items():
            rows = rows_of(TABLES[kind], self._connection.dialect)
            by_kind.setdefault(kind, []).append(rows.row(values_of(kind)(fact)))
        for kind, changed in by_kind.items():
            rows_of(TABLES[kind], self._connection.dialect).upsert(self._connection, changed)
        rows_of(UNDO, self._connection.dialect).insert(self._connection, self._undo)
        self._changed.clear()
        self._undo.clear()


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
