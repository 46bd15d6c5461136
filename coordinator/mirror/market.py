"""The mirrored market in memory: the rows that later events and decisions need, keyed like the tables."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sqlmodel import SQLModel

from coordinator import tables
from protocol.chain.events import Log
from protocol.chain.round_changes import advance
from protocol.chain.structs import RunTerms, State
from protocol.wire.rules import Sequential

Identity = tuple[type[SQLModel], tuple[Any, ...]]


def identity(row: SQLModel) -> Identity:
    """Returns a row's table and primary key."""
    return type(row), tuple(getattr(row, name) for name in _keys(type(row)))


@functools.cache
def _keys(table: type[SQLModel]) -> tuple[str, ...]:
    return tuple(table.__table__.primary_key.columns.keys())  # type: ignore[attr-defined]  # SQLModel makes it


@dataclass(slots=True)
class Market:
    """The mirrored rows.

    ``live`` are the rounds for which ``is_live`` holds; of the others only the round's own row is in memory.
    ``budgets`` are the allowances of known rules for honest nodes, by rules hash. ``settled`` are the (round, batch)
    that the contract reported as settled without an event; they are not in SQL, so a rollback drops them.
    """

    admin: tables.AdminRow = field(default_factory=tables.AdminRow)
    runs: dict[int, tables.RunRow] = field(default_factory=dict)
    announcements: dict[int, tables.AnnouncementRow] = field(default_factory=dict)
    nodes: dict[int, tables.NodeRow] = field(default_factory=dict)
    members: dict[tuple[int, int], tables.MemberRow] = field(default_factory=dict)
    earnings: dict[tuple[int, str], tables.EarningRow] = field(default_factory=dict)
    rounds: dict[int, tables.RoundRow] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)
    listings: dict[int, list[tables.ListingRow]] = field(default_factory=dict)
    submitted: dict[int, list[tables.SubmittedRow]] = field(default_factory=dict)
    seats: dict[int, dict[tuple[int, int], tables.SeatRow]] = field(default_factory=dict)
    touched: dict[Identity, SQLModel] = field(default_factory=dict)
    removed: list[tables.MemberRow | tables.AnnouncementRow] = field(default_factory=list)
    budgets: dict[bytes, Sequential] = field(default_factory=dict)
    settled: set[tuple[int, int]] = field(default_factory=set)

    def set(self, row: SQLModel, **values: Any) -> None:
        """Changes columns of ``row`` and notes that it must be written."""
        for name, value in values.items():
            setattr(row, name, value)
        self.touch(row)

    def add(self, row: SQLModel, **amounts: int) -> None:
        """Adds to columns of ``row``."""
        self.set(row, **{name: getattr(row, name) + amount for name, amount in amounts.items()})

    def touch(self, row: SQLModel) -> None:
        """Notes that ``row`` must be written."""
        self.touched[identity(row)] = row

    def remove(self, row: tables.MemberRow | tables.AnnouncementRow) -> None:
        """Notes that ``row`` must be deleted."""
        self.touched.pop(identity(row), None)
        self.removed.append(row)

    def begin_round(self, row: tables.RoundRow) -> None:
        """Adds a round."""
        self.rounds[row.id] = row
        self.live.add(row.id)
        self.listings[row.id] = []
        self.touch(row)

    def advance_round(self, number: int, log: Log) -> None:
        """Applies an event to its round and that round's seats; drops the parts of a round that has ended."""
        row = self.rounds[number]
        changes = advance(row, log)
        if changes.fields:
            self.set(row, **_columns(tables.RoundRow, changes.fields))
        for (attempt, juror), changed in changes.seats.items():
            seats = self.seats.setdefault(number, {})
            seat = seats.setdefault((attempt, juror), tables.SeatRow(round=number, attempt=attempt, juror=juror))
            self.set(seat, **_columns(tables.SeatRow, changed))
        if not is_live(row):
            self.live.discard(number)
            for parts in (self.listings, self.submitted, self.seats):
                parts.pop(number, None)

    def take_effect(self, now: int) -> bool:
        """Applies announced terms that are in effect at ``now`` (unix seconds); returns whether there were any."""
        due = [each for each in self.announcements.values() if each.effective_at <= now]
        for each in due:
            self.set(self.runs[each.run], **announced_terms(each))
            del self.announcements[each.run]
            self.remove(each)
        return bool(due)

    def take_changes(self) -> tuple[list[SQLModel], list[tables.MemberRow | tables.AnnouncementRow]]:
        """Returns the rows to write, in the order they were touched, and the rows to delete, since the last call."""
        changes = list(self.touched.values()), list(self.removed)
        self.touched.clear()
        self.removed.clear()
        return changes

    def rounds_of(self, run: int) -> Iterator[tables.RoundRow]:
        """Yields the rounds of a run, newest first, without appeal rounds."""
        return (each for each in reversed(self.rounds.values()) if each.run == run and not each.parent)

    def jurors(self, round_: tables.RoundRow) -> list[tables.SeatRow]:
        """Returns the seats of the round's present attempt."""
        seats = self.seats.get(round_.id, {})
        return [seat for (attempt, _), seat in seats.items() if attempt == round_.attempt]


def is_live(round_: tables.RoundRow) -> bool:
    """Returns whether the round may still change jobs in flight, seats or batches."""
    return round_.state < State.SETTLED or round_.holding


def _columns(table: type[SQLModel], changes: Mapping[str, object]) -> dict[str, object]:
    """The changes for which the table has a column."""
    return {name: value for name, value in changes.items() if name in table.model_fields}


Handler = Callable[[Market, Log, Any], None]
"""Applies one kind of event."""


def announcement_of(run: int, terms: RunTerms, effective_at: int) -> tables.AnnouncementRow:
    """Returns announced terms as a row."""
    columns = {name: value.hex() if isinstance(value, bytes) else value for name, value in term_columns(terms).items()}
    return tables.AnnouncementRow(run=run, effective_at=effective_at, terms=json.dumps(columns))


def announced_terms(announcement: tables.AnnouncementRow) -> dict[str, Any]:
    """Returns the columns of ``RunRow`` that announced terms set."""
    columns: dict[str, Any] = json.loads(announcement.terms)
    return columns | {"rules_hash": bytes.fromhex(columns["rules_hash"])}


def term_columns(terms: RunTerms) -> dict[str, Any]:
    """Returns the terms that ``RunRow`` has columns for."""
    return {each.name: getattr(terms, each.name) for each in fields(terms) if each.name in tables.RunRow.model_fields}
