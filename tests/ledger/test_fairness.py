"""Shares of the work, against counting every node in every round."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.fairness import Count
from ledger.fold.rounds import listed_jobs
from protocol.chain import events as on_chain
from protocol.chain.events import Event, Log
from protocol.chain.structs import Role
from protocol.wire.assignments import Listing, pack_assignments

NODES, RUNS = range(1, 6), (1, 2)
BOND = 10


def event(kind: type[Event], **told: Any) -> Event:
    """An event that says this, and nothing else of weight."""
    return kind(**dict.fromkeys(kind.__slots__, 0) | told)


def registered(node: int, capacity: int, active_at: int) -> Event:
    return event(
        on_chain.NodeRegistered, node=node, role=Role.WORKER, capacity=capacity, active_at=active_at, bond=BOND
    )


nodes, runs = st.sampled_from(NODES), st.sampled_from(RUNS)
bonds = st.sampled_from((BOND - 1, BOND, BOND + 1))
listings = st.lists(st.builds(Listing, nodes, st.integers(1, 9)), min_size=1, max_size=4).map(pack_assignments)
happenings = st.one_of(
    st.builds(lambda run, listed: event(on_chain.RoundOpened, run=run, assignments=listed), runs, listings),
    st.builds(lambda run, node: event(on_chain.NodeJoined, run=run, node=node), runs, nodes),
    st.builds(lambda run, node: event(on_chain.NodeLeft, run=run, node=node), runs, nodes),
    st.builds(lambda node, bond: event(on_chain.NodeSlashed, node=node, bond=bond), nodes, bonds),
    st.builds(lambda node, bond: event(on_chain.BondToppedUp, node=node, bond=bond), nodes, bonds),
    st.builds(lambda node: event(on_chain.KeyRevoked, node=node), nodes),
    st.builds(lambda node: event(on_chain.KeyRotated, node=node), nodes),
    st.builds(lambda node: event(on_chain.NodeRetired, node=node), nodes),
)
capacities = st.lists(st.integers(1, 20), min_size=len(NODES), max_size=len(NODES))
activations = st.lists(st.integers(0, 30), min_size=len(NODES), max_size=len(NODES))


@given(capacities, activations, st.lists(happenings, max_size=60), st.integers(0, 60))
def test_shares_are_those_of_counting_every_node_in_every_round(
    capacity: list[int], active_at: list[int], happened: list[Event], pause: int
) -> None:
    began = [registered(*told) for told in zip(NODES, capacity, active_at, strict=True)]
    logs = [Log(time, b"", b"", 0, time, each) for time, each in enumerate([*began, *happened])]
    count = Count()
    count.take(logs[:pause])
    going_on = count.copied()
    going_on.take(logs[pause:])
    expected = counted_one_by_one(logs)
    found = going_on.tallies()
    assert {node: (tally.rounds, tally.jobs) for node, tally in found.items()} == {
        node: (rounds, jobs) for node, (rounds, jobs, _, _) in expected.items()
    }
    for node, tally in found.items():
        assert (tally.expected, tally.variance) == pytest.approx(expected[node][2:], abs=1e-9)


def test_a_retired_node_is_due_nothing_even_with_a_new_key() -> None:
    told = [
        registered(1, 4, active_at=0),
        registered(2, 4, active_at=0),
        *(event(on_chain.NodeJoined, run=1, node=node) for node in (1, 2)),
        event(on_chain.NodeRetired, node=2),
        event(on_chain.KeyRotated, node=2),
        event(on_chain.RoundOpened, run=1, assignments=pack_assignments([Listing(1, 6)])),
    ]
    count = Count()
    count.take(Log(time, b"", b"", 0, time, each) for time, each in enumerate(told))
    assert {node: (tally.jobs, tally.expected) for node, tally in count.tallies().items()} == {1: (6, 6.0)}


def counted_one_by_one(logs: list[Log]) -> dict[int, tuple[int, int, float, float]]:
    """Rounds, jobs, expectation and variance of each node, as the definition has them."""
    told: dict[int, list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0])
    for place, log in enumerate(logs):
        if not isinstance(log.event, on_chain.RoundOpened):
            continue
        before = [earlier.event for earlier in logs[:place]]
        able = {node: able_in(before, node, log.event.run, log.timestamp) for node in NODES}
        listed, whole = listed_jobs(log.event.assignments), sum(able.values())
        for node in NODES:
            if able[node] or listed[node]:
                due, jobs = able[node] / whole if whole else 0.0, sum(listed.values())
                part = (1, listed[node], jobs * due, jobs * due * (1 - due))
                told[node] = [one + other for one, other in zip(told[node], part, strict=True)]
    return {node: (int(rounds), int(jobs), *rest) for node, (rounds, jobs, *rest) in told.items()}  # type: ignore[misc]


def able_in(before: list[Event], node: int, run: int, timestamp: int) -> int:
    """The capacity that a node could have worked with, 0 where it could not."""
    own: list[Any] = [each for each in before if getattr(each, "node", 0) == node]
    first = own[0]
    bond = [each.bond for each in own if hasattr(each, "bond")][-1]
    keys = [each for each in own if isinstance(each, on_chain.KeyRevoked | on_chain.KeyRotated)]
    revoked = bool(keys) and isinstance(keys[-1], on_chain.KeyRevoked)
    gone = revoked or any(isinstance(each, on_chain.NodeRetired) for each in own)
    places = [each for each in own if isinstance(each, on_chain.NodeJoined | on_chain.NodeLeft) and each.run == run]
    joined = bool(places) and isinstance(places[-1], on_chain.NodeJoined)
    return int(first.capacity) if joined and not gone and bond >= BOND and first.active_at <= timestamp else 0
