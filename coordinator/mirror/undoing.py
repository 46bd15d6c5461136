"""Undo log of the mirror: rows that each step replaced, so that a reorganisation costs only the blocks it undoes.

undo   number | position | JSON: [[table, [key, ...], [row before, ...] or null where no row was], ...]
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import delete, tuple_
from sqlmodel import Session, SQLModel, col, select

from coordinator.mirror.market import Identity
from coordinator.store import upsert
from coordinator.tables import MIRROR, CursorRow, UndoRow
from protocol.chain.reading import cursor as cursors

ASKED_TOGETHER = 500
"""Rows read by one statement."""

Row = list[Any]


def keep(session: Session, before: cursors.Cursor, number: int, changing: Iterable[Identity]) -> None:
    """Notes what stands in rows that a step from ``before`` to block ``number`` is about to write or remove."""
    keys: defaultdict[type[SQLModel], list[tuple[Any, ...]]] = defaultdict(list)
    for table, key in changing:
        keys[table].append(key)
    stood = [
        (table.__tablename__, key, row)
        for table, of_table in keys.items()
        for key, row in _rows(session, table, of_table)
    ]
    if stood:
        rows = json.dumps(stood, default=lambda value: {"hex": value.hex()})
        session.add(UndoRow(number=number, position=before.to_json(), rows=rows))


def undo(session: Session, back_to: cursors.Cursor) -> None:
    """Puts every row back as it was at the block of ``back_to``, or at an earlier one where steps were wider."""
    steps = session.exec(select(UndoRow).where(UndoRow.number > back_to.number).order_by(UndoRow.id.desc())).all()  # type: ignore[union-attr]
    standing: dict[tuple[str, tuple[Any, ...]], Row | None] = {}
    for step in steps:
        for name, key, row in json.loads(step.rows, object_hook=lambda told: bytes.fromhex(told["hex"])):
            standing[name, tuple(key)] = row  # the oldest step's counts
        back_to = min(back_to, cursors.Cursor.from_json(step.position), key=lambda cursor: cursor.number)
    for (name, key), row in standing.items():
        if row is None:
            remove(session, (TABLES[name], key))
    stood = [
        TABLES[name](**dict(zip(_columns(TABLES[name]), row, strict=True)))
        for (name, _), row in standing.items()
        if row
    ]
    upsert(session, [*stood, position_row(back_to)])
    session.exec(delete(UndoRow).where(col(UndoRow.number) > back_to.number))


def forget(session: Session, up_to: int) -> None:
    """Drops what could undo blocks that nothing goes back behind any more."""
    session.exec(delete(UndoRow).where(col(UndoRow.number) <= up_to))


def remove(session: Session, identity: Identity) -> None:
    """Deletes a row, which need not be there."""
    table, key = identity
    session.exec(delete(table).where(*(column == part for column, part in zip(_key(table), key, strict=True))))


def position_row(cursor: cursors.Cursor) -> CursorRow:
    """The row that says how far the mirror has come."""
    return CursorRow(id=1, number=cursor.number, position=cursor.to_json())


def _rows(session: Session, table: type[SQLModel], keys: Sequence[tuple[Any, ...]]) -> list[tuple[Any, Row | None]]:
    """Each key with the row that it has now."""
    stored, columns, found = table.__table__, _key(table), dict[tuple[Any, ...], Row]()  # type: ignore[attr-defined]
    places = [list(stored.columns).index(column) for column in columns]
    for start in range(0, len(keys), ASKED_TOGETHER):
        wanted = stored.select().where(tuple_(*columns).in_(keys[start : start + ASKED_TOGETHER]))
        for row in session.connection().execute(wanted):
            found[tuple(row[place] for place in places)] = list(row)
    return [(key, found.get(key)) for key in keys]


def _columns(table: type[SQLModel]) -> list[str]:
    return list(table.__table__.columns.keys())  # type: ignore[attr-defined]  # SQLModel makes it


def _key(table: type[SQLModel]) -> list[Any]:
    return list(table.__table__.primary_key.columns)  # type: ignore[attr-defined]


TABLES: dict[str, type[SQLModel]] = {str(table.__tablename__): table for table in MIRROR}
"""By name."""
