"""Validators of the local network join the runs that others open, and try a join that is refused once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from deploy.localnet import consenting
from deploy.localnet.consenting import ConsentingValidators
from deploy.localnet.parties import Party
from deploy.localnet.services import NetworkLayout
from protocol.chain.reading.client import Chain
from protocol.chain.structs import Role
from protocol.chain.writing import calls
from protocol.errors import Rejected
from protocol.node.wallet import Keystores, Wallet
from tests.conftest import TOKEN, Anvil
from tests.ledger.scenario import Market, terms_of

PARTY = Party("validator-1", "validator")


@pytest.fixture
def market(chain: Chain, anvil: Anvil, make_wallet: Callable[[str], Wallet], tmp_path: Path) -> Iterator[Market]:
    """The network's own run and a validator that has joined nothing yet."""
    with closing(Market(chain, anvil, make_wallet, tmp_path)) as made:
        for _ in range(2):
            requester = made.rich("requester", "Credits")
            made.open_run(requester, terms_of(make_wallet("coordinator"), make_wallet("trainer")), TOKEN)
        yield made


@pytest.fixture
def validators(market: Market, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConsentingValidators:
    """The validator as the supervisor sees it; it looks as often as it is asked to."""
    monkeypatch.setattr(consenting, "LOOK_SECONDS", 0.0)
    layout = NetworkLayout(tmp_path, {}, tmp_path / "run.toml", tmp_path / "rules.json", run=1)
    judge = market.register(PARTY.name, Role.VALIDATOR, 1)
    market.close()  # its keys are free for another sender
    market.senders.clear()
    layout.password_file.write_text("pw\n")
    Keystores(layout.keystores).keep(PARTY.owner, bytes(judge.owner._account.key), "pw", scrypt_n=2**4)
    (tmp_path / "state" / "setup").mkdir(parents=True)
    return ConsentingValidators(layout, market.chain, [PARTY], {PARTY.name: judge.node})


def test_a_run_that_is_opened_is_joined_and_told_once(market: Market, validators: ConsentingValidators) -> None:
    (node,) = validators.owners
    assert validators.look() == [2], "its own run was joined when it was opened"
    reader = market.chain.latest()
    assert reader.joined_at(2, node) == reader.run(2).terms.rules_hash
    assert validators.look() == []
    market.send(Keystores(validators.layout.keystores).open(PARTY.owner, "pw"), calls.leave(market.deployment, 2, node))
    market.close()
    assert validators.look() == [2], "one that has left may join again"


def test_a_join_that_is_refused_is_neither_told_nor_tried_again(
    validators: ConsentingValidators, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def refused(sender: object, run: int, *more: object) -> None:
        tried.append(run)
        raise Rejected("it was put out of this run")

    monkeypatch.setattr(consenting.actions, "join_run", refused)
    assert [validators.look(), validators.look(), tried] == [[], [], [2]]
