"""Selection of nodes for a round, and division of its jobs among them. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from coordinator.driver.matching import JobNeeds
from protocol.wire.assignments import Listing
from protocol.wire.rules import Rules

GOLDEN = 0x9E3779B97F4A7C15
"""The golden ratio's fraction in units of 2**-64: its multiples are spread evenly, however many are taken."""


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
        ban: reason and end of the operator's ban; empty without one.
        mismatch: reason for which its offer does not match the run; empty if it does.
        most_jobs: jobs that it can make in a work phase by its own measurement; None if that is unknown.
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
    ban: str = ""
    mismatch: str = ""
    most_jobs: int | None = None


@dataclass(frozen=True, slots=True)
class ListingLimits:
    """Versions that a listed node may be behind, the evidence of neglect that excludes one, and needs of the jobs."""

    version_lag: int
    neglect_bound: float
    needs: JobNeeds = field(default_factory=JobNeeds)

    @classmethod
    def of(cls, rules: Rules, version_lag: int) -> ListingLimits:
        """Returns the limits under a run's rules."""
        return cls(version_lag, rules.sequential.neglect_bound, JobNeeds.of(rules))


def exclusion_reason(candidate: Candidate, newest: int, limits: ListingLimits) -> str | None:
    """Returns the reason for which the node is not listed at the ``newest`` checkpoint, or None if it may be."""
    if candidate.ban:
        return candidate.ban
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
    if candidate.mismatch:
        return candidate.mismatch
    if candidate.neglect >= limits.neglect_bound:
        return (
            "more of its jobs were void or never handed in than the run's rules allow an honest node: "
            f"evidence {candidate.neglect:.1f}, the bound is {limits.neglect_bound:.1f}"
        )
    if candidate.free <= 0:
        return "is at capacity"
    return None


def bounded_by_speed(candidate: Candidate, owed: int) -> Candidate:
    """Returns the candidate with no more free capacity than the jobs that it can make beside those it owes."""
    if candidate.most_jobs is None:
        return candidate
    return replace(candidate, free=min(candidate.free, max(0, candidate.most_jobs - owed)))


def divide(jobs: int, candidates: Sequence[Candidate], turn: int) -> tuple[Listing, ...]:
    """Divides up to ``jobs`` jobs by capacity, within each node's free capacity.

    A node's quota is a fraction; it gets the whole jobs below or above it, over the turns as many as its quotas add up
    to, so that the smallest node has its turns (systematic sampling, with a start that moves by the golden ratio). A
    node that has never had a job gets its first at once, one such node a turn.

    Args:
        jobs: jobs of the round.
        candidates: nodes that may be listed, in any order.
        turn: counts the run's rounds.

    Returns:
        The listings, ascending by node. Nodes without a job are not listed.
    """
    able = sorted((each for each in candidates if each.free > 0), key=lambda each: each.node)
    counts: dict[int, int] = {}
    left = min(jobs, sum(each.free for each in able))
    while full := [each for each in able if each.free * sum(one.capacity for one in able) < left * each.capacity]:
        counts |= {each.node: each.free for each in full}
        left -= sum(each.free for each in full)
        able = [each for each in able if each.node not in counts]
    counts |= _sampled(left, able, turn)
    _welcome(counts, candidates, turn)
    return tuple(Listing(node, count) for node, count in sorted(counts.items()) if count)


def _sampled(jobs: int, able: Sequence[Candidate], turn: int) -> dict[int, int]:
    """Returns counts that add up to ``jobs``, each within one of its quota."""
    total = sum(each.capacity for each in able)
    if not total:
        return {}
    start = turn * GOLDEN % (1 << 64) * total >> 64
    ends = [start + jobs * capacity for capacity in accumulate(each.capacity for each in able)]
    begins = [start, *ends[:-1]]
    return {each.node: end // total - begin // total for each, begin, end in zip(able, begins, ends, strict=True)}


def _welcome(counts: dict[int, int], candidates: Sequence[Candidate], turn: int) -> None:
    """Gives one newcomer without a job its first, from the node with most jobs."""
    new = sorted(each.node for each in candidates if each.free > 0 and not each.given and not counts.get(each.node))
    most = max(counts, key=lambda node: (counts[node], -node), default=None)
    if new and most is not None and counts[most] > 1:
        counts[most] -= 1
        counts[new[turn % len(new)]] = 1
