"""What the coordinator tells of itself: the live counts, and how it sees each node."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from sqlmodel import Session, col, func, select

from coordinator.api.refusals import missing
from coordinator.driver.candidates import Sightings, candidate_of
from coordinator.driver.selection import Admission, left_out
from coordinator.tables import Ban, Cursor, Earning, Heartbeat, Member, Node, Round, Run, Standing
from protocol.chain.structs import Role, State
from protocol.wire.api import HeartbeatReply, NodeState, NodeStatus, StatusReport

LATE_LEASES = 4
"""Lease lengths without a heartbeat after which a node counts as dead rather than late."""


def status(
    session: Session,
    run_id: int,
    leased: frozenset[int],
    lease_seconds: float,
    admission: Admission | None,
    now: float,
) -> StatusReport:
    """The live counts of a run. Raises ``Refused`` while the mirror has not seen the run."""
    run = session.get(Run, run_id)
    cursor = session.get(Cursor, 1)
    if run is None or cursor is None:
        raise missing(f"run {run_id} was not seen on chain yet")
    live = select(func.count()).where(Round.run == run_id, Round.parent == 0, col(Round.state) < State.SETTLED)
    nodes = list(session.exec(select(Node).order_by(col(Node.id))))
    seen, bound = sightings(session, leased), math.inf if admission is None else admission.neglect_bound
    return StatusReport(
        run=run_id,
        head=cursor.number,
        step=run.step,
        version=run.version,
        rounds_open=session.exec(live).one(),
        rounds_settled=run.rounds_settled,
        rounds_void=run.rounds_void,
        jobs_accepted=run.jobs_accepted,
        jobs_void=run.jobs_void,
        jobs_fraud=run.jobs_fraud,
        escrow_wei=str(run.escrow),
        reserved_wei=str(run.reserved),
        credits_wei={row.owner: str(row.amount) for row in session.exec(select(Earning).where(Earning.run == run_id))},
        slashed_wei=_slashed(nodes),
        nodes=[_node_status(node, seen, lease_seconds, bound, now) for node in nodes],
        waiting=standing.waiting if (standing := session.get(Standing, run_id)) else "",
    )


def sightings(session: Session, leased: frozenset[int]) -> Sightings:
    """Heartbeats and bans as they stand in SQL, with the leases given."""
    heartbeats = {row.node: row for row in session.exec(select(Heartbeat))}
    return Sightings(heartbeats, {row.node: row for row in session.exec(select(Ban))}, leased)


def seen_as(
    session: Session, run_id: int, node_id: int, leased: frozenset[int], admission: Admission | None, now: float
) -> HeartbeatReply:
    """How a node that just gave a heartbeat stands: alive, or why it is not listed."""
    run, node = session.get(Run, run_id), session.get(Node, node_id)
    if run is None or node is None or node.role != Role.WORKER or admission is None:
        return HeartbeatReply(state="alive")
    member = session.get(Member, (run_id, node_id))
    candidate = candidate_of(node, member, run, sightings(session, leased), now)
    reason = left_out(candidate, run.version, admission)
    if reason is None or candidate.free <= 0:
        return HeartbeatReply(state="alive", reasons=[] if reason is None else [reason])
    return HeartbeatReply(state="banned" if candidate.banned else "unlisted", reasons=[reason])


def _slashed(nodes: Iterable[Node]) -> dict[str, str]:
    totals: Counter[str] = Counter()
    for node in nodes:
        totals[node.owner] += node.slashed
    return {owner: str(amount) for owner, amount in totals.items() if amount}


def _node_status(node: Node, seen: Sightings, lease_seconds: float, bound: float, now: float) -> NodeStatus:
    heartbeat = seen.heartbeats.get(node.id)
    silent = None if heartbeat is None else max(0.0, now - heartbeat.heard_at)
    return NodeStatus(
        node=node.id,
        role="worker" if node.role == Role.WORKER else "validator",
        owner=node.owner,
        state=_state(node, seen, silent, lease_seconds, bound),
        version=None if heartbeat is None or heartbeat.version < 0 else heartbeat.version,
        last_seen_seconds=silent,
    )


def _state(node: Node, seen: Sightings, silent: float | None, lease_seconds: float, bound: float) -> NodeState:
    if node.id in seen.bans:
        return "banned"
    if silent is None or silent > LATE_LEASES * lease_seconds:
        return "dead"
    if silent > lease_seconds:
        return "late"
    barred = node.retired_at or node.revoked or node.fraudulent or node.neglect >= bound
    return "unlisted" if barred or node.bond < node.required else "alive"
