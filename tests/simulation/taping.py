"""Records a tape: real contracts on anvil, played by the model's network, with turns that it could have taken."""

from __future__ import annotations

from pathlib import Path

from protocol.chain.deployment import Deployment
from protocol.chain.rpc import Rpc
from tests.model.chance import Chance
from tests.model.network import Network, open_network
from tests.simulation.world import RawLog, Step, Tape

STEPS = 240
"""Steps that the network takes; each is a few transactions, or one that is refused."""
FORK_EVERY = 6
BRANCH_STEPS = 8


def record(folder: Path, seed: int = 1) -> tuple[Tape, Deployment]:
    """Plays a network on a fresh anvil and returns what its contracts emitted."""
    with open_network(folder, same_each_time=True) as twins:
        twins.begin(history=True)
        network, rpc, deployment = Network(), twins.contracts.rpc, twins.contracts.deployment
        trunk = _steps(rpc, deployment, deployment.start_block + 1)
        branches: dict[int, tuple[Step, ...]] = {}
        for step in range(STEPS):
            if step % FORK_EVERY == 0:
                moment, block = twins.remember(), twins.contracts.block
                for turn in range(BRANCH_STEPS):
                    _play(network, seed + STEPS + step + turn)
                branches[len(trunk)] = tuple(_steps(rpc, deployment, block + 1))
                twins.return_to(moment)
            block = twins.contracts.block
            _play(network, seed + step)
            trunk += _steps(rpc, deployment, block + 1)
        return Tape(tuple(trunk), branches), deployment


def _play(network: Network, seed: int) -> None:
    chance = Chance(seed, network.twins.now)
    network.choose(chance)(chance)


def _steps(rpc: Rpc, deployment: Deployment, first: int) -> list[Step]:
    """What was emitted from block ``first`` on, a step for each block: the network mines each transaction alone."""
    wanted = {"fromBlock": hex(first), "toBlock": "latest", "address": list(deployment.addresses)}
    if int(rpc.call("eth_blockNumber"), 16) < first:
        return []
    steps: dict[int, list[RawLog]] = {}
    times: dict[int, int] = {}
    for raw in rpc.call("eth_getLogs", wanted):
        number = int(raw["blockNumber"], 16)
        times[number] = int(raw["blockTimestamp"], 16)
        steps.setdefault(number, []).append(RawLog(raw["address"], tuple(raw["topics"]), raw["data"]))
    return [Step(times[number], tuple(logs)) for number, logs in sorted(steps.items())]
