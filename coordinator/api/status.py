"""Status of a run and its nodes: live counts, each node's state, and replies to heartbeats."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sqlmodel import Session, and_, bindparam, col, func, select

from coordinator import tables
from coordinator.api.refusals import missing
from coordinator.driver.candidates import candidate_of
from coordinator.driver.control import hold_sentence, in_force
from coordinator.driver.off_chain import OffChain, off_chain
from coordinator.driver.selection import AT_CAPACITY, ListingLimits, exclusion_reason
from protocol.chain.structs import Role, State
from protocol.wire.api import HeartbeatReply, NodeState, NodeStatus, Offer, StatusReport

LATE_LEASES = 4
"""Lease lengths without a heartbeat after which a late node is shown as dead."""

_RUN = (
    select(tables.RunRow, tables.HoldRow, tables.WorkPhaseRow)
    .outerjoin(tables.HoldRow, col(tables.HoldRow.run) == tables.RunRow.id)
    .outerjoin(tables.WorkPhaseRow, col(tables.WorkPhaseRow.run) == tables.RunRow.id)
    .where(tables.RunRow.id == bindparam("run"))
)
_NODE = (
    select(tables.NodeRow, tables.MemberRow, tables.BanRow)
    .outerjoin(
        tables.MemberRow,
        and_(col(tables.MemberRow.node) == tables.NodeRow.id, col(tables.MemberRow.run) == bindparam("run")),
    )
    .outerjoin(
        tables.BanRow, and_(col(tables.BanRow.node) == tables.NodeRow.id, col(tables.BanRow.run) == bindparam("run"))
    )
    .where(tables.NodeRow.id == bindparam("node"))
)


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


class RunNow(NamedTuple):
    """A run, the operator's hold on it, and the length of its work phases, as far as they are known."""

    run: tables.RunRow
    hold: tables.HoldRow | None
    phase: tables.WorkPhaseRow | None


def run_now(session: Session, run: int) -> RunNow | None:
    """Returns a run as replies to heartbeats need it; None while the mirror has not read it."""
    found = session.exec(_RUN, params={"run": run}).first()
    return None if found is None else RunNow(*found)


def heartbeat_reply(
    session: Session,
    of_run: RunNow | None,
    heartbeat: tables.HeartbeatRow,
    offer: Offer | None,
    limits_of: Callable[[Session, tables.RunRow], ListingLimits | None],
) -> HeartbeatReply:
    """Returns the state of the node that sent ``heartbeat``, which need not be stored yet; says why it is not listed.

    It reads of this node alone, and in one statement: every node asks several times a minute.
    """
    if of_run is None or (limits := limits_of(session, of_run[0])) is None:
        return HeartbeatReply(state="alive")
    (run, held, phase), now = of_run, heartbeat.heard_at
    of_node = session.exec(_NODE, params={"run": run.id, "node": heartbeat.node}).first()
    if of_node is None or of_node[0].role != Role.WORKER:
        return HeartbeatReply(state="alive")
    node, member, banned = of_node
    seen = OffChain(
        {node.id: heartbeat},
        (node.id,),
        {} if banned is None or not in_force(banned, now) else {node.id: banned},
        {} if offer is None else {node.id: offer},
        0 if phase is None else phase.seconds,
    )
    reason = exclusion_reason(candidate_of(node, member, run, seen, limits.needs, now), run.version, limits)
    listable = reason in (None, AT_CAPACITY)
    reasons = [each for each in (reason, hold_sentence(held)) if each]
    return HeartbeatReply(state="alive" if listable else "unlisted", reasons=reasons)


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
