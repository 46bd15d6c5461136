"""``assize contracts``: deployed once whatever interrupts it, verified to the constant, run by its roles alone."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.localnet.processes import free_port
from protocol.amounts import tokens
from protocol.chain import abi
from protocol.chain.deployment import FINALITY_DEPTH, Deployment
from protocol.chain.reading.client import Chain
from protocol.chain.reading.creations import creations, difference
from protocol.chain.structs import ProtocolTerms
from protocol.chain.writing import deploying as deploying_module
from protocol.chain.writing.deploying import L1_FEES, L1_GAS, ORDER, Deploying, deploy, most_gas
from protocol.errors import Misconfigured, Rejected
from protocol.node.commands.contracts.terms_file import read_terms, terms_toml
from protocol.node.commands.contracts.verifying import deployed_terms, verify_contracts
from protocol.node.wallet import Wallet
from tests.chaos.between import Answer, Asked, Between, Forward
from tests.conftest import ROOT, TERMS, Anvil, deploy_on
from tests.node.conftest import Assize

TREASURY = "0x00000000000000000000000000000000000A5512"
FEE = 12_345_678


def words(tmp_path: Path, *more: object) -> tuple[object, ...]:
    (tmp_path / "terms.toml").write_text(terms_toml(TERMS))
    given = ("--terms", tmp_path / "terms.toml", "--keystore", "alice", "--treasury", TREASURY)
    return ("contracts", "deploy", *given, "--out", tmp_path / "new.json", *more)


def test_contracts_are_deployed_verified_and_have_the_terms_of_the_file(assize: Assize, tmp_path: Path) -> None:
    planned = assize(*words(tmp_path, "--dry-run", "--json")).json
    assert [row["contract"] for row in planned] == list(ORDER)
    assert not (tmp_path / "new.json").exists()
    made = assize(*words(tmp_path, "--json"))
    assert made.code == 0
    assert {row["contract"]: row["address"] for row in planned}.items() <= made.json.items()
    assert not list(tmp_path.glob("*.unfinished"))
    again = assize(*words(tmp_path))
    assert (again.code, "new.json exists" in again.err) == (2, True)
    place = ("--addresses", tmp_path / "new.json")
    verified = assize("contracts", "verify", *place, "--terms", tmp_path / "terms.toml", "--json")
    assert (verified.code, {row["fault"] for row in verified.json}) == (0, {"none"})
    assert assize("contracts", "terms", "show", *place).out == (tmp_path / "terms.toml").read_text()
    (tmp_path / "others.toml").write_text(terms_toml(replace(TERMS, admin_delay=TERMS.admin_delay + 1)))
    other = assize("contracts", "verify", *place, "--terms", tmp_path / "others.toml", "--json")
    faults = {row["what"]: row["fault"] for row in json.loads(other.out) if row["fault"] != "none"}
    assert (other.code, list(faults)) == (1, ["admin_delay"])


@pytest.fixture
def deployer(make_wallet: Callable[[str], Wallet]) -> Wallet:
    return make_wallet("deployer")


def begin(anvil: Anvil, deployer: Wallet, journal: Path, stop_after: int, terms: ProtocolTerms = TERMS) -> Deployment:
    """Deploys, and is interrupted once so many contracts were created."""
    told = iter(range(1, 99))

    def say(line: str) -> None:
        if next(told) == stop_after:
            raise KeyboardInterrupt

    return deploy(anvil.url, deployer, terms, TREASURY, journal=journal, say=say)


@pytest.mark.parametrize("created", range(1, len(ORDER) + 1))
def test_an_interrupted_deployment_goes_on_where_it_stopped(
    anvil: Anvil, deployer: Wallet, tmp_path: Path, created: int
) -> None:
    journal = tmp_path / "journal"
    with pytest.raises(KeyboardInterrupt):
        begin(anvil, deployer, journal, created)
    begun = json.loads(journal.read_text())["begun"]["nonce"]
    deployment = begin(anvil, deployer, journal, 99)
    assert int(anvil.rpc.call("eth_getTransactionCount", deployer.address, "latest"), 16) == begun + len(ORDER)
    with closing(Chain(anvil.url, deployment)) as chain:
        assert not [each.fault for each in verify_contracts(chain, TERMS) if each.fault]


def test_a_signed_transaction_that_was_not_sent_is_sent_and_one_that_was_is_not_made_anew(
    anvil: Anvil, deployer: Wallet, tmp_path: Path
) -> None:
    with closing(Deploying(anvil.url, tmp_path / "journal")) as deploying:
        plan = deploying.plan(deployer.address, TERMS, TREASURY, deployer.address)
        deploying._sign(plan, deployer, plan.nonce, "Token", 3 * 10**9, 10**9)
    signed = json.loads((tmp_path / "journal").read_text())["sent"]["Token"]
    begin(anvil, deployer, tmp_path / "journal", 99)
    assert json.loads((tmp_path / "journal").read_text())["sent"]["Token"] == signed


def test_a_journal_is_of_one_key_of_the_same_terms_and_of_one_chain(
    anvil: Anvil, deployer: Wallet, make_wallet: Callable[[str], Wallet], tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    with pytest.raises(KeyboardInterrupt):
        begin(anvil, deployer, journal, 2)
    with pytest.raises(Misconfigured, match="from another key or with other terms"):
        begin(anvil, deployer, journal, 99, replace(TERMS, admin_delay=7))
    with pytest.raises(Misconfigured, match="from another key or with other terms"):
        begin(anvil, make_wallet("other"), journal, 99)
    kept = json.loads(journal.read_text())
    kept["begun"]["start_hash"] = "0x" + "ab" * 32
    journal.write_text(json.dumps(kept))
    with pytest.raises(Misconfigured, match="on another chain"):
        begin(anvil, deployer, journal, 99)
    journal.write_text("{")
    with pytest.raises(Misconfigured, match="delete it to begin anew"):
        begin(anvil, deployer, journal, 99)


def test_a_nonce_that_another_transaction_took_is_named(
    anvil: Anvil, deployer: Wallet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(deploying_module, "TAKEN_SECONDS", 0.2)
    with pytest.raises(KeyboardInterrupt):
        begin(anvil, deployer, tmp_path / "journal", 2)
    taken = int(anvil.rpc.call("eth_getTransactionCount", deployer.address, "latest"), 16)
    fees = {"gas": 21_000, "maxFeePerGas": 10**10, "maxPriorityFeePerGas": 1, "chainId": 31337, "type": 2}
    raw = deployer.sign_transaction({"to": TREASURY, "value": 1, "nonce": taken, **fees})
    anvil.rpc.call("eth_sendRawTransaction", "0x" + raw.hex())
    with pytest.raises(Rejected, match=f"cannot create Credits: another transaction of .* took nonce {taken}"):
        begin(anvil, deployer, tmp_path / "journal", 99)


def test_the_cost_told_before_is_never_less_than_what_is_paid(anvil: Anvil, deployer: Wallet, tmp_path: Path) -> None:
    with closing(Deploying(anvil.url, tmp_path / "journal")) as deploying:
        plan = deploying.plan(deployer.address, TERMS, TREASURY, deployer.address)
        costs, before = deploying.costs(plan), deploying.balance(deployer.address)
        deploying.carry_out(plan, deployer)
        assert before - deploying.balance(deployer.address) <= sum(each.wei for each in costs)
    assert [each.data_wei for each in costs] == [0] * len(ORDER)
    assert most_gas(bytes(32)) < most_gas(b"\x01" * 32)


@pytest.mark.parametrize("address", [L1_FEES, L1_GAS])
def test_a_fee_for_data_on_another_chain_is_part_of_the_cost(anvil: Anvil, deployer: Wallet, address: str) -> None:
    answer_fee = "0x62" + FEE.to_bytes(3, "big").hex() + "60005260206000f3"  # PUSH3 fee, MSTORE, RETURN
    anvil.rpc.call("anvil_setCode", address, answer_fee)
    with closing(Deploying(anvil.url)) as deploying:
        costs = deploying.costs(deploying.plan(deployer.address, TERMS, TREASURY, deployer.address))
    if address == L1_FEES:
        assert {each.data_wei for each in costs} == {FEE}
    else:  # gas, which is paid at the bid
        assert [each.data_wei * each.gas for each in costs] == [FEE * each.wei for each in costs]


def test_a_deployment_goes_on_behind_a_node_that_lags(anvil: Anvil, deployer: Wallet) -> None:
    between, hidden = Between(anvil.port), set[str]()

    def late(asked: Asked, forward: Forward) -> Answer | None:
        """Shows each receipt at the second look, when the nonce was seen to be used."""
        answer = forward(asked)
        if asked.methods != ("eth_getTransactionReceipt",) or asked.calls[0]["params"][0] in hidden:
            return answer
        hidden.add(asked.calls[0]["params"][0])
        return answer.with_results(lambda one: {**one, "result": None})

    with closing(between), between.interfering(late):
        deploy(between.url, deployer, TERMS, TREASURY)
    assert len(hidden) == len(ORDER)


def test_a_deployment_asks_the_next_endpoint_and_starts_at_a_final_block(anvil: Anvil, deployer: Wallet) -> None:
    anvil.rpc.call("anvil_mine", hex(2 * FINALITY_DEPTH))
    head = int(anvil.rpc.call("eth_blockNumber"), 16)
    deployment = deploy(f"http://127.0.0.1:{free_port()},{anvil.url}", deployer, TERMS, TREASURY)
    assert deployment.start_block == head - FINALITY_DEPTH


def test_a_key_without_money_is_told_how_much_is_missing(assize: Assize, anvil: Anvil, tmp_path: Path) -> None:
    box = next(row["address"] for row in assize("wallet", "list", "--json").json if row["name"] == "box")
    anvil.rpc.call("anvil_setBalance", box, "0x1")
    poor = assize(*words(tmp_path), "--keystore", "box")
    assert (poor.code, "deploying takes up to" in poor.err, "Traceback" in poor.err) == (1, True, False)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("admin_delay = 1", "registry: Field required"),
        ("admin_delay = -1", "admin_delay: Input should be greater"),
        ("nonsense", "cannot read the terms file"),
        (terms_toml(TERMS).replace(f'"{tokens(TERMS.rounds.fraud_slash)}"', "2"), "expected an amount in quotes"),
        (terms_toml(TERMS).replace(" ASZ", " EUR"), "invalid amount"),
        (terms_toml(TERMS) + "tips = 1\n", "rounds.tips"),
    ],
)
def test_a_wrong_terms_file_is_refused_with_a_sentence(
    assize: Assize, tmp_path: Path, text: str, sentence: str
) -> None:
    command = words(tmp_path)
    (tmp_path / "terms.toml").write_text(text)
    done = assize(*command)
    assert (done.code, "Traceback" in done.err) == (2, False)
    assert sentence in done.err


def test_a_terms_file_holds_the_terms_to_the_wei(tmp_path: Path) -> None:
    odd = replace(TERMS, rounds=replace(TERMS.rounds, fraud_slash=1, appeal_bond=10**18 + 1))
    (tmp_path / "terms.toml").write_text(terms_toml(odd))
    assert read_terms(tmp_path / "terms.toml") == odd


@pytest.mark.parametrize("name", ORDER)
def test_a_constant_changed_in_any_contract_is_named(name: str) -> None:
    ours = abi.bytecode(name)
    place = next(at for at in pushes(ours) if int.from_bytes(ours[at + 1 : at + 3], "big") > 600)
    changed = ours[: place + 2] + bytes([ours[place + 2] ^ 1]) + ours[place + 3 :]
    was = int.from_bytes(ours[place + 1 : place + 3], "big")
    assert (
        difference(name, changed + bytes(64)) == f"a constant at byte {place + 1:,} is {was ^ 1:,} instead of {was:,}"
    )


def pushes(code: bytes) -> list[int]:
    """Places of the instructions that push two bytes."""
    found, at = [], 0
    while at < len(code):
        if code[at] == 0x61:
            found.append(at)
        at += 1 + (code[at] - 0x5F if 0x60 <= code[at] <= 0x7F else 0)
    return found


def test_another_compilers_metadata_is_named(tmp_path: Path) -> None:
    words = ["./forge", "build", "src/Token.sol", "--out", tmp_path, "--cache-path", tmp_path / "cache"]
    told = {"FOUNDRY_CBOR_METADATA": "true", "FOUNDRY_BYTECODE_HASH": "ipfs"}
    subprocess.run(words, cwd=ROOT / "contracts", env=os.environ | told, check=True, capture_output=True, timeout=600)
    built = json.loads((tmp_path / "Token.sol" / "Token.json").read_text())["bytecode"]["object"]
    assert "it has another compiler's metadata, of solc 0.8." in difference("Token", bytes.fromhex(built[2:]))


def test_other_code_and_less_code_are_told_apart() -> None:
    ours = abi.bytecode("Market")
    assert difference("Market", ours + bytes(96)) == ""
    assert "bytes differ, the first at byte" in difference("Market", abi.bytecode("Registry"))
    assert "it ends after" in difference("Market", ours[:-1])


def test_what_differs_in_a_deployment_is_found_on_the_chain(
    anvil: Anvil, deployment: Deployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    generous = abi.bytecode("Token").replace((10**24).to_bytes(10, "big"), b"\xff" * 10)
    with monkeypatch.context() as patched:
        bytecode = abi.bytecode
        patched.setattr(abi, "bytecode", lambda name: generous if name == "Token" else bytecode(name))
        theirs = deploy_on(anvil)
    with closing(Chain(anvil.url, theirs)) as chain:
        faults = {each.contract: each.fault for each in verify_contracts(chain, None) if each.fault}
        assert deployed_terms(chain) == TERMS
        made = {each.address for each in creations(chain, chain.head().number)}
    assert made >= {address.lower() for address in theirs.addresses}
    assert list(faults) == ["Token"]
    assert f"is {2**80 - 1:,} instead of {10**24:,}" in faults["Token"]
    with pytest.raises(Misconfigured, match=r"mixes deployments: Registry.rounds\(\)"):
        Chain(anvil.url, replace(theirs, rounds=deployment.rounds))


def test_only_roles_administrate(assize: Assize, anvil: Anvil, tmp_path: Path) -> None:
    assert assize(*words(tmp_path)).code == 0
    heir = next(row["address"] for row in assize("wallet", "list", "--json").json if row["name"] == "box")
    place = ("--addresses", tmp_path / "new.json", "--json")

    def admin(*verb: object, keystore: str = "alice") -> tuple[int, str]:
        done = assize("contracts", *verb, *place, "--keystore", keystore)
        return done.code, done.err

    def state() -> dict[str, object]:
        return dict(assize("contracts", "show", *place).json)

    assert admin("pause")[0] == 0
    assert state()["paused"] is True
    code, sentence = admin("unpause", keystore="box")
    assert (code, f"{heir} may not unpause" in sentence) == (1, True)
    assert admin("pauser", heir)[0] == 0
    assert admin("unpause", keystore="box")[0] == 0
    assert admin("pauser", heir, "--revoke")[0] == 0
    assert admin("pause", keystore="box")[0] == 1
    assert admin("treasury", heir)[0] == 0
    assert state()["treasury"] == heir
    assert admin("hand-over")[0] == 2
    assert admin("hand-over", heir)[0] == 0
    code, sentence = admin("accept", keystore="box")
    assert (code, "can be accepted after" in sentence) == (1, True)
    anvil.rpc.call("evm_increaseTime", hex(TERMS.admin_delay + 2))
    anvil.rpc.call("evm_mine")
    assert admin("accept", keystore="box")[0] == 0
    assert state()["admin"] == heir
    assert admin("treasury", TREASURY)[0] == 1
