"""Facts about nodes that are not on chain, as decisions on listing need them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlmodel import Session, select

from coordinator.driver.control import bans
from coordinator.tables import BanRow, HeartbeatRow, OfferRow, WorkPhaseRow
from protocol.wire.api import Offer


@dataclass(frozen=True, slots=True)
class OffChain:
    """Last heartbeats by node, the nodes that hold a lease, bans in force and offers by node.

    ``work_seconds`` is the length of the run's work phases, 0 while unknown.
    """

    heartbeats: Mapping[int, HeartbeatRow]
    leased: Collection[int]
    bans: Mapping[int, BanRow] = field(default_factory=dict)
    offers: Mapping[int, Offer] = field(default_factory=dict)
    work_seconds: int = 0


def off_chain(session: Session, run: int, leased: Collection[int], now: float) -> OffChain:
    """Reads the facts about the nodes in a run at ``now`` (unix seconds)."""
    phase = session.get(WorkPhaseRow, run)
    return OffChain(
        {row.node: row for row in session.exec(select(HeartbeatRow))},
        leased,
        bans(session, run, now),
        {row.node: Offer.model_validate_json(row.offer) for row in session.exec(select(OfferRow))},
        0 if phase is None else phase.seconds,
    )
