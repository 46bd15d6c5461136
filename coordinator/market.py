"""The mirrored market in memory: the rows that later events or decisions need, keyed as the tables are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlmodel import SQLModel

from coordinator.tables import Earning, Listing, Member, Node, Round, Run, Seat, Submitted


@dataclass(slots=True)
class Market:
    """The mirrored rows. ``live`` are the rounds that still hold anything; of others only the round itself is kept."""

    runs: dict[int, Run] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)
    members: dict[tuple[int, int], Member] = field(default_factory=dict)
    earnings: dict[tuple[int, str], Earning] = field(default_factory=dict)
    rounds: dict[int, Round] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)
    listings: dict[int, list[Listing]] = field(default_factory=dict)
    submitted: dict[int, list[Submitted]] = field(default_factory=dict)
    seats: dict[int, dict[tuple[int, int], Seat]] = field(default_factory=dict)
    touched: dict[int, SQLModel] = field(default_factory=dict)
    removed: list[Member] = field(default_factory=list)

    def set(self, row: SQLModel, **values: Any) -> None:
        """Changes columns of ``row`` and notes that it must be written."""
        for name, value in values.items():
            setattr(row, name, value)
        self.touch(row)

    def touch(self, row: SQLModel) -> None:
        """Notes that ``row`` must be written."""
        self.touched[id(row)] = row

    def take_changes(self) -> tuple[list[SQLModel], list[Member]]:
        """Returns the rows to write, in the order they were first touched, and those to delete since the last call."""
        changes = list(self.touched.values()), list(self.removed)
        self.touched.clear()
        self.removed.clear()
        return changes

    def rounds_of(self, run: int) -> Iterator[Round]:
        """The rounds of a run, newest first."""
        return (each for each in reversed(self.rounds.values()) if each.run == run)

    def jurors(self, round_: Round) -> list[Seat]:
        """The seats of the present attempt."""
        seats = self.seats.get(round_.id, {})
        return [seat for (attempt, _), seat in seats.items() if attempt == round_.attempt]
