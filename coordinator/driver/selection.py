"""Selection of nodes for a round, and division of its jobs among them. PURE."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.wire.assignments import Listing


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker that may be listed.

    Args:
        node: its number.
        capacity: most jobs in flight.
        free: capacity less the jobs in flight.
        given: jobs listed in its life.
        version: the checkpoint it has loaded; -1 for none.
        bonded: in service, active and holding its bond.
        joined: a member of the run at its present rules.
        leased: sent a heartbeat lately.
        neglect: evidence of too many void and missing jobs, in nats.
        fraudulent: fraudulent jobs in its life.
    """

    node: int
    capacity: int
    free: int
    given: int
    version: int
    bonded: bool
    joined: bool
    leased: bool
    neglect: float
    fraudulent: int


@dataclass(frozen=True, slots=True)
class ListingLimits:
    """Versions that a listed node may be behind, and the evidence of neglect that excludes a node."""

    version_lag: int
    neglect_bound: float


def exclusion_reason(candidate: Candidate, newest: int, limits: ListingLimits) -> str | None:
    """Returns the reason for which the node is not listed at the ``newest`` checkpoint, or None if it may be."""
    if candidate.fraudulent:
        return f"{candidate.fraudulent} of its jobs were found fraudulent"
    if not candidate.joined:
        return "has not joined the run at its present rules"
    if not candidate.bonded:
        return "is not in service, not active yet, or under-bonded"
    if not candidate.leased:
        return "no heartbeat"
    if candidate.version < 0:
        return "has no weights loaded yet"
    if newest - candidate.version > limits.version_lag:
        return f"has loaded version {candidate.version}, the newest is {newest}"
    if candidate.neglect >= limits.neglect_bound:
        return (
            "more of its jobs were void or never handed in than the run's rules allow an honest node: "
            f"evidence {candidate.neglect:.1f}, the bound is {limits.neglect_bound:.1f}"
        )
    if candidate.free <= 0:
        return "is at capacity"
    return None


def divide(jobs: int, candidates: Sequence[Candidate]) -> tuple[Listing, ...]:
    """Divides up to ``jobs`` jobs by capacity (highest averages), within each node's free capacity.

    Each job goes to the node whose jobs, including this one, are the smallest share of its capacity; ties go to the
    node with the fewest jobs in its life by capacity, then to the lowest number. Nodes without a job are not listed.

    Returns:
        The listings, ascending by node.
    """
    counts = {candidate.node: 0 for candidate in candidates}
    queue = [_turn(candidate, 0) for candidate in candidates if candidate.free > 0]
    heapq.heapify(queue)
    by_node = {candidate.node: candidate for candidate in candidates}
    for _ in range(jobs):
        if not queue:
            break
        node = heapq.heappop(queue)[-1]
        counts[node] += 1
        if counts[node] < by_node[node].free:
            heapq.heappush(queue, _turn(by_node[node], counts[node]))
    return tuple(Listing(node, count) for node, count in sorted(counts.items()) if count)


def _turn(candidate: Candidate, count: int) -> tuple[float, float, int]:
    return ((count + 1) / candidate.capacity, candidate.given / candidate.capacity, candidate.node)
