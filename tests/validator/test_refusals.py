"""A vote that the contract refuses once is no vote lost: whoever is absent is slashed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.chain.structs import State
from protocol.chain.writing import calls
from protocol.chain.writing.calls import Call
from tests.chaos.between import Between
from tests.conftest import Anvil
from tests.interfering import lagging, overtaking
from tests.validator.scene import Cast, Scene


def commit(deployment: Deployment) -> Call:
    return calls.commit(deployment, 1, bytes(32))


def reveal(deployment: Deployment) -> Call:
    return calls.reveal(deployment, 1, 0, 0, b"", bytes(32), bytes(32))


@pytest.fixture
def between(anvil: Anvil, cast: Cast) -> Between:
    """What stands between the validators and the chain."""
    made = Between(anvil.port)
    cast.rpc_url = made.url
    cast.closing.append(made.close)
    return made


@pytest.mark.parametrize("like", [commit, reveal])
def test_a_vote_that_an_rpc_behind_the_chain_refuses_is_sent_again_after_a_pause(
    between: Between, make_scene: Callable[..., Scene], anvil: Anvil, like: Callable[[Deployment], Call]
) -> None:
    scene, simulations = make_scene(), list[str]()
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1})
    with between.interfering(lagging(anvil, like(scene.chain.deployment), 1, simulations)):
        scene.tick_until(opened.round, State.TALLIED)
    assert Counter(simulations) == {juror.key.address: 2 for juror in scene.jurors}, "not again in every tick"
    assert {revealed.juror for revealed in scene.reveals()} == {juror.node for juror in scene.jurors}
    assert scene.chain.latest().round(opened.round).accepted == 0b11


@pytest.mark.parametrize("like", [commit, reveal])
def test_a_vote_whose_nonce_another_program_took_is_sent_under_a_new_key(
    between: Between, make_scene: Callable[..., Scene], anvil: Anvil, chain: Chain, like: Callable[[Deployment], Call]
) -> None:
    scene, taken = make_scene(), list[str]()
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1})
    juror = scene.jurors[0]
    with between.interfering(overtaking(anvil, chain, juror.key, like(scene.chain.deployment), taken)):
        scene.tick_until(opened.round, State.TALLIED)
    assert len(taken) == 1
    assert juror.node in {revealed.juror for revealed in scene.reveals()}
