"""Statements: every movement of an owner's credits in a time, with sums, kept against the total.

    opening balance + the lines' amounts = closing balance

The sum of all of the owner's movements up to the head is compared with the balance that the fold has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from sqlalchemy import Connection, select

from ledger.facts import Credit, CreditEntry, Round
from ledger.facts.fact import Hex, Wide
from ledger.store.index import EVENT
from ledger.store.rows import find_fact
from ledger.store.tables import TABLES
from protocol.errors import Rejected

SIGN = {"bought": 1, "unlocked": 1, "worked": 1, "judged": 1, "granted": 1, "redeemed": -1, "locked": -1}
"""Kind of movement to its sign."""
Grouping = Literal["kind", "node", "run", "day"]


@dataclass(frozen=True, slots=True)
class Movement:
    """One movement; ``amount`` is negative where credits went, ``balance`` what was there after it, both in wei.

    ``price`` is that of a unit for work, the juror fee for judging, 0 otherwise; ``units`` are those paid for.
    """

    time: int
    block_number: int
    log_index: int
    tx_hash: Hex
    kind: str
    run: int
    round: int
    node: int
    units: Wide
    price: Wide
    amount: Wide
    balance: Wide

    @property
    def day(self) -> str:
        """Its date in UTC."""
        return datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%d")


@dataclass(frozen=True, slots=True)
class AccountStatement:
    """An owner's movements from one time to another, of one node or of all; ``closing`` counts those shown alone."""

    owner: str
    opening: Wide
    closing: Wide
    lines: tuple[Movement, ...]

    def sums(self, by: Grouping) -> dict[str, int]:
        """Returns the sum of the amounts by kind, node, run or day, in the order of first appearance."""
        found = Counter[str]()
        for line in self.lines:
            found[str(getattr(line, by))] += line.amount
        return dict(found)


def statement(
    connection: Connection, owner: str, since: int = 0, until: int = 2**63 - 1, node: int = 0
) -> AccountStatement:
    """Returns the movements of ``owner`` in ``since`` <= time < ``until`` (unix seconds), of one node if not 0.

    Raises:
        Rejected: the owner never had credits, or its movements do not sum up to its balance.
    """
    credit = find_fact(connection, Credit, owner)
    if credit is None:
        raise Rejected(f"{owner} has never had credits")
    lines = tuple(_lines(connection, owner))
    balance = lines[-1].balance if lines else 0
    if balance != credit.balance:
        raise Rejected(f"the movements of {owner} sum up to {balance} wei, its balance is {credit.balance} wei")
    before = [line for line in lines if line.time < since]
    opening = before[-1].balance if before else 0
    shown = tuple(line for line in lines if since <= line.time < until and node in (0, line.node))
    return AccountStatement(owner, opening, opening + sum(line.amount for line in shown), shown)


def _lines(connection: Connection, owner: str) -> Iterator[Movement]:
    columns, rounds = TABLES[CreditEntry].c, dict[int, Round | None]()
    wanted = (
        select(*columns, EVENT.c.timestamp)
        .join(EVENT, (EVENT.c.block_number == columns.block_number) & (EVENT.c.log_index == columns.log_index))
        .where(columns.owner == owner)
        .order_by(columns.block_number, columns.log_index)
    )
    balance = 0
    for row in connection.execute(wanted):
        if row.round not in rounds:
            rounds[row.round] = find_fact(connection, Round, row.round) if row.round else None
        price = _price(row.kind, rounds[row.round])
        amount = SIGN[row.kind] * row.amount
        balance += amount
        units = row.amount // price if row.kind == "worked" and price else 0
        place = (row.timestamp, row.block_number, row.log_index, row.tx_hash)
        yield Movement(*place, row.kind, row.run, row.round, row.node, units, price, amount, balance)


def _price(kind: str, round_: Round | None) -> int:
    if round_ is None:
        return 0
    return round_.price_per_unit if kind == "worked" else round_.juror_fee if kind == "judged" else 0
