"""Workers as candidates for a round, from their rows. PURE."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.driver.control import ban_sentence
from coordinator.driver.matching import JobNeeds, mismatch, most_jobs
from coordinator.driver.off_chain import OffChain
from coordinator.driver.selection import Candidate
from coordinator.tables import MemberRow, NodeRow, RunRow
from protocol.chain.structs import Role


def candidate_of(
    node: NodeRow, member: MemberRow | None, run: RunRow, seen: OffChain, needs: JobNeeds, now: float
) -> Candidate:
    """Returns one worker as a candidate for the next round of ``run`` at ``now`` (unix seconds)."""
    heartbeat, banned, offer = seen.heartbeats.get(node.id), seen.bans.get(node.id), seen.offers.get(node.id)
    return Candidate(
        node=node.id,
        capacity=node.capacity,
        free=node.capacity - node.in_flight,
        given=node.given,
        version=heartbeat.version if heartbeat else -1,
        bonded=not node.retired_at and node.active_at <= now and node.bond >= node.required and not node.revoked,
        joined=member is not None and member.rules_hash == run.rules_hash,
        leased=node.id in seen.leased,
        neglect=node.neglect,
        fraudulent=node.fraudulent,
        ban="" if banned is None else ban_sentence(banned),
        mismatch=mismatch(offer, needs, run.price_per_unit, seen.work_seconds),
        most_jobs=most_jobs(offer, needs, seen.work_seconds),
    )


def candidates(
    nodes: Mapping[int, NodeRow],
    members: Mapping[tuple[int, int], MemberRow],
    run: RunRow,
    seen: OffChain,
    needs: JobNeeds,
    now: float,
) -> tuple[Candidate, ...]:
    """Returns all workers as candidates, ascending by node."""
    return tuple(
        candidate_of(node, members.get((run.id, node.id)), run, seen, needs, now)
        for _, node in sorted(nodes.items())
        if node.role == Role.WORKER
    )
