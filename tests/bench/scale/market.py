"""The market to be measured: a run on a chain of its own, a thousand workers at most, and three scripted jurors."""

from __future__ import annotations

import itertools
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from eth_utils import to_checksum_address
from eth_utils.crypto import keccak

from deploy.localnet.establish import SCRYPT_N
from protocol.chain.events import NodeRegistered
from protocol.chain.reading.client import Chain
from protocol.chain.structs import Role
from protocol.chain.writing import calls
from protocol.node.wallet import Keystores, Wallet
from protocol.wire import auth
from protocol.wire.rules import encode_rules, rules_hash
from tests.bench.ledger.bulk import OPTIONS, Bulk, Sent
from tests.conftest import TOKEN, Anvil, deploy_on, redis_server
from tests.coordinator.swarm import FOREVER, Swarm

BLOCK_SECONDS = 1
IN_FLIGHT = 2
"""Jobs that a worker may have at once: one of each of the two rounds under way."""
BOND = 10 * TOKEN
ESCROW = 2_000 * TOKEN


@dataclass(frozen=True, slots=True)
class Listed:
    """A worker's node and the key with which it signs."""

    node: int
    key: Wallet


@contextmanager
def market(workers: int, work_seconds: int) -> Iterator[tuple[Swarm, list[Listed]]]:
    """A run that ``workers`` workers have joined, on a chain with a block a second."""
    with tempfile.TemporaryDirectory() as name, redis_server(Path(name)) as redis_url:
        folder = Path(name)
        # States stay: readers pin blocks.
        anvil = Anvil(folder, *(option for option in OPTIONS if option != "--prune-history"))
        try:
            (folder / "password").write_text("password\n")

            def make_wallet(name: str) -> Wallet:
                wallet = Keystores(folder / "keystores").create(name, "password", SCRYPT_N)
                anvil.fund(wallet.address)
                return wallet

            with Chain(anvil.url, deploy_on(anvil)) as chain:
                swarm = Swarm(chain, anvil, make_wallet, redis_url, folder, window=work_seconds)
                listed = _crowd(swarm, workers)
                anvil.rpc.call("evm_setIntervalMining", BLOCK_SECONDS)
                yield swarm, listed
                swarm.close()
        finally:
            anvil.stop()


def _crowd(swarm: Swarm, workers: int) -> list[Listed]:
    """Registers workers, each of an owner of its own, and has them join the run."""
    deployment, bulk, numbers = swarm.chain.deployment, Bulk(swarm.chain), itertools.count(1)
    keys: dict[str, Wallet] = {}

    def worker() -> Iterator[Sent]:
        owner = str(to_checksum_address(keccak(primitive=next(numbers).to_bytes(8, "big"))[12:]))
        key = Wallet("key", secrets.token_bytes(32))
        keys[key.address] = key
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
    return [Listed(node.node, keys[node.key]) for node in nodes]
