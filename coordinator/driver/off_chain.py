"""Facts about nodes that are not on chain, as decisions on listing need them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlmodel import Session, select

from coordinator.driver.control import bans
from coordinator.tables import BanRow, HeartbeatRow


@dataclass(frozen=True, slots=True)
class OffChain:
    """Last heartbeats by node, the nodes that hold a lease, and bans in force by node."""

    heartbeats: Mapping[int, HeartbeatRow]
    leased: Collection[int]
    bans: Mapping[int, BanRow] = field(default_factory=dict)


def off_chain(session: Session, run: int, leased: Collection[int], now: float, node: int | None = None) -> OffChain:
    """Reads the facts about the nodes in a run at ``now`` (unix seconds); of heartbeats, one node's alone if given."""
    rows = select(HeartbeatRow) if node is None else select(HeartbeatRow).where(HeartbeatRow.node == node)
    return OffChain({row.node: row for row in session.exec(rows)}, leased, bans(session, run, now))
