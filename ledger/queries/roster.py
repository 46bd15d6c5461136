"""Roster: nodes that could be listed at a given time, from events alone."""

from __future__ import annotations

import heapq
from collections import defaultdict
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any

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
"""All events that have a say in who serves. Each is about one node."""

ANNOUNCING = (on_chain.RunOpened, on_chain.TermsAnnounced)
"""All events that give a run rules. They take effect in time, see ``Roster.renewed``."""


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
    joined: dict[int, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """By node: the runs that it has joined, at which rules. Of a change another is made, as copies share them."""
    waiting: list[tuple[int, int]] = field(default_factory=list)
    """Heap of (time a node becomes active, node)."""
    rules: dict[int, bytes] = field(default_factory=dict)
    """Rules in effect, by run; a node is listed only if it joined at these."""
    announced: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """By run: what is to replace them, and when."""
    due: list[tuple[int, int]] = field(default_factory=list)
    """Heap of (time announced rules take effect, run); replaced announcements stay in it."""

    def copied(self) -> Roster:
        """Another that goes on from here."""
        return Roster(**{each.name: copy(getattr(self, each.name)) for each in fields(self)})

    def to_json(self) -> dict[str, Any]:
        """Returns all of it as JSON, without objects: their names are text."""
        return {
            "numbers": [list(each.items()) for each in (self.capacity, self.required, self.bond, self.active_at)],
            "retired": sorted(self.retired),
            "revoked": sorted(self.revoked),
            "joined": [[node, _hexed(runs)] for node, runs in self.joined.items()],
            "waiting": self.waiting,
            "rules": _hexed(self.rules),
            "announced": [[run, at, rules.hex()] for run, (at, rules) in self.announced.items()],
            "due": self.due,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Roster:
        """Reads what ``to_json`` wrote."""
        capacity, required, bond, active_at = map(dict, data["numbers"])
        return cls(
            capacity,
            required,
            bond,
            active_at,
            retired=set(data["retired"]),
            revoked=set(data["revoked"]),
            joined=defaultdict(dict, {node: _unhexed(runs) for node, runs in data["joined"]}),
            waiting=[(at, node) for at, node in data["waiting"]],
            rules=_unhexed(data["rules"]),
            announced={run: (at, bytes.fromhex(rules)) for run, at, rules in data["announced"]},
            due=[(at, run) for at, run in data["due"]],
        )

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
                self.joined[event.node] = self.joined[event.node] | {event.run: event.rules_hash}
            case on_chain.NodeLeft():
                left = self.joined[event.node]
                self.joined[event.node] = {run: rules for run, rules in left.items() if run != event.run}
            case on_chain.RunOpened():
                self.rules[event.run] = event.terms.rules_hash
            case on_chain.TermsAnnounced():
                self.announced[event.run] = event.effective_at, event.terms.rules_hash
                heapq.heappush(self.due, (event.effective_at, event.run))

    def activated(self, timestamp: int) -> set[int]:
        """The nodes that have become active since this was last asked."""
        nodes = set()
        while self.waiting and self.waiting[0][0] <= timestamp:
            nodes.add(heapq.heappop(self.waiting)[1])
        return nodes

    def renewed(self, timestamp: int) -> set[int]:
        """The runs that have come to other rules since this was last asked, which must be before every event."""
        runs = set()
        while self.due and self.due[0][0] <= timestamp:
            effective_at, run = heapq.heappop(self.due)
            if run in self.announced and self.announced[run][0] == effective_at:
                self.rules[run] = self.announced.pop(run)[1]
                runs.add(run)
        return runs

    def open_to(self, node: int, timestamp: int) -> frozenset[int]:
        """The runs that could list a node: where it has joined at the rules that are in effect."""
        serves = (
            node in self.capacity
            and node not in self.retired
            and node not in self.revoked
            and self.active_at[node] <= timestamp
            and self.bond[node] >= self.required[node]
        )
        joined = self.joined[node].items() if serves else ()
        return frozenset(run for run, rules in joined if self.rules.get(run) == rules)


def _hexed(words: dict[int, bytes]) -> list[list[Any]]:
    return [[number, word.hex()] for number, word in words.items()]


def _unhexed(words: list[list[Any]]) -> dict[int, bytes]:
    return {number: bytes.fromhex(word) for number, word in words}
