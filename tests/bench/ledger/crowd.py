"""A crowd: owners with credits, workers with bonds, requesters with runs; each a real account's real transactions."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from dataclasses import replace

from eth_utils import to_checksum_address
from eth_utils.crypto import keccak

from protocol.chain.events import NodeRegistered
from protocol.chain.structs import Role, RunTerms
from protocol.chain.writing import calls
from protocol.node.wallet import Wallet
from protocol.wire import auth
from tests.bench.ledger.bulk import Bulk, Sent
from tests.conftest import TOKEN
from tests.ledger.scenario import FOREVER, RULES, Market

HOLDING = 10 * TOKEN
PURCHASES = 3


class Crowd:
    """Adds people to a market; ``trader`` moves its own credits again and again."""

    def __init__(self, market: Market, bulk: Bulk, terms: RunTerms, trader: str) -> None:
        self._deployment = market.deployment
        self._run, self._terms, self._trader = market.run, terms, trader
        self._bulk = bulk
        self._numbers = itertools.count(1)

    def grow(self, owners: int, workers: int, runs: int, trades: int) -> None:
        """So many more of each."""
        deployment = self._deployment
        self._bulk.mine([sent for _ in range(owners) for sent in self._owner()])
        registered = self._bulk.mine([sent for _ in range(workers) for sent in self._worker()])
        nodes = [log.event for log in registered if isinstance(log.event, NodeRegistered)]
        self._bulk.mine([(node.owner, calls.join(deployment, self._run, node.node, RULES)) for node in nodes])
        opened = (replace(self._terms, rules_hash=secrets.token_bytes(32)) for _ in range(runs))
        root, uri = b"\x01" * 32, "http://example.org/rules"
        self._bulk.mine([(self._trader, calls.open_run(deployment, terms, root, uri)) for terms in opened])
        self._bulk.mine([(self._trader, calls.buy(deployment, 1))] * trades)

    def _owner(self) -> Iterator[Sent]:
        deployment, owner = self._deployment, self._address()
        yield owner, calls.drip(deployment, owner, HOLDING)
        yield owner, calls.approve(deployment, "Credits", HOLDING)
        for _ in range(PURCHASES):
            yield owner, calls.buy(deployment, HOLDING // 10)
        yield owner, calls.redeem(deployment, owner, HOLDING // 10)

    def _worker(self) -> Iterator[Sent]:
        deployment, owner, key = self._deployment, self._address(), Wallet("key", secrets.token_bytes(32))
        binding = auth.node_binding(
            deployment.chain_id, deployment.registry, owner, key.address, Role.WORKER, 1, FOREVER
        )
        yield owner, calls.drip(deployment, owner, HOLDING)
        yield owner, calls.approve(deployment, "Registry", HOLDING)
        signature = key.sign_typed(binding)
        yield owner, calls.register(deployment, Role.WORKER, key.address, 1, FOREVER, signature)

    def _address(self) -> str:
        """The next account: spread over all addresses, as real ones are."""
        return str(to_checksum_address(keccak(primitive=next(self._numbers).to_bytes(8, "big"))[12:]))
