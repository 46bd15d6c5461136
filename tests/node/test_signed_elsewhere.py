"""Every command that changes something, planned for an address, signed elsewhere and sent: the same effects."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.chain.reading.client import Chain
from protocol.node.wallet import Keystores, Wallet
from protocol.wire.rules import encode_rules, with_checkpoint
from tests.checkpoints import smallest
from tests.conftest import TOKEN, Anvil
from tests.protocol.test_checkpoints import RULES
from tests.typing_in import Desk

ROUNDS = 5
"""Most calls of one command."""

Elsewhere = Callable[..., list[str]]


@pytest.fixture
def desk(tmp_path: Path, anvil: Anvil, chain: Chain) -> Desk:
    return Desk.of(tmp_path, anvil, chain.deployment)


def signed(unsigned: dict[str, Any], wallet: Wallet) -> str:
    """The raw transaction, as a signer that knows nothing of Assize makes it."""
    numbers = ("value", "nonce", "gas", "maxFeePerGas", "maxPriorityFeePerGas", "chainId")
    fields = {"type": 2, "to": unsigned["to"], "data": unsigned["data"]}
    return "0x" + wallet.sign_transaction(fields | {name: int(unsigned[name]) for name in numbers}).hex()


@pytest.fixture
def elsewhere(desk: Desk) -> Elsewhere:
    """Types a command until all of its calls are sent; the key is not where the command is. The events, in order."""
    keystores = Keystores(desk.folder / "keystores")
    wallet = keystores.open("alice", "pw")
    (desk.folder / "keystores" / "alice.json").unlink()

    def run(*words: object) -> list[str]:
        events: list[str] = []
        for _ in range(ROUNDS):
            unsigned = desk.types(*words, "--unsigned", "--from", wallet.address, "--json").json
            assert unsigned["from"] == wallet.address
            sent = desk.types("send", signed(unsigned, wallet), "--json").json
            assert sent["call"] == unsigned["description"]
            events += [event["event"] for event in sent["events"]]
            if "then" not in unsigned:
                return events
        raise AssertionError(f"still not done: {unsigned}")

    return run


def test_a_provider_and_a_requester_hold_no_key_here(
    desk: Desk, elsewhere: Elsewhere, chain: Chain, anvil: Anvil
) -> None:
    rules, other = desk.folder / "rules.json", desk.folder / "more.json"
    made = with_checkpoint(RULES, smallest(desk.folder / "model", bytes(8)))
    rules.write_bytes(encode_rules(made))
    other.write_bytes(encode_rules(made.model_copy(update={"temperature": 0.5})))
    spare = Keystores(desk.folder / "keystores").create("spare", "pw", scrypt_n=2**4).address
    terms = ("--price-per-unit", "1wei", "--juror-fee", 1, "--max-units", 9, "--uri", "http://127.0.0.1:1")
    parties = ("--model-root", "0x" + "11" * 32, "--coordinator", spare, "--trainer", spare)
    for words, events in [
        (("wallet", "drip", 100), ["Transfer"]),
        (("wallet", "send", spare, 3), ["Transfer"]),
        (("wallet", "send", spare, 1, "--coin"), []),
        (("node", "register", "--node-keystore", "box", "--role", "worker", "--capacity", 2), ["NodeRegistered"]),
        (("stake", "deposit", 1, 2), ["BondToppedUp"]),
        (("node", "rotate", 1, "--node-keystore", "spare"), ["KeyRotated"]),
        (("credits", "buy", 5), ["CreditsBought"]),
        (("credits", "redeem", 1, "--to", spare), ["CreditsRedeemed"]),
        (("run", "open", "--rules", rules, *parties, *terms), ["RunOpened"]),
        (("run", "fund", 1, 9), ["RunFunded"]),
        (("run", "join", 1, 1), ["NodeJoined"]),
        (("run", "leave", 1, 1), ["NodeLeft"]),
        (("run", "announce", 1, "--rules", other), ["TermsAnnounced"]),
        (("run", "close", 1), ["RunClosed"]),
        (("run", "refund", 1, "all"), ["RunRefunded"]),
        (("node", "revoke-key", 1), ["KeyRevoked"]),
        (("node", "retire", 1), ["NodeRetired"]),
    ]:
        assert set(events) <= set(elsewhere(*words)), words
    state = chain.latest()
    assert state.node(1).bond == 4 * TOKEN
    assert state.balance_of(spare) == 4 * TOKEN
    assert state.run(1).closed
    assert not (desk.folder / "state").exists(), "a command that signs nothing keeps no journal"


def test_an_address_without_coin_can_plan_for_a_safe_that_others_pay_for(desk: Desk) -> None:
    stranger = "0x" + "5a" * 20
    unsigned = desk.types("wallet", "drip", 5, "--unsigned", "--from", stranger)
    assert unsigned.code == 0, unsigned.err
    assert json.loads(unsigned.out)["nonce"] == 0
    dry = desk.types("wallet", "drip", 5, "--dry-run", "--from", stranger, "--json").json
    assert dry["would_call"] == json.loads(unsigned.out)["description"]
    refused = desk.types("wallet", "send", "alice", 1, "--coin", "--unsigned", "--from", stranger)
    assert refused.code == 1
    assert "has 0 coin: too little to send 1 coin" in refused.err


@pytest.mark.parametrize("tool", ["geth", "ape"])
def test_a_keystore_of_geth_or_ape_registers_as_it_is(desk: Desk, anvil: Anvil, tool: str) -> None:
    file = Path(__file__).with_name("keystores") / f"{tool}.json"
    (desk.folder / "theirs").write_text("worthless\n")
    owner = Keystores(desk.folder).address_of(str(file))
    anvil.fund(owner)
    password = ("--password-file", desk.folder / "theirs", "--json")
    assert desk.types("wallet", "drip", 5, "--keystore", file, *password).json["address"] == owner
    registered = desk.types(
        *("node", "register", "--owner-keystore", file, "--node-keystore", "box", "--role", "worker"),
        *("--node-password-file", desk.folder / "password", *password),
    )
    assert registered.json["owner"] == owner
