"""Settings come from where they should, and what is misspelt is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import Misconfigured
from protocol.node.settings import NodeSettings, settings_config


class PloughSettings(NodeSettings):
    """Settings of a service that does not exist elsewhere."""

    model_config = settings_config("ASSIZE_PLOUGH_")

    furrows: int = 3
    fields: tuple[str, ...] = ()


@pytest.fixture
def needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name, value in {"ADDRESSES": "a.json", "KEYSTORE": "alice", "STATE_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"ASSIZE_PLOUGH_{name}", value)
    return tmp_path


def test_the_environment_sets_them_under_the_prefix(needed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSIZE_PLOUGH_FURROWS", "7")
    settings = PloughSettings.read()
    assert (settings.furrows, settings.keystore, settings.state_dir) == (7, "alice", needed)


def test_a_file_sets_what_the_environment_does_not(needed: Path) -> None:
    (needed / "env").write_text("ASSIZE_PLOUGH_FURROWS=9\nASSIZE_PLOUGH_KEYSTORE=bob\n")
    settings = PloughSettings.read(needed / "env")
    assert (settings.furrows, settings.keystore) == (9, "alice")


def test_a_missing_one_is_named_as_it_would_be_set() -> None:
    with pytest.raises(Misconfigured, match="ASSIZE_PLOUGH_ADDRESSES is not set; ASSIZE_PLOUGH_KEYSTORE is not set"):
        PloughSettings.read()


def test_a_misspelt_one_is_refused_in_the_environment(needed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSIZE_PLOUGH_FURROWZ", "7")
    with pytest.raises(Misconfigured, match="unknown setting ASSIZE_PLOUGH_FURROWZ: expected one of "):
        PloughSettings.read()


def test_a_misspelt_one_is_refused_in_a_file(needed: Path) -> None:
    (needed / "env").write_text("ASSIZE_PLOUGH_FURROWZ=9\n")
    with pytest.raises(Misconfigured, match=r"(?i)furrowz"):
        PloughSettings.read(needed / "env")


def test_one_of_the_wrong_kind_is_refused(needed: Path) -> None:
    with pytest.raises(Misconfigured, match="ASSIZE_PLOUGH_FURROWS: "):
        PloughSettings.read(furrows="many")


UNQUOTED = "[http://north.example:8730]"


def test_a_list_whose_quotes_a_shell_took_is_refused(needed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSIZE_PLOUGH_FIELDS", UNQUOTED)
    for read in (PloughSettings.read, PloughSettings.stated):
        with pytest.raises(Misconfigured, match="ASSIZE_PLOUGH_FIELDS: expected JSON, quoted"):
            read()


def test_a_list_without_quotes_is_refused_in_a_file(needed: Path) -> None:
    (needed / "env").write_text(f"ASSIZE_PLOUGH_FIELDS={UNQUOTED}\n")
    with pytest.raises(Misconfigured, match="ASSIZE_PLOUGH_FIELDS: expected JSON, quoted"):
        PloughSettings.read(needed / "env")


def test_a_list_is_read_from_the_environment_and_from_a_file(needed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (needed / "env").write_text("""ASSIZE_PLOUGH_FIELDS='["north", "south"]'\n""")
    assert PloughSettings.read(needed / "env").fields == ("north", "south")
    monkeypatch.setenv("ASSIZE_PLOUGH_FIELDS", '["west"]')
    assert PloughSettings.read(needed / "env").fields == ("west",)


def test_the_wallet_is_the_one_they_name(needed: Path) -> None:
    from protocol.node.wallet import Keystores

    made = Keystores(needed / "keys").create("alice", "pw", 2**4)
    (needed / "password").write_text("pw")
    settings = PloughSettings.read(keystore_directory=needed / "keys", password_file=needed / "password")
    assert settings.wallet().address == made.address
