"""The whole way of a provider and a requester, typed at the front door against a real chain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.chain.reading.client import Chain
from protocol.chain.reverts import Reverted
from protocol.chain.structs import Role, RunTerms
from protocol.chain.writing import actions, calls
from protocol.chain.writing.sender import Sender
from protocol.errors import Rejected
from protocol.node.commands.run import hash_of
from protocol.node.wallet import Wallet
from protocol.wire import manifest
from tests.checkpoints import smallest
from tests.conftest import TOKEN
from tests.node.conftest import Assize
from tests.typing_in import Typed


def register(assize: Assize, *more: object) -> Typed:
    return assize(
        *("node", "register", "--owner-keystore", "alice", "--node-keystore", "box", "--role", "worker"),
        *("--capacity", 16, "--json", *more),
    )


def test_a_provider_registers_lists_tops_up_and_retires(assize: Assize) -> None:
    refused = register(assize)
    assert refused.code == 1
    assert "bond too small" in refused.err
    assert "get tokens with: assize wallet drip" in refused.err
    assert assize("wallet", "drip", 100, "--json").json["amount_wei"] == str(100 * TOKEN)
    dry = register(assize, "--dry-run").json
    assert dry["would_call"].startswith("Token.approve(")
    assert dry["then"].startswith("Registry.register(role=worker")
    node = register(assize).json
    assert (node["node"], node["bond_wei"]) == (1, str(16 * TOKEN))
    assert assize("stake", "deposit", 1, "1 ASZ", "--json").json["amount_wei"] == str(TOKEN)
    assert assize("node", "list", "--json").json[0]["bond_wei"] == str(17 * TOKEN)
    told = assize("stake", "explain", 1, "--slashes", 2, "--json").json
    assert {name: told[name] for name in ("margin_wei", "carries_jobs", "in_flight", "after_2_slashes_wei")} == {
        "margin_wei": str(TOKEN),
        "carries_jobs": 17,
        "in_flight": 0,
        "after_2_slashes_wei": str(15 * TOKEN),
    }
    assert told["then"].endswith("no new jobs or seats until 1 ASZ are added")
    assert assize("node", "retire", 1, "--json").json["withdrawable_at"] > 0
    assert "assize stake withdraw 1" in assize("stake", "explain", 1).out
    early = assize("stake", "withdraw", 1)
    assert early.code == 1
    assert "the bond of node 1 can be withdrawn from" in early.err
    assert "UTC, once its 0 jobs in flight have ended (StillBonded)" in early.err


@pytest.mark.parametrize(
    ("changed", "code", "sentence"),
    [
        ({"ASSIZE_RPC_URL": "http://127.0.0.1:1"}, 3, "no RPC answers at"),
        ({"ASSIZE_PASSWORD_FILE": __file__}, 2, "wrong password for keystore alice"),
        ({"ASSIZE_KEYSTORE": "bob"}, 2, "no keystore bob"),
        ({"ASSIZE_ADDRESSES": "nowhere.json"}, 2, "cannot read the address file"),
    ],
)
def test_wrong_input_is_one_sentence_and_a_code(
    assize: Assize, changed: dict[str, str], code: int, sentence: str
) -> None:
    outcome = assize("wallet", "drip", 1, **changed)
    assert outcome.code == code
    assert sentence in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1


def test_a_key_is_made_listed_and_its_balance_shown(assize: Assize) -> None:
    made = assize("wallet", "new", "carol", "--json").json
    assert made | {"of": "assize"} in assize("wallet", "list", "--json").json
    (balance,) = assize("wallet", "balance", "--keystore", "carol", "--json").json
    assert balance == {"name": "carol", "address": made["address"]} | dict.fromkeys(
        ("native_wei", "token_wei", "credits_wei"), "0"
    )


def test_the_faucet_gives_gas_with_tokens_and_both_are_sent_on(assize: Assize) -> None:
    made = assize("wallet", "new", "dora", "--json").json
    dripped = assize("wallet", "drip", 2, "--keystore", "dora", "--json")
    assert dripped.json["amount_wei"] == str(2 * TOKEN)
    sent = assize("wallet", "send", "alice", "0.5", "--coin", "--keystore", "dora", "--json").json
    assert sent["native_wei"] == str(TOKEN // 2)
    assert assize("wallet", "send", "alice", "all", "--keystore", "dora", "--json").json["amount_wei"] == str(2 * TOKEN)
    (balance,) = assize("wallet", "balance", "--address", made["address"], "--json").json
    assert balance["token_wei"] == "0"
    assert int(balance["native_wei"]) < TOKEN // 2
    refused = assize("wallet", "send", "alice", 9, "--coin", "--keystore", "dora")
    assert refused.code == 1
    assert "too little to send 9 coin" in refused.err
    assert assize("wallet", "send", "alice", 9, "--keystore", "dora").code == 1


def test_a_directory_has_the_root_by_which_a_run_names_it(assize: Assize, tmp_path: Path) -> None:
    model = smallest(tmp_path / "model", bytes(8))
    shown = assize("run", "root", model, "--json").json
    assert shown["model_root"] == "0x" + manifest.from_directory(model, 0).root.hex()
    missing = assize("run", "root", tmp_path / "none")
    assert missing.code == 2
    assert "no directory" in missing.err


# The same steps through the functions that the local network uses


@pytest.fixture
def owner(chain: Chain, make_wallet: Callable[[str], Wallet], tmp_path: Path) -> Any:
    sender = Sender(chain, make_wallet("owner"), tmp_path / "owner.sqlite")
    actions.drip(sender, 1000 * TOKEN).carry_out("drip")
    yield sender
    sender.close()


def terms_of(address: str) -> RunTerms:
    return RunTerms(address, address, b"\7" * 32, 1, 1, 1000, 3, 0, 60, 60, 60, 60, 0)


def test_a_run_is_opened_funded_and_joined(owner: Sender, chain: Chain, make_wallet: Callable[[str], Wallet]) -> None:
    node = actions.register_node(owner, make_wallet("key"), Role.WORKER, 4).carry_out("register")
    opened = actions.open_run(owner, terms_of(owner.address), b"\1" * 32, "http://here").carry_out("open")
    actions.fund_run(owner, opened.run, 5 * TOKEN).carry_out("fund")
    actions.join_run(owner, opened.run, node.node).carry_out("join")
    reader = chain.pinned(chain.head())
    run = reader.run(opened.run)
    assert (run.escrow, run.terms, run.version) == (5 * TOKEN, opened.terms, 0)
    assert reader.joined_at(opened.run, node.node) == b"\7" * 32
    assert reader.manifest_root(opened.run, 0) == b"\1" * 32
    assert (reader.view("Credits", "totalLocked"), reader.credits_of(owner.address)) == (5 * TOKEN, 0)


def test_a_run_is_not_joined_at_other_rules(owner: Sender, make_wallet: Callable[[str], Wallet]) -> None:
    node = actions.register_node(owner, make_wallet("key"), Role.WORKER, 4).carry_out("register")
    opened = actions.open_run(owner, terms_of(owner.address), b"\1" * 32, "http://here").carry_out("open")
    with pytest.raises(Rejected, match="read them before joining"):
        actions.join_run(owner, opened.run, node.node, b"\5" * 32).carry_out("join")


def test_a_dry_run_names_every_call_that_is_sent(owner: Sender, chain: Chain) -> None:
    opened = actions.open_run(owner, terms_of(owner.address), b"\1" * 32, "http://here").carry_out("open")
    dry = actions.fund_run(owner, opened.run, 5 * TOKEN).dry_run()
    named = [call.description.split("(")[0] for call in (dry.first, *dry.then)]
    assert named == ["Token.approve", "Credits.buy", "Market.fund"]
    assert chain.latest().run(opened.run).escrow == 0


def test_an_unfunded_run_opens_no_round(owner: Sender, chain: Chain) -> None:
    opened = actions.open_run(owner, terms_of(owner.address), b"\1" * 32, "http://here").carry_out("open")
    with pytest.raises(Reverted, match="the contract refused: "):
        owner.send("round", calls.open_round(chain.deployment, opened.run, 1, 0, bytes(5)))


def test_credits_are_bought_and_redeemed(owner: Sender, chain: Chain, make_wallet: Callable[[str], Wallet]) -> None:
    actions.buy_credits(owner, 3 * TOKEN).carry_out("buy")
    actions.redeem_credits(owner, TOKEN).carry_out("redeem")
    assert chain.latest().credits_of(owner.address) == 2 * TOKEN
    cold = make_wallet("cold").address
    actions.redeem_credits(owner, TOKEN, cold).carry_out("to a cold address")
    assert chain.latest().credits_of(owner.address) == TOKEN
    assert chain.latest().balance_of(cold) == TOKEN
    with pytest.raises(Rejected, match=r"has 1 ASZ in credits, not 3 ASZ"):
        actions.redeem_credits(owner, 3 * TOKEN).carry_out("more")


def test_a_key_serves_one_node(owner: Sender, make_wallet: Callable[[str], Wallet]) -> None:
    key = make_wallet("key")
    actions.register_node(owner, key, Role.VALIDATOR, 1).carry_out("first")
    with pytest.raises(Rejected, match="is already the key of node 1"):
        actions.register_node(owner, key, Role.VALIDATOR, 1).carry_out("second")


def test_a_hash_is_64_hex_digits() -> None:
    assert hash_of("0x" + "ab" * 32) == b"\xab" * 32
