"""``assize network``: what it adds serves, and what is wrong is refused before the profile is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.localnet.processes import free_port
from protocol.chain.reading.client import Chain
from protocol.node.profile import Profile
from protocol.node.profile_edit import set_table
from tests.conftest import Anvil
from tests.node.conftest import Assize

CLEARED = {"ASSIZE_ADDRESSES": "", "ASSIZE_RPC_URL": ""}


def test_a_network_that_was_added_needs_no_address_and_can_be_used_chosen_and_removed(
    assize: Assize, anvil: Anvil, tmp_path: Path
) -> None:
    place = CLEARED | {"ASSIZE_PROFILE": str(tmp_path / "assize.toml")}
    words = ("--addresses", tmp_path / "addresses.json", "--rpc", anvil.url)
    assert assize("network", "add", "one", *words, "--json", **place).json["default"] is True
    assert assize("network", "add", "two", *words, "--json", **place).json["default"] is False
    assert [row["name"] for row in assize("network", "list", "--json", **place).json] == ["one", "two"]
    assert assize("wallet", "balance", "--json", "--keystore", "alice", **place).code == 0
    assert assize("network", "use", "two", "--json", **place).json["default"] is True
    assert assize("network", "remove", "one", "--json", **place).json == {
        "removed": "one",
        "default": "two",
        "profile": str(tmp_path / "assize.toml"),
    }
    taken = assize("network", "add", "two", *words, **place)
    assert (taken.code, "has a network two already" in taken.err) == (2, True)


def test_the_profiles_password_opens_the_profiles_keystore_and_no_other(
    assize: Assize, anvil: Anvil, tmp_path: Path
) -> None:
    place = CLEARED | {
        "ASSIZE_PROFILE": str(tmp_path / "assize.toml"),
        "ASSIZE_PASSWORD_FILE": "",
        "ASSIZE_KEYSTORE": "",
    }
    words = ("--addresses", tmp_path / "addresses.json", "--rpc", anvil.url)
    assert assize("network", "add", "one", *words, **place).code == 0
    set_table(tmp_path / "assize.toml", "wallet", {"keystore": "alice", "password_file": tmp_path / "password"})
    drip = ("wallet", "drip", "1", "--json")
    assert assize(*drip, **place).code == 0
    assert assize(*drip, "--keystore", "alice", **place).code == 0
    other = assize(*drip, "--keystore", "box", **place)
    assert (other.code, "cannot ask for the password without a terminal" in other.err) == (2, True)
    assert assize(*drip, "--keystore", "box", "--password-file", tmp_path / "password", **place).code == 0


@pytest.mark.parametrize("verb", ["use", "remove"])
def test_a_network_that_is_not_there_is_named(assize: Assize, tmp_path: Path, verb: str) -> None:
    done = assize("network", verb, "nowhere", ASSIZE_PROFILE=str(tmp_path / "assize.toml"))
    assert (done.code, "unknown network 'nowhere'" in done.err) == (2, True)
    assert not (tmp_path / "assize.toml").exists()


def test_what_does_not_serve_the_address_file_is_not_added(assize: Assize, chain: Chain, tmp_path: Path) -> None:
    place = CLEARED | {"ASSIZE_PROFILE": str(tmp_path / "assize.toml")}
    words = ("network", "add", "one", "--addresses", tmp_path / "addresses.json", "--rpc")
    silent = assize(*words, f"http://127.0.0.1:{free_port()}", **place)
    assert silent.code == 3, silent.err
    assert assize(*words, "elephant", **place).code == 2
    assert assize("network", "add", "one", "--addresses", "nowhere", "--rpc", "http://x", **place).code == 2
    assert Profile.read(tmp_path / "assize.toml").networks == {}
