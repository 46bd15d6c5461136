"""The reference model and the deployed contracts take the same steps: same results, same refusals, same views.

Each example starts from a small network (three workers, ten validators, three funded runs) and takes some forty steps.
Most of them lead rounds and appeals on towards an end; the others register, retire, announce, fund, pause, or try what
must be refused. After every step each view of the contracts is compared with the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from protocol.chain.deploying import deploy
from protocol.node.wallet import Wallet
from tests.conftest import Anvil
from tests.model import parties
from tests.model.chain import Contracts
from tests.model.hostile_rules import HostileRules
from tests.model.node_rules import NodeRules
from tests.model.round import bits_in, committee_slots
from tests.model.run_rules import RunRules
from tests.model.twins import Twins
from tests.model.verdict_rules import VerdictRules

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "contracts.json").read_text())

SETTINGS = settings(
    max_examples=30,
    stateful_step_count=45,
    deadline=None,
    derandomize=True,
    print_blob=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)

VERBS = {
    "Registry": ("register", "topUp", "retire", "withdraw", "rotateKey", "revokeKey", "sweep"),
    "Market": ("open", "fund", "close", "refund", "announce", "join", "leave", "publish"),
    "Rounds": (
        *("open", "submit", "close", "draw", "commit", "reveal", "tally"),
        *("appeal", "settle", "finish", "expire", "free"),
    ),
    "Credits": ("buy", "redeem"),
    "Admin": ("pause", "unpause", "setTreasury"),
}


class Network(VerdictRules, RunRules, NodeRules, HostileRules):
    """All rules."""


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """A chain that takes calls from anybody, and the contracts on it beside the model."""
    anvil = Anvil(tmp_path_factory.mktemp("model"), "--auto-impersonate", "--timestamp", "1700000000")
    deployer = Wallet("deployer", parties.SALT)
    anvil.fund(deployer.address)
    deployment = deploy(anvil.url, deployer, parties.TERMS, parties.TREASURY, parties.ADMIN)
    yield Twins(Contracts(anvil.rpc, deployment))
    anvil.stop()


@pytest.mark.parametrize("vector", VECTORS["draws"])
def test_the_models_draw_is_the_golden_one(vector: dict[str, object]) -> None:
    drawn = committee_slots(
        bytes.fromhex(str(vector["seed"])[2:]),
        int(str(vector["attempt"])),
        int(str(vector["slotCount"])),
        bits_in(int(str(vector["eligible"]), 16)),
        int(str(vector["seats"])),
    )
    assert drawn == vector["slots"]


def test_model_and_contracts_agree_at_every_step(twins: Twins) -> None:
    Network.twins = twins
    run_state_machine_as_test(Network, settings=SETTINGS)


def test_every_verb_succeeded_and_was_refused(twins: Twins) -> None:
    for contract, verbs in VERBS.items():
        for verb in verbs:
            assert twins.outcomes[contract, verb, ""], f"{contract}.{verb} never succeeded"


def test_rounds_and_appeals_came_to_every_end(twins: Twins) -> None:
    ends = ("round settled", "round void", "redrawn", "appeal undecided")
    appeals = [
        f"appeal against {verdict} {end}" for verdict in ("accepted", "fraud", "void") for end in ("won", "lost")
    ]
    assert {end for end in (*ends, *appeals) if not twins.endings[end]} == set()
