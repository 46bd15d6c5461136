"""Claims are relayed whatever happens to a transaction; refused is only what the contract would never take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlmodel import select

from coordinator.driver.wiring import DriverProcess
from coordinator.store import Store
from coordinator.tables import ClaimRow
from protocol.chain.writing import calls
from protocol.chain.writing.calls import Call
from protocol.wire.api import Assignment
from tests.chaos.between import Between
from tests.conftest import until
from tests.coordinator.swarm import JOBS, Party, Swarm
from tests.interfering import lagging, overtaking

ALL = (1 << JOBS) - 1


@pytest.fixture
def between(swarm: Swarm) -> Iterator[Between]:
    """What stands between the coordinator and the chain."""
    made = Between(swarm.anvil.port)
    yield made
    made.close()


@pytest.fixture
def driver(swarm: Swarm, between: Between) -> Iterator[DriverProcess]:
    """The driver, whose ticks the test makes."""
    made = DriverProcess(swarm.settings(rpc_url=between.url), swarm.coordinator)
    yield made
    made.close()


def assigned(swarm: Swarm, driver: DriverProcess, worker: Party) -> Assignment:
    """What the worker is to do first, once rounds are open."""
    driver.tick()
    swarm.beat()
    driver.tick()
    return swarm.client(worker).assignments(worker.node)[0]


def like_submit(swarm: Swarm) -> Call:
    return calls.submit(swarm.chain.deployment, 1, b"", [])


def claims(swarm: Swarm) -> dict[int, tuple[str, str]]:
    """Of each node, what became of its claim and why."""
    with Store(swarm.settings().database).reading() as session:
        return {claim.node: (claim.state, claim.why) for claim in session.exec(select(ClaimRow))}


def test_a_claim_that_an_rpc_behind_the_chain_refuses_is_relayed_a_moment_later(
    swarm: Swarm, driver: DriverProcess, between: Between, api: str
) -> None:
    worker, simulations = swarm.workers[0], list[str]()
    swarm.work(worker, assigned(swarm, driver, worker))
    with between.interfering(lagging(swarm.anvil, like_submit(swarm), 2, simulations)):
        driver.tick()
        assert claims(swarm) == {worker.node: ("pending", "")}
        assert simulations == [swarm.coordinator.address], "what is put off holds up nothing"
        until(lambda: (driver.tick(), claims(swarm) == {worker.node: ("relayed", "")})[1], 10, "the relay")
    assert len(simulations) == 2
    assert swarm.chain.latest().round(1).submitted.bit_count() == JOBS // 2


def test_a_claim_that_the_contract_never_takes_is_refused_at_once(
    swarm: Swarm, driver: DriverProcess, api: str
) -> None:
    worker = swarm.workers[0]
    swarm.work(worker, assigned(swarm, driver, worker))
    swarm.send(worker.owner, calls.revoke_key(swarm.chain.deployment, worker.node))
    driver.tick()
    assert claims(swarm) == {worker.node: ("refused", "it is not signed by the node's key over these fields")}


def test_claims_whose_nonce_another_program_took_are_relayed_under_a_new_key(
    swarm: Swarm, driver: DriverProcess, between: Between, api: str
) -> None:
    taken, first = list[str](), assigned(swarm, driver, swarm.workers[0])
    swarm.work(swarm.workers[0], first)
    swarm.work(swarm.workers[1], swarm.client(swarm.workers[1]).assignments(swarm.workers[1].node)[0])
    interference = overtaking(swarm.anvil, swarm.chain, swarm.coordinator, like_submit(swarm), taken)
    with between.interfering(interference):
        driver.tick()
    assert len(taken) == 1
    assert swarm.chain.latest().round(1).submitted == ALL
    assert set(claims(swarm).values()) == {("relayed", "")}
