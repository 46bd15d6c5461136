"""The chain itself: a story with appeals, then ten chapters alike, each with a tenth of everything."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.chain.reading.decoding import decoders
from protocol.chain.rpc import Rpc
from protocol.node.wallet import Wallet
from tests.bench.ledger.bulk import Bulk
from tests.bench.ledger.crowd import Crowd
from tests.bench.ledger.rounds import Rounds
from tests.bench.mirror.spray import PER_BLOCK, Sprayer
from tests.conftest import Anvil, deploy_on
from tests.ledger import disputes
from tests.ledger.scenario import Market

CHAPTERS = 10
ROUNDS, OWNERS, WORKERS, RUNS, TRADES = 8_000, 20_000, 5_000, 5_000, 20_000
"""In a chain of a million events; what is missing are transfers of the token."""

RANGE = 250
"""Blocks whose logs are counted together."""


@dataclass(frozen=True, slots=True)
class Grown:
    """A chain, whom to ask about, and how many events there are up to a block: ``(block, events)``, ascending."""

    deployment: Deployment
    run: int
    trader: str
    worker: str
    crooked: int
    marks: tuple[tuple[int, int], ...]

    @property
    def events(self) -> int:
        """All of them."""
        return self.marks[-1][1]

    def block_at(self, share: float) -> int:
        """The first counted block up to which there is this share of the events."""
        return next(block for block, events in self.marks if events >= share * self.events)


def grow(anvil: Anvil, folder: Path, events: int, say: Callable[[str], None]) -> Grown:
    """Deploys the contracts and fills the chain with at least ``events`` events of theirs."""
    deployment = deploy_on(anvil)
    chain = Chain(anvil.url, deployment)
    market = Market(chain, anvil, lambda name: _wallet(anvil, name), folder)
    dispute = disputes.told(disputes.begin(market))
    bulk, sprayer = Bulk(chain), Sprayer(anvil.rpc, deployment.token)
    rounds = Rounds(dispute, bulk)
    trader = dispute.requester.address
    crowd = Crowd(market, bulk, dispute.terms, trader)
    share, marks = events / 1_000_000 / CHAPTERS, [(deployment.start_block, 0)]
    for chapter in range(1, CHAPTERS + 1):
        rounds.play(round(ROUNDS * share))
        crowd.grow(*(round(each * share) for each in (OWNERS, WORKERS, RUNS, TRADES)))
        marks += counted(anvil.rpc, deployment, *marks[-1])
        missing = events * chapter // CHAPTERS - marks[-1][1]
        sprayer.mine(max(0, -(-missing // PER_BLOCK)))
        say(f"  {chapter} of {CHAPTERS} chapters are on the chain")
    marks += counted(anvil.rpc, deployment, *marks[-1])
    market.close()
    chain.close()
    return Grown(deployment, market.run, trader, rounds.steady.owner.address, rounds.crooked.node, tuple(marks))


def counted(rpc: Rpc, deployment: Deployment, block: int, events: int) -> list[tuple[int, int]]:
    """How many events of the contracts there are up to every so manieth block, given how many up to ``block``.

    Those that have no meaning to anybody are left out.
    """
    head, marks = int(rpc.call("eth_blockNumber"), 16), []
    topics = sorted({topic for of_contract in decoders().values() for topic in of_contract})
    for first in range(block + 1, head + 1, RANGE):
        last = min(first + RANGE - 1, head)
        where = {"fromBlock": hex(first), "toBlock": hex(last), "address": list(deployment.addresses)}
        events += len(rpc.call("eth_getLogs", where | {"topics": [topics]}))
        marks.append((last, events))
    return marks


def _wallet(anvil: Anvil, name: str) -> Wallet:
    wallet = Wallet(name, secrets.token_bytes(32))
    anvil.fund(wallet.address)
    return wallet
