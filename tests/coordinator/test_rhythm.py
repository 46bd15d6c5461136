"""How often nodes are told to send heartbeats, by how many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from coordinator.api.poller import MOST_WOKEN, POLL_SECONDS, Poller
from coordinator.driver.rhythm import heartbeat_seconds, lease_of, next_heartbeat, wait_of
from coordinator.driver.wiring import DriverProcess
from coordinator.store import Store
from coordinator.tables import ListingRow
from protocol.chain.structs import State
from protocol.wire import api
from tests.coordinator.swarm import Swarm, headers
from tests.coordinator.test_schedule import a_round


def test_a_thousand_nodes_send_a_heartbeat_every_thirty_seconds_and_a_few_every_five() -> None:
    assert [heartbeat_seconds(nodes) for nodes in (0, 100, 300, 1000, 5000)] == [5, 5, 9, 30, 30]


def test_a_lease_outlasts_as_many_heartbeats_whatever_their_time() -> None:
    assert {round(lease_of(15, nodes) / heartbeat_seconds(nodes), 6) for nodes in (1, 300, 1000, 5000)} == {3}


def test_requests_for_work_wait_as_long_as_nodes_choose_until_there_are_many() -> None:
    assert (wait_of(100, 0), wait_of(1000, 0), wait_of(1000, 1)) == (None, 30, 24)


def test_nodes_that_were_held_up_together_are_told_different_times() -> None:
    told = [next_heartbeat(1000, lot / 10) for lot in range(11)]
    assert len(set(told)) == 11
    assert (min(told), max(told), sum(told) / 11) == pytest.approx((27, 33, 30))


def test_a_new_round_wakes_the_nodes_that_it_lists_and_no_other(tmp_path: Path) -> None:
    listed, other = waited_for_a_round(tmp_path, waiting=(4, 5), listed=(4,))
    assert listed < 0.9 <= other


def test_the_many_nodes_of_a_new_round_are_woken_a_few_at_a_time(tmp_path: Path) -> None:
    nodes = tuple(range(1, 4 * MOST_WOKEN + 1))
    waited = waited_for_a_round(tmp_path, waiting=nodes, listed=nodes)
    assert max(waited) < 1.0
    assert max(waited) - min(waited) > 2 * POLL_SECONDS


def waited_for_a_round(folder: Path, waiting: Sequence[int], listed: Sequence[int]) -> list[float]:
    """Seconds that each node waits, for one at most, where a round that lists some of them opens after 0.3 s."""
    store = Store(f"sqlite:///{folder / 'coordinator.db'}")
    poller = Poller(store)

    async def seconds_waited(node: int) -> float:
        began = asyncio.get_running_loop().time()
        await poller.wait(node, poller.turn, 1.0)
        return asyncio.get_running_loop().time() - began

    async def waited() -> list[float]:
        tasks = [asyncio.create_task(seconds_waited(node)) for node in waiting]
        await asyncio.sleep(0.3)
        with store.writing() as session:
            session.add(a_round(State.OPEN, id=1))
            session.add_all(ListingRow(round=1, first=node, node=node, count=2) for node in listed)
        return await asyncio.gather(*tasks)

    found = asyncio.run(waited())
    store.close()
    return found


def test_an_earlier_version_is_answered_with_the_fields_that_it_knows(
    swarm: Swarm, driver: DriverProcess, http: httpx.Client
) -> None:
    driver.tick()
    worker = swarm.workers[0]
    body = api.Heartbeat(node=worker.node, version=0).model_dump_json(exclude={"offer"}).encode()
    signed = headers(swarm, worker, "POST", "/heartbeats", body)
    assert set(http.post("/heartbeats", content=body, headers=signed).json()) == {"state", "reasons"}
