"""Time between a node's heartbeats, and how long it waits for work, by how many nodes there are. PURE.

A coordinator of a thousand nodes that beat every five seconds would do little else; one of ten learns sooner who is up.
"""

from __future__ import annotations

LEAST_SECONDS, MOST_SECONDS = 5.0, 30.0
"""Between two heartbeats, and longest wait of one request for work."""

MANY_NODES = 1000
"""Nodes at which the time between heartbeats is longest; below, it grows with their number."""


def heartbeat_seconds(nodes: int) -> float:
    """Returns the time between two heartbeats of each of ``nodes`` nodes, in seconds."""
    return min(MOST_SECONDS, max(LEAST_SECONDS, MOST_SECONDS * nodes / MANY_NODES))


def lease_of(seconds: float, nodes: int) -> float:
    """Returns the seconds that a heartbeat keeps a node eligible, given those among few nodes."""
    return seconds * heartbeat_seconds(nodes) / LEAST_SECONDS


def wait_of(nodes: int) -> float | None:
    """Returns how long a request for work may wait, in seconds; None among few nodes, which choose themselves."""
    seconds = heartbeat_seconds(nodes)
    return seconds if seconds > LEAST_SECONDS else None
