"""Sending again after an earlier intent for the same call has failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from protocol.chain.reading.client import Chain
from protocol.chain.reverts import Reverted
from protocol.chain.writing import calls
from protocol.chain.writing.plans import plan_of
from protocol.chain.writing.sender import Sender, key_of
from protocol.errors import Rejected
from protocol.node.wallet import Wallet
from tests.chain.test_sender import QUICK
from tests.chaos.between import Between
from tests.conftest import Anvil
from tests.interfering import overtaking


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
def failed(
    chain: Chain, anvil: Anvil, make_wallet: Callable[[str], Wallet], journal: Path
) -> Iterator[tuple[Sender, Wallet]]:
    """A sender whose intent to drip has lost its nonce to another program."""
    between, wallet, taken = Between(anvil.port), make_wallet("alice"), list[str]()
    own = Chain(between.url, chain.deployment)
    sender = Sender(own, wallet, journal, QUICK)
    interference = overtaking(anvil, chain, wallet, drip(chain, wallet), taken)
    with between.interfering(interference), pytest.raises(Rejected, match="nonce 0 was taken by another program"):
        sender.send_once(key_of("drip", drip(chain, wallet)), drip(chain, wallet))
    yield sender, wallet
    sender.close()
    own.close()
    between.close()


def drip(chain: Chain, wallet: Wallet) -> calls.Call:
    return calls.drip(chain.deployment, wallet.address, 5)


def test_an_intent_that_failed_is_sent_once_under_a_new_key_also_after_a_restart(
    failed: tuple[Sender, Wallet], chain: Chain, anvil: Anvil, journal: Path
) -> None:
    sender, wallet = failed
    receipt = sender.send("drip", drip(chain, wallet))
    assert receipt.status == 1
    assert sender.send("drip", drip(chain, wallet)) == receipt
    sender.close()
    with closing(Sender(chain, wallet, journal, QUICK)) as restarted:
        assert restarted.send("drip", drip(chain, wallet)) == receipt, "a restart finds it in the journal"
    assert chain.latest().balance_of(wallet.address) == 5
    assert anvil.mined_from(wallet.address) == 2, "the other program's, and ours"


def test_another_call_by_the_same_name_is_another_intent(failed: tuple[Sender, Wallet], chain: Chain) -> None:
    sender, wallet = failed
    for amount in (5, 7, 7):
        assert sender.send("drip", calls.drip(chain.deployment, wallet.address, amount)).status == 1
    assert chain.latest().balance_of(wallet.address) == 12


def test_a_call_that_the_contract_refuses_is_not_sent_again(
    failed: tuple[Sender, Wallet], chain: Chain, anvil: Anvil
) -> None:
    sender, wallet = failed
    with pytest.raises(Reverted, match="UnknownNode"):
        sender.send("retire", calls.retire(chain.deployment, 9))
    assert anvil.mined_from(wallet.address) == 1


def test_a_plan_reports_a_call_that_has_failed_and_does_not_send_it_again(
    failed: tuple[Sender, Wallet], chain: Chain, anvil: Anvil
) -> None:
    sender, wallet = failed
    with pytest.raises(Rejected, match="nonce 0 was taken by another program"):
        plan_of(sender, drip(chain, wallet)).carry_out("drip")
    assert anvil.mined_from(wallet.address) == 1, "the other program's"
