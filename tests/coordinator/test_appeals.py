"""What else may happen to a run: appeals, a pause, new terms, a claim that the contract leaves out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlmodel import select

from coordinator.driver.wiring import DriverProcess
from coordinator.store import Store
from coordinator.tables import ClaimRow, NodeRow, RunRow
from protocol.chain.abi import functions
from protocol.chain.events import AppealOpened
from protocol.chain.structs import State, Verdict
from protocol.chain.writing import calls
from protocol.chain.writing.appealing import open_appeal
from protocol.wire.reasons import Reason
from tests.conftest import TOKEN
from tests.coordinator.swarm import JOBS, PRICE, Party, Swarm
from tests.coordinator.test_driver import mirror_differences

ALL = (1 << JOBS) - 1
APPEALS = {"committee": 1, "appeal_seats": 3, "challenge": 1200}


def appealed(swarm: Swarm, worker: Party, job: int) -> AppealOpened:
    """The worker's owner appeals."""
    swarm.send(worker.owner, calls.approve(swarm.chain.deployment, "Credits", TOKEN))
    return open_appeal(swarm.senders[worker.owner.address], 1, job).carry_out(f"appeal-{job}")


def pass_time(swarm: Swarm, seconds: int) -> None:
    swarm.anvil.rpc.call("evm_increaseTime", hex(seconds))
    swarm.anvil.rpc.call("evm_mine")


@pytest.mark.parametrize("swarm", [APPEALS], indirect=True)
def test_a_worker_condemned_wrongly_is_restored_and_listed_again(swarm: Swarm, driver: DriverProcess, api: str) -> None:
    worker = swarm.workers[0]
    bond = swarm.chain.latest().node(worker.node).bond
    swarm.first_verdict(driver.tick, {0: Reason.SAMPLING_FRAUD})
    assert swarm.chain.latest().round(1).fraud == 1
    opened = appealed(swarm, worker, 0)
    assert (opened.node, opened.against) == (worker.node, Verdict.FRAUD)
    driver.tick()
    assert swarm.chain.latest().round(opened.appeal).state is State.VOTING, "drawn like any round"
    assert mirror_differences(swarm) == []
    swarm.vote(opened.appeal, {0: Reason.ACCEPTED})
    driver.tick()
    reader = swarm.chain.latest()
    assert reader.round(opened.appeal).state is State.SETTLED
    assert (reader.round(1).accepted, reader.node(worker.node).bond) == (ALL, bond)
    assert mirror_differences(swarm) == []
    pass_time(swarm, APPEALS["challenge"])
    driver.tick()
    assert swarm.chain.latest().round(1).state is State.SETTLED
    assert swarm.client(worker).status().jobs_fraud == 0
    assert swarm.client(worker).status().credits_wei[worker.owner.address] == str(2 * 1_000 * PRICE)
    with Store(swarm.settings().database).reading() as session:
        row = session.get(NodeRow, worker.node)
        assert (row.fraudulent, row.neglect) == (0, 0.0)
    assert mirror_differences(swarm) == []


@pytest.mark.parametrize("swarm", [APPEALS], indirect=True)
def test_a_round_whose_every_job_was_appealed_ends_with_its_last_appeal(
    swarm: Swarm, driver: DriverProcess, api: str
) -> None:
    swarm.first_verdict(driver.tick, dict.fromkeys(range(JOBS), Reason.SAMPLING_FRAUD))
    opened = [appealed(swarm, swarm.workers[job // 2], job) for job in range(JOBS)]
    driver.tick()
    pass_time(swarm, APPEALS["challenge"])
    driver.tick()
    assert swarm.chain.latest().round(1).state is State.TALLIED, "its batches are settled, its appeals are not decided"
    for _ in range(3):  # two committees stay away
        pass_time(swarm, 2 * swarm.window)
        driver.tick()
    reader = swarm.chain.latest()
    assert {reader.round(each.appeal).state for each in opened} == {State.VOID}
    assert swarm.chain.latest().round(1).state is State.SETTLED, "nobody judged the appeals: void, and the round ends"
    assert mirror_differences(swarm) == []


def test_a_claim_that_the_contract_leaves_out_is_refused_and_the_others_are_relayed(
    swarm: Swarm, driver: DriverProcess, api: str
) -> None:
    driver.tick()
    swarm.beat()
    driver.tick()
    for worker in swarm.workers:
        swarm.work(worker, swarm.client(worker).assignments(worker.node)[0])
    gone, kept = swarm.workers
    swarm.send(gone.owner, calls.revoke_key(swarm.chain.deployment, gone.node))
    driver.tick()
    with Store(swarm.settings().database).reading() as session:
        claims = {claim.node: (claim.state, claim.why) for claim in session.exec(select(ClaimRow))}
    assert claims[kept.node] == ("relayed", "")
    assert claims[gone.node] == ("refused", "it is not signed by the node's key over these fields")
    assert swarm.chain.latest().round(1).submitted.bit_count() == 2
    assert mirror_differences(swarm) == []


def test_no_round_is_tried_while_new_ones_are_paused(swarm: Swarm, driver: DriverProcess, api: str) -> None:
    admin = swarm.chain.latest().view("Admin", "defaultAdmin")
    swarm.anvil.rpc.call("anvil_impersonateAccount", admin)
    for verb, rounds, waiting in (("pause", 0, "the deployment's admin has paused new rounds"), ("unpause", 2, "")):
        data = "0x" + functions("Admin")[verb].encode().hex()
        call = {"from": admin, "to": swarm.chain.deployment.admin, "data": data}
        swarm.anvil.rpc.call("eth_sendTransactionSync", call)
        driver.tick()
        swarm.beat()
        driver.tick()
        assert swarm.chain.latest().round_count() == rounds
        assert swarm.client(swarm.workers[0]).status().waiting == waiting


def test_announced_terms_count_from_their_time_on(swarm: Swarm, driver: DriverProcess, api: str) -> None:
    driver.tick()
    swarm.beat()
    terms = replace(swarm.chain.latest().run(swarm.run).terms, rules_hash=b"\x09" * 32, price_per_unit=PRICE + 1)
    swarm.send(swarm.requester, calls.announce(swarm.chain.deployment, swarm.run, terms))
    driver.tick()
    assert swarm.chain.latest().round_count() == 2, "the present terms count until then"
    assert mirror_differences(swarm) == []
    pass_time(swarm, 3601)
    driver.tick()
    assert mirror_differences(swarm) == []
    with Store(swarm.settings().database).reading() as session:
        assert session.get(RunRow, swarm.run).price_per_unit == PRICE + 1
    assert "has new rules" in swarm.client(swarm.workers[0]).status().waiting
