"""Credits by day, in UTC, of the newest movements of an owner or a node: a bounded part of its statement."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import Connection, select

from ledger.facts import CreditEntry
from ledger.queries.statement import SIGN
from ledger.store.index import EVENT
from ledger.store.tables import TABLES

MOST_ENTRIES, MOST_DAYS = 2_000, 30
"""Newest movements that are read, and newest days that are told of."""


@dataclass(frozen=True, slots=True)
class CreditDay:
    """One day: ``came`` and ``went`` in wei; ``before`` is its distance in days to the newest one, at most 0.

    It is ``whole`` unless it is the only one, and has more movements than are read.
    """

    day: date
    before: int
    came: int
    went: int
    whole: bool


def credits_by_day(connection: Connection, owner: str | None = None, node: int | None = None) -> tuple[CreditDay, ...]:
    """Returns the newest days with movements and those between them, oldest first."""
    columns = TABLES[CreditEntry].c
    only = columns.owner == owner if node is None else columns.node == node
    newest = (
        select(columns.kind, columns.amount, EVENT.c.timestamp)
        .join(EVENT, (EVENT.c.block_number == columns.block_number) & (EVENT.c.log_index == columns.log_index))
        .where(only)
        .order_by(columns.block_number.desc(), columns.log_index.desc())
        .limit(MOST_ENTRIES)
    )
    sums = dict[date, tuple[int, int]]()
    rows = connection.execute(newest).all()
    for kind, amount, second in rows:
        if kind not in SIGN or not isinstance(amount, int):
            continue  # a stored value that is none; the audit names it
        day = datetime.fromtimestamp(second, UTC).date()
        came, went = sums.get(day, (0, 0))
        sums[day] = (came + amount, went) if SIGN[kind] > 0 else (came, went + amount)
    cut = len(rows) == MOST_ENTRIES
    if cut and len(sums) > 1:
        sums.pop(min(sums))  # it may have begun before what was read
        cut = False
    return _filled(sums, not cut)


def _filled(sums: dict[date, tuple[int, int]], whole: bool) -> tuple[CreditDay, ...]:
    if not sums:
        return ()
    first, last = min(sums), max(sums)
    length = min((last - first).days + 1, MOST_DAYS)
    days = [(before, last + timedelta(days=before)) for before in range(1 - length, 1)]
    return tuple(CreditDay(day, before, *sums.get(day, (0, 0)), whole) for before, day in days)
