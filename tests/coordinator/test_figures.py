"""What a coordinator's operator watches: the run as the chain has it, while this process drives it."""

from __future__ import annotations

from prometheus_client import REGISTRY

from coordinator.driver.figures import by_state
from coordinator.driver.wiring import DriverProcess
from protocol.chain.reading.own_standing import OwnStanding
from protocol.chain.structs import State
from tests.coordinator.swarm import Swarm


def shown(name: str, **labels: object) -> float | None:
    return REGISTRY.get_sample_value(f"assize_{name}", {key: str(value) for key, value in labels.items()})


def test_every_state_of_a_round_under_way_is_counted_and_none_of_an_end() -> None:
    assert by_state([State.OPEN, State.OPEN, State.VOTING, State.SETTLED, State.VOID]) == {
        "open": 2,
        "closed": 0,
        "voting": 1,
        "tallied": 0,
    }


def test_a_run_is_shown_while_this_process_drives_it_and_not_afterwards(swarm: Swarm, driver: DriverProcess) -> None:
    driver.tick()
    run, on_chain = swarm.run, swarm.chain.latest().run(swarm.run)
    assert shown("coordinator_version", run=run) == on_chain.version
    assert shown("coordinator_pending_claims", run=run) == 0
    assert shown("coordinator_newest_round_timestamp_seconds", run=run)
    assert shown("coordinator_escrow_rounds", run=run) >= 1  # type: ignore[operator]
    assert shown("coordinator_jobs", run=run, verdict="fraud") == 0
    assert shown("chain_head_block", chain=swarm.chain.chain_id) == shown(
        "chain_read_block", chain=swarm.chain.chain_id
    )
    driver.close()
    assert shown("coordinator_escrow_rounds", run=run) is None, "a process that stands by would show an old value"


def test_gas_bond_and_version_are_those_of_the_chain(swarm: Swarm) -> None:
    worker, reader = swarm.workers[0], swarm.chain.latest()
    OwnStanding(swarm.chain, worker.key.address, (swarm.run,)).look()
    node = reader.node(worker.node)
    assert shown("bond_tokens", node=worker.node) == node.bond / 10**18
    assert shown("bond_required_tokens", node=worker.node) == reader.required_bond(node.role, node.capacity) / 10**18
    assert shown("node_listable", node=worker.node) == reader.is_listable(worker.node)
    assert shown("gas_balance_coins", key=worker.key.address) == reader.native_balance(worker.key.address) / 10**18
    assert shown("run_version", run=swarm.run) == reader.run(swarm.run).version


def test_head_and_final_block_go_on_while_a_long_pass_asks_for_neither(swarm: Swarm) -> None:
    standing, chain = OwnStanding(swarm.chain, swarm.workers[0].key.address), swarm.chain.chain_id
    standing.look()
    final = shown("chain_final_block", chain=chain)
    swarm.chain.rpc.call("anvil_mine", hex(3))
    standing.look()
    assert shown("chain_final_block", chain=chain) == final + 3  # type: ignore[operator]
    assert shown("chain_head_timestamp_seconds", chain=chain) == swarm.chain.head().timestamp
