"""Whether work was shared out fairly, and how validators served.

A round's jobs are expected to go to the nodes that could take them in proportion to their capacity: those that had
joined its run and were in service when it opened. A node's jobs are compared with that expectation by a z-score, the
variance being that of draws without favour, and Holm's correction says which deviations mean something among so many.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection

from ledger.facts import Node, Seat, Slash
from ledger.facts.columns import Wide
from ledger.fold.rounds import listed_jobs
from ledger.index import stored_logs
from ledger.queries import every
from protocol.chain import events as on_chain
from protocol.chain.events import Log
from protocol.chain.structs import Role

SIGNIFICANCE = 0.01
"""Chance that a network without favour shows any significant node at all."""


@dataclass(frozen=True, slots=True)
class Share:
    """One worker's jobs against its due. ``p`` is two-sided; ``significant`` after correction for all nodes."""

    node: int
    owner: str
    rounds: int
    jobs: int
    expected: float
    z: float
    p: float
    significant: bool


@dataclass(frozen=True, slots=True)
class Service:
    """One validator's record: seats in committees and what it did with them; amounts in wei.

    ``overturned`` counts slashes for a majority that an appeal overturned, ``absent`` those for not voting.
    """

    validator: int
    owner: str
    seats: int
    revealed: int
    abstained: int
    silent: int
    agreed: int
    absent: int
    overturned: int
    paid: Wide


@dataclass(slots=True)
class _Tally:
    """Sums over the rounds in which a node could have worked."""

    rounds: int = 0
    jobs: int = 0
    expected: float = 0.0
    variance: float = 0.0


@dataclass(slots=True)
class _Roster:
    """Who could work when, from events alone."""

    capacity: dict[int, int] = field(default_factory=dict)
    required: dict[int, int] = field(default_factory=dict)
    bond: dict[int, int] = field(default_factory=dict)
    active_at: dict[int, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    members: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def take(self, event: object) -> None:
        """Notes what an event changes."""
        match event:
            case on_chain.NodeRegistered(role=Role.WORKER):
                self.capacity[event.node], self.active_at[event.node] = event.capacity, event.active_at
                self.required[event.node] = self.bond[event.node] = event.bond
            case on_chain.BondToppedUp() | on_chain.NodeSlashed():
                self.bond[event.node] = event.bond
            case on_chain.NodeRetired() | on_chain.KeyRevoked():
                self.gone.add(event.node)
            case on_chain.KeyRotated():
                self.gone.discard(event.node)
            case on_chain.NodeJoined():
                self.members[event.run].add(event.node)
            case on_chain.NodeLeft():
                self.members[event.run].discard(event.node)

    def able(self, run: int, timestamp: int) -> dict[int, int]:
        """Capacity of each node that could be listed for a run."""
        return {
            node: self.capacity[node]
            for node in self.members[run]
            if node in self.capacity
            and node not in self.gone
            and self.active_at[node] <= timestamp
            and self.bond[node] >= self.required[node]
        }


def fairness(connection: Connection) -> tuple[Share, ...]:
    """Every worker's share of the work against its due, in the order of nodes."""
    owners = {node.node: node.owner for node in every(connection, Node)}
    return shares(stored_logs(connection), owners)


def shares(logs: Iterable[Log], owners: dict[int, str]) -> tuple[Share, ...]:
    """The same from events, which must be all from the first on."""
    roster, tallies = _Roster(), dict[int, _Tally]()
    for log in logs:
        roster.take(log.event)
        if isinstance(log.event, on_chain.RoundOpened):
            _count(tallies, roster.able(log.event.run, log.timestamp), listed_jobs(log.event.assignments))
    scores = {node: _score(tally) for node, tally in sorted(tallies.items())}
    chances = {node: math.erfc(abs(z) / math.sqrt(2)) for node, z in scores.items()}
    significant = _holm(chances)
    return tuple(
        Share(
            node=node,
            owner=owners.get(node, ""),
            rounds=tallies[node].rounds,
            jobs=tallies[node].jobs,
            expected=round(tallies[node].expected, 3),
            z=round(z, 3),
            p=float(f"{chances[node]:.3g}"),
            significant=node in significant,
        )
        for node, z in scores.items()
    )


def _count(tallies: dict[int, _Tally], able: dict[int, int], listed: dict[int, int]) -> None:
    """Adds a round: its jobs were to be had by everybody who was able, and by whoever was listed all the same."""
    jobs, whole = sum(listed.values()), sum(able.values())
    for node in able.keys() | listed.keys():
        due = able.get(node, 0) / whole if whole else 0.0
        tally = tallies.setdefault(node, _Tally())
        tally.rounds += 1
        tally.jobs += listed.get(node, 0)
        tally.expected += jobs * due
        tally.variance += jobs * due * (1 - due)


def _score(tally: _Tally) -> float:
    apart = tally.jobs - tally.expected
    if tally.variance > 0:
        return apart / math.sqrt(tally.variance)
    return 0.0 if abs(apart) < 1e-9 else math.copysign(math.inf, apart)


def _holm(chances: dict[int, float]) -> set[int]:
    """The nodes whose deviation is significant among all of them."""
    found: set[int] = set()
    for place, (node, chance) in enumerate(sorted(chances.items(), key=lambda each: each[1])):
        if chance > SIGNIFICANCE / (len(chances) - place):
            break
        found.add(node)
    return found


def services(connection: Connection) -> tuple[Service, ...]:
    """Every validator's record, in the order of nodes."""
    seats, slashes = every(connection, Seat), every(connection, Slash)
    found = []
    for node in every(connection, Node, role="validator"):
        own = [seat for seat in seats if seat.juror == node.node]
        states = [seat.state for seat in own]
        causes = [slash.cause for slash in slashes if slash.node == node.node]
        found.append(
            Service(
                validator=node.node,
                owner=node.owner,
                seats=len(own),
                revealed=states.count("revealed"),
                abstained=states.count("abstained"),
                silent=states.count("drawn") + states.count("committed"),
                agreed=sum(seat.bits for seat in own),
                absent=causes.count("absence"),
                overturned=causes.count("overturned"),
                paid=sum(seat.paid for seat in own),
            )
        )
    return tuple(found)
