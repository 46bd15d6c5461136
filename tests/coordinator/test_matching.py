"""Offers of nodes against a run: who is left out and why, and that no claim takes jobs from others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.driver.matching import JobNeeds, mismatch, most_jobs
from coordinator.driver.selection import bounded_by_speed, divide
from coordinator.driver.wiring import DriverProcess
from protocol.wire import api as bodies
from protocol.wire.assignments import unpack_assignments
from tests.coordinator.swarm import PRICE, RULES, Swarm
from tests.coordinator.test_selection import ABLE

NEEDS = JobNeeds(("transformers",), b"\x01" * 32, 4 << 30, 1_000)
FITTING = bodies.Offer(
    device="H100",
    memory_bytes=80 << 30,
    engine="transformers",
    canary=b"\x01" * 32,
    tokens_per_second=50,
    tokens_per_job=500,
    least_price_wei="7",
)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"least_price_wei": "8"}, "its least price is 8 wei a unit, the run pays 7"),
        ({"engine": "vllm"}, "its engine is vllm, the run allows transformers"),
        ({"canary": b"\x02" * 32}, "determinism class 0x02020202…, the run asks for 0x01010101…"),
        ({"memory_bytes": 3 << 30}, "has 3.0 GiB of memory, the weights alone take 4.0"),
        ({"tokens_per_second": 6.2}, "makes 6.2 tokens a second, too few for one job in 100 s"),
    ],
)
def test_each_mismatch_is_named(change: dict[str, Any], reason: str) -> None:
    assert reason in mismatch(FITTING.model_copy(update=change), NEEDS, 7, 100)


def test_what_an_offer_does_not_say_excludes_nobody() -> None:
    assert mismatch(FITTING, NEEDS, 7, 100) == ""
    assert mismatch(None, NEEDS, 7, 100) == mismatch(bodies.Offer(), NEEDS, 7, 100) == ""
    assert most_jobs(FITTING, NEEDS, 0) is None, "the work phase is not known yet"
    assert JobNeeds.of(RULES).most_tokens == 16
    assert JobNeeds.of(RULES).weights_bytes == 8


def test_jobs_follow_speed_where_it_is_the_least() -> None:
    assert most_jobs(FITTING, NEEDS, 100) == 8
    assert most_jobs(FITTING.model_copy(update={"tokens_per_job": None}), NEEDS, 100) == 4
    assert most_jobs(FITTING.model_copy(update={"tokens_per_job": 5_000}), NEEDS, 100) == 4, "no job has more tokens"
    slow = bounded_by_speed(replace(ABLE, node=2, capacity=100, free=100, given=1, most_jobs=8), owed=6)
    counts = {each.node: each.count for each in divide(64, [replace(ABLE, capacity=100, free=100, given=1), slow], 0)}
    assert counts == {1: 62, 2: 2}
    assert bounded_by_speed(replace(ABLE, most_jobs=8), owed=9).free == 0


@given(
    st.lists(st.integers(1, 64), min_size=2, max_size=8),
    st.integers(1, 128),
    st.floats(1e-9, 1e12),
    st.none() | st.floats(1e-9, 1e12),
    st.integers(0, 1000),
)
def test_no_claim_gives_a_node_more_jobs_than_it_has_without(
    capacities: list[int], jobs: int, speed: float, tokens: float | None, turn: int
) -> None:
    crowd = [replace(ABLE, node=n, capacity=c, free=c, given=1) for n, c in enumerate(capacities, 1)]
    offer = bodies.Offer(tokens_per_second=speed, tokens_per_job=tokens)
    liar = bounded_by_speed(replace(crowd[0], most_jobs=most_jobs(offer, NEEDS, 100)), owed=0)

    def count(candidate: Any) -> int:
        return sum(each.count for each in divide(jobs, [candidate, *crowd[1:]], turn) if each.node == 1)

    assert count(liar) <= count(crowd[0])
    assert liar.free <= crowd[0].free


def test_offers_decide_on_listing_and_are_shown(swarm: Swarm, driver: DriverProcess, api: str) -> None:
    driver.tick()
    slow, dear = swarm.workers

    def beat(party: Any, **offer: Any) -> bodies.HeartbeatReply:
        made = bodies.Offer(**offer)
        return swarm.client(party).heartbeat(bodies.Heartbeat(node=party.node, version=0, offer=made))

    assert beat(slow, tokens_per_second=0.1, tokens_per_job=16).reasons == [], "the work phase is not known yet"
    told = f"its least price is {PRICE + 1} wei a unit, the run pays {PRICE}"
    assert beat(dear, least_price_wei=str(PRICE + 1)).reasons == [told]
    driver.tick()
    assert swarm.chain.latest().round_count() == 0
    nodes = {each.node: each for each in swarm.client(slow).status(details=True).nodes}
    assert nodes[dear.node].reason == told
    assert nodes[dear.node].offer == bodies.Offer(least_price_wei=str(PRICE + 1))
    assert all(each.offer is None and not each.reason for each in swarm.client(slow).status().nodes)

    assert beat(dear, least_price_wei=str(PRICE)).reasons == []
    beat(slow, tokens_per_second=0.1, tokens_per_job=16)  # 600 s: three jobs at most
    driver.tick()
    rounds = swarm.client(dear).assignments(dear.node)
    counts = [{each.node: each.count for each in unpack_assignments(one.assignments)} for one in rounds]
    assert counts == [{slow.node: 2, dear.node: 2}, {slow.node: 1, dear.node: 3}]
    assert "too few for one job in 600 s" in beat(slow, tokens_per_second=0.001).reasons[0]
    swarm.beat()
    assert {each.offer for each in swarm.client(slow).status(details=True).nodes} == {None}
