"""Who could be given work when, from events alone."""

from __future__ import annotations

import heapq
from collections import defaultdict
from copy import copy
from dataclasses import dataclass, field, fields

from protocol.chain import events as on_chain
from protocol.chain.structs import Role

TELLING = (
    on_chain.NodeRegistered,
    on_chain.BondToppedUp,
    on_chain.NodeSlashed,
    on_chain.NodeRetired,
    on_chain.KeyRevoked,
    on_chain.KeyRotated,
    on_chain.NodeJoined,
    on_chain.NodeLeft,
)
"""All events that have a say in it. Each is about one node."""


@dataclass(slots=True)
class Roster:
    """The workers as the events so far have left them."""

    capacity: dict[int, int] = field(default_factory=dict)
    required: dict[int, int] = field(default_factory=dict)
    bond: dict[int, int] = field(default_factory=dict)
    active_at: dict[int, int] = field(default_factory=dict)
    retired: set[int] = field(default_factory=set)
    """For good: a bond is withdrawn only after that, and a new key brings no node back."""
    revoked: set[int] = field(default_factory=set)
    runs: dict[int, frozenset[int]] = field(default_factory=lambda: defaultdict(frozenset))
    waiting: list[tuple[int, int]] = field(default_factory=list)
    """When a node becomes active, and which: a heap."""

    def copied(self) -> Roster:
        """Another that goes on from here."""
        return Roster(**{each.name: copy(getattr(self, each.name)) for each in fields(self)})

    def take(self, event: object) -> None:
        """Notes what an event changes."""
        match event:
            case on_chain.NodeRegistered(role=Role.WORKER):
                self.capacity[event.node], self.active_at[event.node] = event.capacity, event.active_at
                self.required[event.node] = self.bond[event.node] = event.bond
                heapq.heappush(self.waiting, (event.active_at, event.node))
            case on_chain.BondToppedUp() | on_chain.NodeSlashed():
                self.bond[event.node] = event.bond
            case on_chain.NodeRetired():
                self.retired.add(event.node)
            case on_chain.KeyRevoked():
                self.revoked.add(event.node)
            case on_chain.KeyRotated():
                self.revoked.discard(event.node)
            case on_chain.NodeJoined():
                self.runs[event.node] |= {event.run}
            case on_chain.NodeLeft():
                self.runs[event.node] -= {event.run}

    def activated(self, timestamp: int) -> set[int]:
        """The nodes that have become active since this was last asked."""
        nodes = set()
        while self.waiting and self.waiting[0][0] <= timestamp:
            nodes.add(heapq.heappop(self.waiting)[1])
        return nodes

    def open_to(self, node: int, timestamp: int) -> frozenset[int]:
        """The runs that could list a node."""
        serves = (
            node in self.capacity
            and node not in self.retired
            and node not in self.revoked
            and self.active_at[node] <= timestamp
            and self.bond[node] >= self.required[node]
        )
        return self.runs[node] if serves else frozenset()
