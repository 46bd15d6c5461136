"""``localnet up`` enters its network in the profile of its folder and takes nothing away from a person's."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.localnet.profile_entry import enter
from protocol.node.profile import FILE_NAME, Profile, home

RPC = "http://127.0.0.1:1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ASSIZE_PROFILE")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def addresses(folder: Path, root: str = ".localnet") -> Path:
    return folder / root / "addresses.json"


def test_a_folder_without_a_profile_gets_one_and_the_next_network_of_its_root_replaces_the_entry(folder: Path) -> None:
    assert "network local is the default in assize.toml" in enter(RPC, addresses(folder))
    assert "network local is the default" in enter("http://127.0.0.1:2", addresses(folder))
    read = Profile.read(Path(FILE_NAME))
    assert read.default == "local"
    assert (read.networks["local"].rpc, read.content["networks"]["local"]["addresses"]) == (
        "http://127.0.0.1:2",
        ".localnet/addresses.json",
    )


def test_the_profile_at_home_is_left_alone_and_stays_in_effect_elsewhere(folder: Path) -> None:
    home().parent.mkdir(parents=True)
    home().write_text('[wallet]\nkeystore = "mine"\n')
    enter(RPC, addresses(folder))
    assert home().read_text() == '[wallet]\nkeystore = "mine"\n'
    assert Profile.current().path == Path(FILE_NAME)


def test_a_persons_default_and_settings_stay(folder: Path) -> None:
    mine = '# mine\nnetwork = "main"\n\n[networks.main]\nrpc = "http://m"\naddresses = "m.json"\n\n[worker]\nrun = 3\n'
    (folder / FILE_NAME).write_text(mine)
    assert "choose it with --network local" in enter(RPC, addresses(folder))
    assert (folder / FILE_NAME).read_text().startswith(mine.removesuffix("\n[worker]\nrun = 3\n"))
    assert Profile.current().table("worker") == {"run": 3}


def test_a_persons_only_network_stays_their_default(folder: Path) -> None:
    (folder / FILE_NAME).write_text('[networks.main]\nrpc = "http://m"\naddresses = "m.json"\n')
    assert "whose default is main: choose it with --network local" in enter(RPC, addresses(folder))
    assert Profile.current().default == "main"


def test_another_network_of_the_same_name_stays(folder: Path) -> None:
    enter(RPC, addresses(folder))
    said = enter("http://127.0.0.1:2", addresses(folder, "other"))
    assert "has another network local" in said
    assert "assize network add NAME --addresses" in said
    assert Profile.current().networks["local"].rpc == RPC


def test_an_invalid_profile_stays_as_it_is_and_ends_no_network(folder: Path) -> None:
    (folder / FILE_NAME).write_text("network = [\n")
    assert "this network is in no profile: cannot read the profile assize.toml" in enter(RPC, addresses(folder))
    assert (folder / FILE_NAME).read_text() == "network = [\n"


def test_profiles_turned_off_are_none_of_its_business(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSIZE_PROFILE", "")
    assert enter(RPC, addresses(folder)) == ""
    assert list(folder.iterdir()) == []
