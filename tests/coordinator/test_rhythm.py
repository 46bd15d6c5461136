"""How often nodes are told to send heartbeats, by how many there are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from coordinator.api.poller import Poller
from coordinator.driver.rhythm import heartbeat_seconds, lease_of, wait_of
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
    assert (wait_of(100), wait_of(1000)) == (None, 30)


def test_a_new_round_wakes_the_nodes_that_it_lists_and_no_other(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'coordinator.db'}")
    poller = Poller(store)

    async def seconds_waited(node: int) -> float:
        began = asyncio.get_running_loop().time()
        await poller.wait(node, poller.turn, 1.0)
        return asyncio.get_running_loop().time() - began

    async def waited() -> list[float]:
        waiting = [asyncio.create_task(seconds_waited(node)) for node in (4, 5)]
        await asyncio.sleep(0.3)
        with store.writing() as session:
            session.add(a_round(State.OPEN, id=1))
            session.add(ListingRow(round=1, first=0, node=4, count=2))
        return await asyncio.gather(*waiting)

    listed, other = asyncio.run(waited())
    store.close()
    assert listed < 0.9 <= other


def test_an_earlier_version_is_answered_with_the_fields_that_it_knows(
    swarm: Swarm, driver: DriverProcess, http: httpx.Client
) -> None:
    driver.tick()
    worker = swarm.workers[0]
    body = api.Heartbeat(node=worker.node, version=0).model_dump_json(exclude={"offer"}).encode()
    signed = headers(swarm, worker, "POST", "/heartbeats", body)
    assert set(http.post("/heartbeats", content=body, headers=signed).json()) == {"state", "reasons"}
