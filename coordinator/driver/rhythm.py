"""Time between a node's heartbeats, and how long it waits for work, by how many nodes there are. PURE.

A coordinator of a thousand nodes that beat every five seconds would do little else; one of ten learns sooner who is up.
"""

from __future__ import annotations

LEAST_SECONDS, MOST_SECONDS = 5.0, 30.0
"""Between two heartbeats, and longest wait of one request for work."""

SPREAD = 0.2
"""Share of a time by which the times told to nodes differ: nodes once held up together would come together for good."""

MANY_NODES = 1000
"""Nodes at which the time between heartbeats is longest; below, it grows with their number."""


def heartbeat_seconds(nodes: int) -> float:
    """Returns the time between two heartbeats of each of ``nodes`` nodes, in seconds."""
    return min(MOST_SECONDS, max(LEAST_SECONDS, MOST_SECONDS * nodes / MANY_NODES))


def next_heartbeat(nodes: int, lot: float) -> float:
    """Returns the seconds until one node's next heartbeat, by a ``lot`` from 0 to 1; on average the time above."""
    return heartbeat_seconds(nodes) * (1 + SPREAD * (lot - 0.5))


def lease_of(seconds: float, nodes: int) -> float:
    """Returns the seconds that a heartbeat keeps a node eligible, given those among few nodes."""
    return seconds * heartbeat_seconds(nodes) / LEAST_SECONDS


def wait_of(nodes: int, lot: float) -> float | None:
    """Returns how long a node's requests for work may wait, in seconds, by a ``lot`` from 0 to 1.

    None among few nodes, which choose themselves.
    """
    seconds = heartbeat_seconds(nodes)
    return seconds * (1 - SPREAD * lot) if seconds > LEAST_SECONDS else None
