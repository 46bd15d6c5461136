"""The market to be measured: a run on a chain of its own, a thousand workers at most, and three scripted jurors."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from eth_utils import to_checksum_address
from eth_utils.crypto import keccak

from protocol.chain.events import NodeRegistered
from protocol.chain.structs import Role
from protocol.chain.writing import calls
from protocol.node.wallet import Wallet
from protocol.wire import auth
from protocol.wire.rules import encode_rules, rules_hash
from tests.bench.ledger.bulk import OPTIONS, Bulk, Sent
from tests.conftest import TOKEN
from tests.coordinator.market import run_on_anvil
from tests.coordinator.swarm import FOREVER, Swarm

BLOCK_SECONDS = 1
IN_FLIGHT = 2
"""Jobs that a worker may have at once: one of each of the two rounds under way."""
BOND = 10 * TOKEN
ESCROW = 2_000 * TOKEN


@dataclass(frozen=True, slots=True)
class Listed:
    """A worker's node, and the secret of the key with which it signs."""

    node: int
    secret: bytes


@contextmanager
def market(workers: int, work_seconds: int) -> Iterator[tuple[Swarm, list[Listed]]]:
    """A run that ``workers`` workers have joined, on a chain with a block a second."""
    # States stay: readers pin blocks.
    options = (option for option in OPTIONS if option != "--prune-history")
    with run_on_anvil(*options, window=work_seconds) as swarm:
        listed = _crowd(swarm, workers)
        swarm.anvil.rpc.call("evm_setIntervalMining", BLOCK_SECONDS)
        yield swarm, listed


def _crowd(swarm: Swarm, workers: int) -> list[Listed]:
    """Registers workers, each of an owner of its own, and has them join the run."""
    deployment, bulk, numbers = swarm.chain.deployment, Bulk(swarm.chain), itertools.count(1)
    secrets_of: dict[str, bytes] = {}

    def worker() -> Iterator[Sent]:
        owner = str(to_checksum_address(keccak(primitive=next(numbers).to_bytes(8, "big"))[12:]))
        secret = secrets.token_bytes(32)
        key = Wallet("key", secret)
        secrets_of[key.address] = secret
        binding = auth.node_binding(
            deployment.chain_id, deployment.registry, owner, key.address, Role.WORKER, IN_FLIGHT, FOREVER
        )
        yield owner, calls.drip(deployment, owner, BOND)
        yield owner, calls.approve(deployment, "Registry", BOND)
        signature = key.sign_typed(binding)
        yield owner, calls.register(deployment, Role.WORKER, key.address, IN_FLIGHT, FOREVER, signature)

    logs = bulk.mine([sent for _ in range(workers) for sent in worker()])
    nodes = [log.event for log in logs if isinstance(log.event, NodeRegistered)]
    agreed = rules_hash(encode_rules(swarm.rules))
    bulk.mine([(node.owner, calls.join(deployment, swarm.run, node.node, agreed)) for node in nodes])
    requester = swarm.requester.address
    bulk.mine(
        [
            (requester, calls.drip(deployment, requester, 2 * ESCROW)),
            (requester, calls.approve(deployment, "Credits", 2 * ESCROW)),
            (requester, calls.buy(deployment, ESCROW)),
            (requester, calls.fund_run(deployment, swarm.run, ESCROW)),
        ]
    )
    return [Listed(node.node, secrets_of[node.key]) for node in nodes]
