"""Status of a run and its nodes: live counts, each node's state, and replies to heartbeats."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from sqlmodel import Session, col, func, select

from coordinator import tables
from coordinator.api.refusals import missing
from coordinator.driver.candidates import candidate_of
from coordinator.driver.control import hold_sentence
from coordinator.driver.off_chain import OffChain, off_chain
from coordinator.driver.selection import AT_CAPACITY, ListingLimits, exclusion_reason
from protocol.chain.structs import Role, State
from protocol.wire.api import HeartbeatReply, NodeState, NodeStatus, StatusReport

LATE_LEASES = 4
"""Lease lengths without a heartbeat after which a late node is shown as dead."""


def status(
    session: Session,
    run_id: int,
    leased: frozenset[int],
    lease_seconds: float,
    limits: ListingLimits | None,
    now: float,
    details: bool = False,
) -> StatusReport:
    """Returns the live counts of a run. Raises ``Refused`` while the mirror has not read the run.

    With ``details``, nodes have their offers and the reasons why they are not listed. Earlier clients refuse those.
    """
    run = session.get(tables.RunRow, run_id)
    cursor = session.get(tables.CursorRow, 1)
    if run is None or cursor is None:
        raise missing(f"run {run_id} is not in the blocks that this coordinator has read yet")
    live = select(func.count()).where(
        tables.RoundRow.run == run_id, tables.RoundRow.parent == 0, col(tables.RoundRow.state) < State.SETTLED
    )
    nodes = list(session.exec(select(tables.NodeRow).order_by(col(tables.NodeRow.id))))
    seen, bound = off_chain(session, run_id, leased, now), math.inf if limits is None else limits.neglect_bound
    shown, members = limits if details else None, dict[int, tables.MemberRow]()
    if details:  # one question for all: anybody may ask
        joined = session.exec(select(tables.MemberRow).where(tables.MemberRow.run == run_id))
        members = {row.node: row for row in joined}
    return StatusReport(
        run=run_id,
        head=cursor.number,
        rounds_open=session.exec(live).one(),
        **{name: value for name, value in run if name in StatusReport.model_fields},
        escrow_wei=str(run.escrow),
        reserved_wei=str(run.reserved),
        credits_wei={
            row.owner: str(row.amount)
            for row in session.exec(select(tables.EarningRow).where(tables.EarningRow.run == run_id))
        },
        slashed_wei=_slashed(nodes),
        nodes=[
            _node_status(
                node, seen, lease_seconds, bound, now, _details(node, members.get(node.id), run, seen, shown, now)
            )
            for node in nodes
        ],
        waiting=opening.waiting if (opening := session.get(tables.OpeningStatusRow, run_id)) else "",
    )


def heartbeat_reply(
    session: Session, run_id: int, node_id: int, limits: ListingLimits | None, now: float
) -> HeartbeatReply:
    """Returns the state of a node that just sent a heartbeat, with the reason if it is not listed.

    It reads of this node alone: every node asks several times a minute.
    """
    run, node = session.get(tables.RunRow, run_id), session.get(tables.NodeRow, node_id)
    if run is None or node is None or node.role != Role.WORKER or limits is None:
        return HeartbeatReply(state="alive")
    member = session.get(tables.MemberRow, (run_id, node_id))
    candidate = candidate_of(node, member, run, off_chain(session, run_id, (node_id,), now, node_id), limits.needs, now)
    reason, held = exclusion_reason(candidate, run.version, limits), hold_sentence(session.get(tables.HoldRow, run_id))
    listable = reason in (None, AT_CAPACITY)
    return HeartbeatReply(state="alive" if listable else "unlisted", reasons=[each for each in (reason, held) if each])


def _slashed(nodes: Iterable[tables.NodeRow]) -> dict[str, str]:
    totals: Counter[str] = Counter()
    for node in nodes:
        totals[node.owner] += node.slashed
    return {owner: str(amount) for owner, amount in totals.items() if amount}


def _details(
    node: tables.NodeRow,
    member: tables.MemberRow | None,
    run: tables.RunRow,
    seen: OffChain,
    limits: ListingLimits | None,
    now: float,
) -> dict[str, Any]:
    if node.role != Role.WORKER or limits is None:
        return {}
    reason = exclusion_reason(candidate_of(node, member, run, seen, limits.needs, now), run.version, limits)
    return {"reason": reason or "", "offer": seen.offers.get(node.id)}


def _node_status(
    node: tables.NodeRow, seen: OffChain, lease_seconds: float, bound: float, now: float, details: dict[str, Any]
) -> NodeStatus:
    heartbeat = seen.heartbeats.get(node.id)
    silent = None if heartbeat is None else max(0.0, now - heartbeat.heard_at)
    return NodeStatus(
        node=node.id,
        role="worker" if node.role == Role.WORKER else "validator",
        owner=node.owner,
        state=_state(node, heartbeat, silent, lease_seconds, bound, node.id in seen.bans),
        version=None if heartbeat is None or heartbeat.version < 0 else heartbeat.version,
        last_seen_seconds=silent,
        **details,
    )


def _state(
    node: tables.NodeRow,
    heartbeat: tables.HeartbeatRow | None,
    silent: float | None,
    lease_seconds: float,
    bound: float,
    banned: bool,
) -> NodeState:
    if heartbeat is None or silent is None or silent > LATE_LEASES * lease_seconds:
        return "dead"
    if silent > lease_seconds:
        return "late"
    excluded = not heartbeat.available or node.retired_at or node.revoked or node.fraudulent or node.neglect >= bound
    return "unlisted" if banned or excluded or node.bond < node.required else "alive"
