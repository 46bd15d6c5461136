"""Statements of every owner, held against the contract's balances to the wei."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ledger.facts import Credit
from ledger.queries.lookup import every
from ledger.queries.statement import statement
from ledger.store.database import Database, read_position
from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain

VIEWS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Compared:
    """Owners whose statements were held against the contract, their movements, and how many sums differ."""

    owners: int
    movements: int
    differences: int


def compare(url: str, addresses: Path, where: str) -> Compared:
    """Sums up the movements of every owner in a database, in all and by kind, node, run and day; compares the sums."""
    chain = Chain.connect(url, addresses)
    database = Database(where, Deployment.load(addresses))
    try:
        with database.reading() as connection:
            owners = [credit.owner for credit in every(connection, Credit)]
            reader = chain.pinned(chain.block(read_position(connection).block_number))
            movements = differences = 0
            for start in range(0, len(owners), VIEWS_AT_ONCE):
                part = owners[start : start + VIEWS_AT_ONCE]
                for owner, held in zip(
                    part, reader.views("Credits", "balanceOf", [(one,) for one in part]), strict=True
                ):
                    found = statement(connection, owner)
                    sums = (sum(found.sums(by).values()) for by in ("kind", "node", "run", "day"))
                    movements += len(found.lines)
                    differences += any(total != held for total in (found.closing, *sums))
            return Compared(len(owners), movements, differences)
    finally:
        database.close()
        chain.close()
