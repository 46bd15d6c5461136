"""Whole rounds on anvil: the coordinator's own code on both sides of HTTP, the test in everybody else's place."""

from __future__ import annotations

import dataclasses
from contextlib import closing

import pytest

from coordinator.driver.wiring import DriverProcess
from coordinator.mirror.mirror import Mirror
from coordinator.store import Store
from protocol.chain.structs import Role, State
from protocol.chain.writing import calls
from protocol.wire.reasons import Reason
from tests.conftest import TOKEN, until
from tests.coordinator.swarm import FEE, JOBS, PRICE, Swarm
from tests.interfering import foreign

ALL = (1 << JOBS) - 1


def test_rounds_run_from_opening_to_settlement(swarm: Swarm, driver: DriverProcess, api: str) -> None:
    driver.tick()
    swarm.beat()
    driver.tick()
    for worker in swarm.workers:
        listed = swarm.client(worker).assignments(worker.node)
        assert [each.round for each in listed] == [1, 2], "async level 1: two rounds ahead"
        assert [len(each.jobs) for each in listed] == [2, 2], "equal capacities share equally"
        swarm.work(worker, listed[0])
        assert [each.round for each in swarm.client(worker).assignments(worker.node)] == [2]
    driver.tick()
    assert swarm.chain.latest().round(1).state is State.VOTING, "submitted, closed and drawn in one go"
    swarm.vote(1, dict.fromkeys(range(JOBS), Reason.ACCEPTED))
    driver.tick()
    settled = swarm.chain.latest().round(1)
    assert settled.state is State.SETTLED
    assert settled.accepted == ALL
    credits = {worker.owner.address: swarm.chain.latest().credits_of(worker.owner.address) for worker in swarm.workers}
    assert set(credits.values()) == {2 * 1_000 * PRICE}
    status = swarm.client(swarm.workers[0]).status()
    assert status.jobs_accepted == JOBS
    assert status.credits_wei == {owner: str(amount) for owner, amount in credits.items()} | {
        party.owner.address: str(FEE) for party in swarm.validators
    }
    assert mirror_differences(swarm) == []


def test_the_next_round_is_opened_when_the_trainer_consumes_one(swarm: Swarm, driver: DriverProcess, api: str) -> None:
    swarm.first_verdict(driver.tick)
    assert swarm.chain.latest().round_count() == 2
    swarm.publish(1, 1, ALL)
    driver.tick()
    reader = swarm.chain.latest()
    assert reader.round_count() == 3
    assert reader.round(3).policy_version == 1


def test_a_node_found_fraudulent_is_slashed_and_never_listed_again(
    swarm: Swarm, driver: DriverProcess, api: str
) -> None:
    driver.tick()
    swarm.beat()
    driver.tick()
    cheat = swarm.workers[0]
    for worker in swarm.workers:
        swarm.work(worker, swarm.client(worker).assignments(worker.node)[0])
    driver.tick()
    swarm.vote(1, {0: Reason.SAMPLING_FRAUD, 1: Reason.SAMPLING_FRAUD, 2: Reason.ACCEPTED, 3: Reason.ACCEPTED})
    driver.tick()
    assert swarm.chain.latest().node(cheat.node).bond == 62 * TOKEN
    swarm.publish(1, 1, 0b1100)
    driver.tick()
    swarm.beat(1)
    assert swarm.client(cheat).assignments(cheat.node)[-1].round == 2, "the round it was listed in before"
    others = swarm.client(swarm.workers[1])
    assert others.assignments(swarm.workers[1].node)[-1].jobs == list(range(JOBS))
    assert mirror_differences(swarm) == []


def test_a_round_nobody_worked_for_is_void_and_its_jobs_come_free(
    swarm: Swarm, driver: DriverProcess, api: str
) -> None:
    driver.tick()
    swarm.beat()
    driver.tick()
    swarm.anvil.rpc.call("evm_increaseTime", hex(swarm.window + 1))
    swarm.anvil.rpc.call("evm_mine")
    driver.tick()
    reader = swarm.chain.latest()
    assert reader.round(1).state is State.VOID
    assert reader.round_count() > 2, "void rounds are replaced"
    assert mirror_differences(swarm) == []


def test_a_closed_run_gets_no_more_rounds_and_the_log_says_why(
    swarm: Swarm, driver: DriverProcess, api: str, capsys: pytest.CaptureFixture[str]
) -> None:
    swarm.send(swarm.requester, calls.close_run(swarm.chain.deployment, swarm.run))
    driver.tick()
    swarm.beat()
    driver.tick()
    assert swarm.chain.latest().round_count() == 0
    assert f"run {swarm.run} is closed" in "".join(capsys.readouterr())  # stderr once a test has configured logging


@pytest.mark.parametrize("confirmations", [0, 1])
def test_a_settlement_that_is_undone_and_cannot_be_sent_again_is_made_anew(
    swarm: Swarm, api: str, confirmations: int
) -> None:
    with closing(DriverProcess(swarm.settings(confirmations=confirmations), swarm.coordinator)) as driver:
        _settle_twice(swarm, driver)


def _settle_twice(swarm: Swarm, driver: DriverProcess) -> None:
    def goes_on() -> None:
        swarm.anvil.rpc.call("evm_mine")
        driver.tick()

    def comes_to(state: State) -> None:
        until(lambda: (goes_on(), swarm.chain.latest().round(1).state is state)[1], 60, state.name)

    goes_on()
    swarm.beat()
    comes_to(State.OPEN)
    goes_on()
    for worker in swarm.workers:
        swarm.work(worker, swarm.client(worker).assignments(worker.node)[0])
    comes_to(State.VOTING)
    swarm.vote(1, dict.fromkeys(range(JOBS), Reason.ACCEPTED))
    comes_to(State.SETTLED)
    swarm.anvil.rpc.call("anvil_reorg", 1, [])
    assert swarm.chain.latest().round(1).state is State.TALLIED
    nonce = swarm.anvil.mined_from(swarm.coordinator.address)
    swarm.anvil.rpc.call("eth_sendRawTransaction", foreign(swarm.chain, swarm.coordinator, nonce))
    comes_to(State.SETTLED)


def mirror_differences(swarm: Swarm) -> list[str]:
    """Where a fresh reading of the mirror's tables differs from the contracts' views."""
    store = Store(swarm.settings().database)
    mirror = Mirror(swarm.chain, store)
    market, reader = mirror.follow(), swarm.chain.latest()
    differences = []

    def same(what: str, mirrored: object, viewed: object) -> None:
        if mirrored != viewed:
            differences.append(f"{what}: mirror {mirrored!r}, contract {viewed!r}")

    for number, node in market.nodes.items():
        seen = reader.node(number)
        for name in (
            "owner",
            "role",
            "slot",
            "capacity",
            "in_flight",
            "active_at",
            "retired_at",
            "bond",
            "key",
            "revoked",
        ):
            same(f"node {number} {name}", getattr(node, name), getattr(seen, name))
        same(f"node {number} required", node.required, reader.required_bond(Role(node.role), node.capacity))
    for number, run in market.runs.items():
        on_chain = reader.run(number)
        for name in ("requester", "version", "closed", "escrow", "reserved"):
            same(f"run {number} {name}", getattr(run, name), getattr(on_chain, name))
        for term in dataclasses.fields(on_chain.terms):
            if hasattr(run, term.name):
                same(f"run {number} {term.name}", getattr(run, term.name), getattr(on_chain.terms, term.name))
    for number, round_ in market.rounds.items():
        stored = reader.round(number)
        names = ["run", "state", "policy_version", "jobs", "attempt", "deadline"]
        names += ["submitted", "accepted", "fraud", "consumed"]
        if stored.state not in (State.SETTLED, State.VOID):
            # What the contracts keep of a round only until it ends.
            names += ["slot_count", "open_block", "opened_at", "appealed", "appeals"]
        for name in names:
            same(f"round {number} {name}", getattr(round_, name), getattr(stored, name))
    same("rounds", len(market.rounds), reader.round_count())
    store.close()
    return differences
