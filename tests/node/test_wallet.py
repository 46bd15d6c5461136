"""Keys rest encrypted, readable by their owner alone, and what they sign recovers to their address."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from eth_account import Account

from protocol.errors import Misconfigured, Rejected
from protocol.node.wallet import Keystores, Wallet, default_directory, read_password
from protocol.wire.auth import node_binding, recover

CHEAP = 2**4


def test_a_key_comes_back_with_its_password(tmp_path: Path) -> None:
    keystores = Keystores(tmp_path / "keys")
    made = keystores.create("alice", "a password", CHEAP)
    assert keystores.open("alice", "a password").address == made.address == keystores.address_of("alice")
    assert keystores.names() == ["alice"]


def test_a_wrong_password_is_one_sentence(tmp_path: Path) -> None:
    keystores = Keystores(tmp_path)
    keystores.create("alice", "right", CHEAP)
    with pytest.raises(Misconfigured, match="wrong password for keystore alice; give the file"):
        keystores.open("alice", "wrong")


def test_keystores_are_private_files_in_a_private_directory(tmp_path: Path) -> None:
    Keystores(tmp_path / "keys").create("alice", "pw", CHEAP)
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "keys" / "alice.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["alice.json"]


def test_the_file_is_a_version_3_keystore_others_can_open(tmp_path: Path) -> None:
    wallet = Keystores(tmp_path).create("alice", "pw", CHEAP)
    loaded = json.loads((tmp_path / "alice.json").read_text())
    assert loaded["version"] == 3
    assert Account.from_key(Account.decrypt(loaded, "pw")).address == wallet.address


def test_a_name_is_never_overwritten(tmp_path: Path) -> None:
    kept = Keystores(tmp_path).create("alice", "pw", CHEAP)
    with pytest.raises(Misconfigured, match="already a keystore alice"):
        Keystores(tmp_path).create("alice", "pw", CHEAP)
    assert Keystores(tmp_path).open("alice", "pw").address == kept.address


@pytest.mark.parametrize("name", ["", "../alice", "a/b", ".hidden", "a" * 65])
def test_a_name_cannot_leave_the_directory(name: str, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="invalid keystore name"):
        Keystores(tmp_path).create(name, "pw", CHEAP)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 3, "crypto": 5, "address": "zz"}', "\x00"])
def test_garbage_is_no_keystore(text: str, tmp_path: Path) -> None:
    (tmp_path / "alice.json").write_text(text)
    with pytest.raises(Misconfigured, match="keystore"):
        Keystores(tmp_path).open("alice", "pw")


def test_a_missing_keystore_names_those_there_are(tmp_path: Path) -> None:
    Keystores(tmp_path).create("alice", "pw", CHEAP)
    with pytest.raises(Misconfigured, match=r"no keystore bob in .* \(there: alice\)"):
        Keystores(tmp_path).open("bob", "pw")


def test_an_imported_key_keeps_its_address(tmp_path: Path) -> None:
    key = secrets.token_bytes(32)
    assert Keystores(tmp_path).keep("alice", key, "pw", CHEAP).address == Account.from_key(key).address
    with pytest.raises(Rejected, match="invalid private key of"):
        Keystores(tmp_path).keep("zero", bytes(32), "pw", CHEAP)


def test_a_typed_signature_recovers_to_the_wallet() -> None:
    wallet = Wallet("alice", secrets.token_bytes(32))
    message = node_binding(1, wallet.address, wallet.address, wallet.address, 1, 4, 99)
    assert recover(message, wallet.sign_typed(message)) == wallet.address


def test_a_key_is_not_shown() -> None:
    key = secrets.token_bytes(32)
    wallet = Wallet("alice", key)
    assert key.hex() not in repr(wallet) + str(wallet)


def test_the_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret word\nanother\n")
    assert read_password(tmp_path / "password") == "secret word"
    (tmp_path / "empty").write_text("")
    with pytest.raises(Misconfigured, match="is empty"):
        read_password(tmp_path / "empty")
    with pytest.raises(Misconfigured, match="cannot read the password file"):
        read_password(tmp_path / "none")


def test_the_directory_is_told_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASSIZE_KEYSTORE_DIR", str(tmp_path))
    assert default_directory() == tmp_path


# Keystores of other tools


def of_foundry(directory: Path, password: str) -> tuple[Path, str]:
    """A keystore as `cast wallet new` writes it: no suffix, and no address in it."""
    key = secrets.token_bytes(32)
    kept = Account.encrypt(key, password, kdf="scrypt", iterations=CHEAP)
    kept.pop("address")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "deployer").write_text(json.dumps(kept))
    return directory / "deployer", Account.from_key(key).address


def test_a_keystore_of_foundry_opens_by_its_name_and_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file, address = of_foundry(tmp_path / ".foundry" / "keystores", "pw")
    keystores = Keystores(tmp_path / "keys")
    assert keystores.foundry_names() == ["deployer"]
    assert keystores.open("deployer", "pw").address == keystores.open(str(file), "pw").address == address
    with pytest.raises(Misconfigured, match="does not state its address; see: assize wallet address deployer"):
        keystores.address_of("deployer")
    keystores.create("deployer", "pw", CHEAP)
    assert keystores.foundry_names() == [], "one of our own comes first"


@pytest.mark.parametrize("tool", ["geth", "ape"])
def test_a_keystore_of_geth_or_ape_opens_by_its_file(tool: str) -> None:
    file = Path(__file__).with_name("keystores") / f"{tool}.json"
    keystores = Keystores(file.parent / "none")
    opened = keystores.open(str(file), "worthless")
    assert opened.address == keystores.address_of(str(file))


def test_a_keystore_of_another_tool_is_taken_over_under_a_password_of_its_own(tmp_path: Path) -> None:
    file, address = of_foundry(tmp_path / "theirs", "theirs")
    keystores = Keystores(tmp_path / "keys")
    assert keystores.adopt("mine", file, "theirs", "ours").address == address
    assert keystores.open("mine", "ours").address == keystores.address_of("mine") == address
    with pytest.raises(Misconfigured, match="wrong password"):
        keystores.adopt("other", file, "wrong", "ours")


def test_an_exported_keystore_is_a_private_file_that_replaces_none(tmp_path: Path) -> None:
    keystores = Keystores(tmp_path / "keys")
    made = keystores.create("alice", "pw", CHEAP)
    keystores.export("alice", tmp_path / "out.json")
    assert (tmp_path / "out.json").stat().st_mode & 0o777 == 0o600
    loaded = json.loads((tmp_path / "out.json").read_text())
    assert Account.from_key(Account.decrypt(loaded, "pw")).address == made.address
    with pytest.raises(Misconfigured, match="exists: give another file"):
        keystores.export("alice", tmp_path / "out.json")
    with pytest.raises(Misconfigured, match="no keystore file"):
        keystores.open(str(tmp_path / "nowhere" / "x.json"), "pw")
