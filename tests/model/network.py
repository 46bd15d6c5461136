"""All that people do on the market, one step at a time, on the contracts and the model beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import note
from hypothesis.stateful import rule

from protocol.chain.writing.deploying import deploy
from protocol.node.wallet import Wallet
from tests.conftest import Anvil
from tests.model import parties
from tests.model.chain import Contracts
from tests.model.chance import SEED, Chance
from tests.model.hostile_rules import HostileRules
from tests.model.node_rules import NodeRules
from tests.model.run_rules import RunRules
from tests.model.twins import Twins
from tests.model.verdict_rules import VerdictRules


class Network(VerdictRules, RunRules, NodeRules, HostileRules):
    """One rule of many kinds: hypothesis leaves rules out of examples, and may not leave out what leads on."""

    @rule(seed=SEED)
    def step(self, seed: int) -> None:
        chance = Chance(seed, self.twins.now)
        way = self.choose(chance)
        note(way.__name__)
        way(chance)

    def choose(self, chance: Chance) -> Callable[[Chance], None]:
        """What happens next."""
        ways = (
            *[self.rounds_go_on] * 10,
            *[self.somebody_meddles] * 3,
            *[self.an_owner_acts] * 3,
            *[self.a_requester_or_trainer_acts] * 3,
            *[self.a_round_was_left_alone] * 2,
        )
        return chance.pick(ways)


@contextmanager
def open_network(folder: Path, same_each_time: bool = False) -> Iterator[Twins]:
    """A chain that takes calls from anybody, and the contracts on it beside the model.

    ``same_each_time``: every block comes a second after the last, so that hashes are those of every other such chain.
    """
    anvil = Anvil(folder, "--auto-impersonate", "--timestamp", "1700000000")
    try:
        if same_each_time:
            anvil.rpc.call("anvil_setBlockTimestampInterval", 1)
        deployer = Wallet("deployer", parties.SALT)
        anvil.fund(deployer.address)
        deployment = deploy(anvil.url, deployer, parties.TERMS, parties.TREASURY, parties.ADMIN)
        Network.twins = Twins(Contracts(anvil.rpc, deployment))
        yield Network.twins
    finally:
        anvil.stop()
