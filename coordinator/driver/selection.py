"""Which nodes are listed for a round, and with how many jobs. PURE."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.wire.assignments import Listing


@dataclass(frozen=True, slots=True)
class Candidate:
    """What decides whether a worker is listed.

    ``free`` jobs it may still take (capacity less what is in flight); ``given`` jobs listed in its life; ``version``
    the checkpoint it has loaded, -1 for none; ``bonded`` in service, active and holding its bond; ``leased`` heard
    from lately; ``neglect`` the evidence, in nats, of too many void and missing jobs; ``fraudulent`` jobs in its life.
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
    """Thresholds: versions a node may be behind, and the evidence of neglect at which it is left out."""

    version_lag: int
    neglect_bound: float


def exclusion_reason(candidate: Candidate, newest: int, limits: ListingLimits) -> str | None:
    """Returns why the node is not listed while ``newest`` is the newest checkpoint, or None where it may be."""
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


def share(jobs: int, candidates: Sequence[Candidate]) -> tuple[Listing, ...]:
    """Divides up to ``jobs`` jobs by capacity (highest averages), none above what it has free.

    Each job goes to the node with the least jobs, this one counted, for its capacity; among equals to the one that has
    been given the least over its life, then to the lowest id. Nodes without a job are not listed; ascending by node.
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
