"""Keys of Foundry and ours in each other's hands, and transactions that the real ``cast`` signs for us."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.chain.reading.client import Chain
from protocol.node.wallet import Keystores
from tests.cast import PASSWORD, cast, cast_key, signed_by_cast
from tests.conftest import TOKEN, Anvil
from tests.typing_in import Desk


@pytest.fixture
def desk(tmp_path: Path, anvil: Anvil, chain: Chain) -> Desk:
    return Desk.of(tmp_path, anvil, chain.deployment)


@pytest.fixture
def foundry(tmp_path: Path, anvil: Anvil) -> tuple[Path, str]:
    """A funded key of Foundry, in Foundry's own place; its keystore and address."""
    folder = tmp_path / ".foundry" / "keystores"
    address = cast_key(folder, "carol")
    anvil.fund(address)
    return folder / "carol", address


def test_a_key_of_cast_opens_lists_signs_and_registers(foundry: tuple[Path, str], desk: Desk) -> None:
    _, address = foundry
    assert {"name": "carol", "address": "shown by its password", "of": "foundry"} in desk.types(
        "wallet", "list", "--json"
    ).json
    assert desk.types("wallet", "address", "carol", "--json").json["address"] == address
    assert desk.types("wallet", "drip", 20, "--json", ASSIZE_KEYSTORE="carol").json["address"] == address
    registered = desk.types(
        *("node", "register", "--owner-keystore", "carol", "--node-keystore", "box", "--role", "worker"),
        *("--capacity", 2, "--json"),
    ).json
    assert registered["owner"] == address


def test_our_keys_open_in_cast(tmp_path: Path) -> None:
    made = Keystores(tmp_path / "keys").create("alice", PASSWORD)
    file = tmp_path / "keys" / "alice.json"
    assert cast("wallet", "address", "--keystore", file, "--password", PASSWORD) == made.address
    shown = cast("wallet", "decrypt-keystore", "--keystore-dir", file.parent, file.name, "--unsafe-password", PASSWORD)
    key = shown.rsplit(" ", 1)[-1]
    assert cast("wallet", "address", "--private-key", key) == made.address


@pytest.fixture
def by_cast(foundry: tuple[Path, str], desk: Desk, anvil: Anvil) -> Callable[..., Any]:
    """Types a command with ``--unsigned``, has cast sign what it prints, and sends that; what each printed."""
    keystore, address = foundry

    def run(*words: object) -> tuple[dict[str, Any], dict[str, Any]]:
        unsigned = desk.types(*words, "--unsigned", "--from", address, "--json").json
        raw = signed_by_cast(unsigned, keystore, anvil.url)
        return unsigned, desk.types("send", raw, "--json").json

    return run


def test_a_provider_registers_with_a_key_that_only_cast_holds(
    by_cast: Callable[..., Any], desk: Desk, chain: Chain, foundry: tuple[Path, str], tmp_path: Path
) -> None:
    _, address = foundry
    unsigned, sent = by_cast("wallet", "drip", 20)
    assert list(unsigned) == [
        *("to", "data", "value", "nonce", "gas", "maxFeePerGas", "maxPriorityFeePerGas"),
        *("chainId", "from", "description"),
    ]
    assert unsigned["description"] == sent["call"] == f"Token.drip(to={address}, amount=20 ASZ)"
    register = ("node", "register", "--node-keystore", "box", "--role", "worker", "--capacity", 2)
    first, _ = by_cast(*register)
    assert first["description"].startswith("Token.approve(")
    assert first["then"][0].startswith("Registry.register(role=worker")
    second, sent = by_cast(*register)
    assert "then" not in second
    assert [event["event"] for event in sent["events"]] == ["NodeRegistered", "Transfer"]
    node = chain.latest().node(sent["events"][0]["node"])
    assert (node.owner, node.bond) == (address, 2 * TOKEN)


def test_a_transaction_sent_twice_has_the_same_receipt(
    foundry: tuple[Path, str], desk: Desk, anvil: Anvil, chain: Chain, tmp_path: Path
) -> None:
    keystore, address = foundry
    desk.types("wallet", "drip", 5, ASSIZE_KEYSTORE="carol")
    unsigned = desk.types("wallet", "send", "alice", 2, "--unsigned", "--from", address, "--json").json
    (tmp_path / "signed.txt").write_text(signed_by_cast(unsigned, keystore, anvil.url) + "\n")
    assert desk.types("send", tmp_path / "signed.txt", "--dry-run", "--json").json["from"] == address
    raw = desk.types("send", "-", stdin=b"\x02\xf8\xff" * 9)
    assert (raw.code, "not a signed transaction: expected the hex that a signer prints" in raw.err) == (1, True)
    assert chain.latest().balance_of(address) == 5 * TOKEN
    first, again = (desk.types("send", tmp_path / "signed.txt", "--json") for _ in range(2))
    assert first.json == again.json
    assert "sending: Token.transfer(" in first.err
    assert "mined before: Token.transfer(" in again.err
    assert chain.latest().balance_of(address) == 3 * TOKEN


def test_a_signature_for_a_used_nonce_a_later_one_or_another_chain_is_refused(
    foundry: tuple[Path, str], desk: Desk, anvil: Anvil
) -> None:
    keystore, address = foundry
    desk.types("wallet", "drip", 5, ASSIZE_KEYSTORE="carol")
    unsigned = desk.types("wallet", "send", "alice", 2, "--unsigned", "--from", address, "--json").json
    for changed, sentence in [
        ({"nonce": unsigned["nonce"] - 1}, "is used by transaction 0x"),
        ({"nonce": unsigned["nonce"] + 4}, "is not due: its next one is"),
        ({"chainId": 1}, "signed for chain 1, and the network is chain 31337"),
        ({"maxFeePerGas": "1", "maxPriorityFeePerGas": "0"}, "underpriced: it bids 1 wei"),
    ]:
        raw = signed_by_cast(unsigned | changed, keystore, anvil.url)
        refused = desk.types("send", raw)
        assert (refused.code, sentence in refused.err) == (1, True), refused.err
        assert len(refused.err.strip().splitlines()) == 1


def test_an_unsigned_transaction_that_a_contract_refuses_is_a_sentence(foundry: tuple[Path, str], desk: Desk) -> None:
    _, address = foundry
    refused = desk.types("credits", "buy", 5, "--unsigned", "--from", address)
    assert refused.code == 1
    assert "too few tokens" in refused.err
    alone = desk.types("credits", "buy", 5, "--from", address)
    assert alone.code == 2
    assert "add --unsigned or --dry-run" in alone.err
