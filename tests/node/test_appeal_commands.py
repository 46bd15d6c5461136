"""A verdict disputed from a terminal; what cannot be disputed is one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.amounts import tokens
from protocol.chain.events import RoundOpened
from protocol.chain.reading.client import Chain
from protocol.chain.structs import State, Submission
from protocol.chain.writing import calls
from protocol.node.wallet import Wallet
from protocol.wire import auth
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from protocol.wire.reasons import Reason
from tests.conftest import TOKEN, Anvil
from tests.coordinator.swarm import FEE, Swarm
from tests.node.conftest import Assize
from tests.typing_in import Typed

DEPOSIT = TOKEN // 10 + 6 * FEE
CHALLENGE = 600


@pytest.fixture
def swarm(chain: Chain, anvil: Anvil, make_wallet: Callable[[str], Wallet], tmp_path: Path) -> Iterator[Swarm]:
    made = Swarm(chain, anvil, make_wallet, "", tmp_path, committee=1, appeal_seats=3, challenge=CHALLENGE)
    yield made
    made.close()


def opened(swarm: Swarm) -> tuple[int, bytes]:
    """A round of three jobs of which the first two are submitted; its number and its assignments."""
    deployment, worker = swarm.chain.deployment, swarm.workers[0]
    assignments = pack_assignments([Listing(worker.node, 3)])
    receipt = swarm.send(swarm.coordinator, calls.open_round(deployment, swarm.run, 1, 0, assignments))
    (event,) = [log.event for log in receipt.logs if isinstance(log.event, RoundOpened)]
    leaves, beacon = pack_leaves([Leaf(job, 1000, bytes([job + 1]) * 32) for job in (0, 1)]), receipt.block_hash
    message = auth.submission(
        deployment.chain_id, deployment.rounds, event.round, worker.node, beacon, leaves, "http://a/"
    )
    signed = Submission(worker.node, beacon, leaves, "http://a/", worker.key.sign_typed(message))
    swarm.send(swarm.coordinator, calls.submit(deployment, event.round, assignments, [signed]))
    return event.round, assignments


def judged(swarm: Swarm) -> int:
    """A round in which job 0 is found fraudulent and job 1 accepted."""
    deployment, (number, assignments) = swarm.chain.deployment, opened(swarm)
    pass_time(swarm, swarm.window + 1)
    swarm.send(swarm.coordinator, calls.close_round(deployment, number, assignments))
    try_it(swarm, number, {0: Reason.SAMPLING_FRAUD, 1: Reason.ACCEPTED})
    return number


def try_it(swarm: Swarm, number: int, reasons: dict[int, Reason]) -> None:
    """Draws and votes; tallies an appeal, which its last reveal does not."""
    swarm.send(swarm.coordinator, calls.draw(swarm.chain.deployment, number))
    swarm.vote(number, reasons)
    if swarm.chain.latest().round(number).state is State.VOTING:
        swarm.send(swarm.coordinator, calls.tally(swarm.chain.deployment, number))


def pass_time(swarm: Swarm, seconds: int) -> None:
    swarm.anvil.rpc.call("evm_increaseTime", hex(seconds))
    swarm.anvil.rpc.call("evm_mine")


def refused(outcome: Typed, *words: str) -> None:
    """One sentence, these words in it, exit code 1."""
    assert outcome.code == 1, outcome.err
    assert len(outcome.err.strip().splitlines()) == 1, outcome.err
    assert all(word in outcome.err for word in words), outcome.err


def test_a_verdict_is_appealed_tried_again_and_shown(assize: Assize, swarm: Swarm) -> None:
    number = judged(swarm)
    refused(assize("appeal", "open", number, 0), f"deposit of {tokens(DEPOSIT)}", "get tokens with")
    assert assize("wallet", "drip", 1, "--json").code == 0
    dry = assize("appeal", "open", number, 0, "--dry-run", "--json").json
    assert (dry["would_call"][:14], dry["then"][:11]) == ("Token.approve(", "Credits.buy"), "credits come first"
    appeal = assize("appeal", "open", number, 0, "--json").json
    assert (appeal["round"], appeal["job"], appeal["against"]) == (number, 0, "fraud")
    assert appeal["deposit_wei"] == str(DEPOSIT)
    (row,) = assize("appeal", "list", "--json").json
    assert (row["appeal"], row["state"], row["verdict"]) == (appeal["appeal"], "closed", None)
    try_it(swarm, appeal["appeal"], {0: Reason.ACCEPTED})
    shown = assize("appeal", "show", appeal["appeal"], "--json").json
    assert (shown["verdict"], shown["decided"], shown["forfeited_wei"]) == ("accepted", True, "0")
    assert int(shown["awarded_wei"]) > int(shown["fees_wei"]) == 3 * FEE
    refused(assize("appeal", "open", number, 0), "was appealed already, as number")
    refused(assize("appeal", "open", appeal["appeal"], 0), "an appeal is final")
    refused(assize("appeal", "show", number), "is not the number of an appeal")


def test_what_cannot_be_appealed_is_one_sentence(assize: Assize, swarm: Swarm) -> None:
    refused(assize("appeal", "open", 77, 0), "there is no round 77")
    early, _ = opened(swarm)
    refused(assize("appeal", "open", early, 0), "has no verdict yet")
    number = judged(swarm)
    refused(assize("appeal", "open", number, 2), "was never submitted")
    refused(assize("appeal", "open", number, 3), "has the jobs 0 to 2, no job 3")
    pass_time(swarm, CHALLENGE)
    refused(assize("appeal", "open", number, 0), "the time to appeal", "was over")


def test_a_key_is_revoked_and_replaced(assize: Assize, swarm: Swarm) -> None:
    assert assize("wallet", "drip", 100, "--json").code == 0
    words = ("--owner-keystore", "alice", "--node-keystore", "box", "--role", "worker", "--capacity", 1, "--json")
    node = assize("node", "register", *words).json["node"]
    assert assize("node", "revoke-key", node, "--json").code == 0
    assert assize("node", "list", "--json").json[-1]["key"] is None
    fresh = assize("wallet", "new", "box-2", "--json").json["address"]
    assert assize("node", "rotate", node, "--node-keystore", "box-2", "--json").json["key"] == fresh
    refused(assize("node", "rotate", node, "--node-keystore", "box-2"), "is the key of node", "already")
    refused(assize("node", "rotate", swarm.workers[0].node, "--node-keystore", "box"), "only its owner")
    refused(assize("run", "refund", swarm.run), "only its requester")
