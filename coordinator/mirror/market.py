"""The mirrored market in memory: the rows that later events or decisions need, keyed as the tables are."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from sqlmodel import SQLModel

from coordinator.tables import Admin, Announcement, Earning, Listing, Member, Node, Round, Run, Seat, Submitted
from protocol.chain.events import Log
from protocol.chain.structs import RunTerms
from protocol.wire.rules import Sequential

Identity = tuple[type[SQLModel], tuple[Any, ...]]


def identity(row: SQLModel) -> Identity:
    """The table of a row and its key there: two rows of one identity cannot both be written."""
    return type(row), tuple(getattr(row, name) for name in _keys(type(row)))


@functools.cache
def _keys(table: type[SQLModel]) -> tuple[str, ...]:
    return tuple(table.__table__.primary_key.columns.keys())  # type: ignore[attr-defined]  # SQLModel makes it


@dataclass(slots=True)
class Market:
    """The mirrored rows. ``live`` are the rounds that still hold anything; of others only the round itself is kept.

    ``budgets`` are what rules allow an honest node, by the hash of the rules, as far as they are known. ``settled`` are
    (round, batch) that the contract said are settled, event or no event; it is not in SQL, so a rollback forgets it.
    """

    admin: Admin = field(default_factory=Admin)
    runs: dict[int, Run] = field(default_factory=dict)
    announcements: dict[int, Announcement] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)
    members: dict[tuple[int, int], Member] = field(default_factory=dict)
    earnings: dict[tuple[int, str], Earning] = field(default_factory=dict)
    rounds: dict[int, Round] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)
    listings: dict[int, list[Listing]] = field(default_factory=dict)
    submitted: dict[int, list[Submitted]] = field(default_factory=dict)
    seats: dict[int, dict[tuple[int, int], Seat]] = field(default_factory=dict)
    touched: dict[Identity, SQLModel] = field(default_factory=dict)
    removed: list[Member | Announcement] = field(default_factory=list)
    budgets: dict[bytes, Sequential] = field(default_factory=dict)
    settled: set[tuple[int, int]] = field(default_factory=set)

    def set(self, row: SQLModel, **values: Any) -> None:
        """Changes columns of ``row`` and notes that it must be written."""
        for name, value in values.items():
            setattr(row, name, value)
        self.touch(row)

    def touch(self, row: SQLModel) -> None:
        """Notes that ``row`` must be written."""
        self.touched[identity(row)] = row

    def remove(self, row: Member | Announcement) -> None:
        """Notes that ``row`` must be deleted."""
        self.touched.pop(identity(row), None)
        self.removed.append(row)

    def take_effect(self, now: int) -> bool:
        """Puts announced terms in place of the present ones where their time has come; returns whether any did."""
        due = [each for each in self.announcements.values() if each.effective_at <= now]
        for each in due:
            self.set(self.runs[each.run], **announced_terms(each))
            del self.announcements[each.run]
            self.remove(each)
        return bool(due)

    def take_changes(self) -> tuple[list[SQLModel], list[Member | Announcement]]:
        """Returns the rows to write, in the order they were first touched, and those to delete since the last call."""
        changes = list(self.touched.values()), list(self.removed)
        self.touched.clear()
        self.removed.clear()
        return changes

    def rounds_of(self, run: int) -> Iterator[Round]:
        """The rounds of a run, newest first, trials of appeals aside."""
        return (each for each in reversed(self.rounds.values()) if each.run == run and not each.parent)

    def jurors(self, round_: Round) -> list[Seat]:
        """The seats of the present attempt."""
        seats = self.seats.get(round_.id, {})
        return [seat for (attempt, _), seat in seats.items() if attempt == round_.attempt]


Handler = Callable[[Market, Log, Any], None]
"""What one kind of event makes of the market."""


def announcement_of(run: int, terms: RunTerms, effective_at: int) -> Announcement:
    """Announced terms as a row."""
    columns = {name: value.hex() if isinstance(value, bytes) else value for name, value in term_columns(terms).items()}
    return Announcement(run=run, effective_at=effective_at, terms=json.dumps(columns))


def announced_terms(announcement: Announcement) -> dict[str, Any]:
    """The columns of ``Run`` that announced terms set."""
    columns = json.loads(announcement.terms)
    return columns | {"rules_hash": bytes.fromhex(columns["rules_hash"])}


def term_columns(terms: RunTerms) -> dict[str, Any]:
    """The terms that ``Run`` has columns for."""
    return {each.name: getattr(terms, each.name) for each in fields(terms) if each.name in Run.model_fields}
