"""A profile stands in place of variables, in the order of precedence that is promised; what is wrong in it is named."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import Misconfigured
from protocol.node.commands.config import CLASSES, COMMAND_VARIABLES
from protocol.node.commands.profiled import command_defaults
from protocol.node.profile import SERVICES, Profile, home, located, writable
from protocol.node.profile_edit import remove_network, set_network, set_table, use_network
from protocol.node.settings import NodeSettings, settings_config
from tests.conftest import ROOT
from tests.typing_in import typed_here

PROFILE = """# kept
network = "near"

[networks.near]
rpc = "http://near"
addresses = "near/addresses.json"

[networks.far]
rpc = "http://far,http://farther"
addresses = "/far/addresses.json"

[wallet]
keystore = "alice"
password_file = "alice.password"

[worker]
keystore = "alice-gpu"
state_dir = "state/worker"
plough = "share"
furrows = 5
"""


class OxSettings(NodeSettings):
    """A worker's settings with fields of a service that does not exist elsewhere."""

    model_config = settings_config("ASSIZE_WORKER_")

    furrows: int = 3
    plough: Path | None = None


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "assize.toml"
    path.write_text(PROFILE)
    monkeypatch.setenv("ASSIZE_PROFILE", str(path))
    return path


def test_a_service_takes_its_table_its_network_and_what_it_lacks_from_the_wallet(profile: Path) -> None:
    settings = OxSettings.read()
    assert (settings.furrows, settings.keystore, settings.rpc_url) == (5, "alice-gpu", "http://near")
    assert settings.addresses == profile.parent / "near" / "addresses.json"
    assert settings.password_file == profile.parent / "alice.password"
    assert (settings.state_dir, settings.plough) == (profile.parent / "state" / "worker", profile.parent / "share")


def test_a_variable_stands_before_a_settings_file_and_that_before_the_profile(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "env").write_text("ASSIZE_WORKER_FURROWS=9\nASSIZE_WORKER_KEYSTORE=bob\n")
    monkeypatch.setenv("ASSIZE_WORKER_FURROWS", "7")
    settings = OxSettings.read(tmp_path / "env", log_level="debug")
    assert (settings.furrows, settings.keystore, settings.log_level) == (7, "bob", "debug")
    places = {name: found.place for name, found in OxSettings.stated(tmp_path / "env").items()}
    assert places["furrows"] == "variable ASSIZE_WORKER_FURROWS"
    assert places["keystore"] == str(tmp_path / "env")
    assert places["password_file"] == f"[wallet] of {profile}"
    assert places["rpc_url"] == f"[networks.near] of {profile}"


def test_the_network_chosen_stands_before_settings_file_and_table_but_not_before_its_own_variable(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile.write_text(PROFILE.replace("furrows = 5", 'network = "far"\nfurrows = 5'))
    assert OxSettings.read().rpc_url == "http://far,http://farther"
    (tmp_path / "env").write_text("ASSIZE_WORKER_RPC_URL=http://in-file\n")
    assert OxSettings.read(tmp_path / "env").rpc_url == "http://in-file"
    monkeypatch.setenv("ASSIZE_NETWORK", "near")
    assert OxSettings.read(tmp_path / "env").rpc_url == "http://near"
    monkeypatch.setenv("ASSIZE_WORKER_RPC_URL", "http://told")
    assert OxSettings.read().rpc_url == "http://told"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("furrows = [", "cannot read the profile .*assize.toml: "),
        (
            "[ploughman]\n",
            "assize.toml: unknown table or key 'ploughman': expected one of network, networks, wallet, w",
        ),
        ("wallet = 3\n", r"assize.toml: wallet is 3: expected a table \[wallet\]"),
        ("network = 3\n", "assize.toml: network is 3: expected the name of a network in quotes"),
        (
            "[wallet]\nkeystroke = 'a'\n",
            r"unknown key 'keystroke' in \[wallet\]: expected one of fee_cap_gwei, keystore",
        ),
        ("[wallet]\nkeystore = 3\n", r"keystore is 3 in \[wallet\]: expected a text in quotes"),
        ("[networks.a]\nrpc = 'http://a'\n", r"no addresses in \[networks.a\]: expected a text in quotes"),
        ("[networks.a]\nurl = 'http://a'\n", r"unknown key 'url' in \[networks.a\]: expected one of addresses, rpc"),
        ("[networks]\na = 1\n", r"networks.a is 1: expected a table \[networks.a\]"),
        ("[worker]\nfurrowz = 1\n", r"assize.toml: unknown key 'furrowz' in \[worker\]: expected one of addresses, "),
        ("[worker]\nfurrows = 'x'\n", r"furrows in \[worker\] of .*assize.toml: input should be a valid integer"),
        (
            "[worker]\nfurrows = 1\n",
            r"ASSIZE_WORKER_ADDRESSES is not set; .*; or set addresses, keystore, state_dir in ",
        ),
        (
            "network = 'far'\n",
            "unknown network 'far' in the profile .*: it names none; add one with: assize network add",
        ),
        ("\x00", "cannot read the profile"),
    ],
)
def test_what_is_wrong_in_a_profile_is_named_with_what_is_expected(profile: Path, text: str, sentence: str) -> None:
    profile.write_text(text)
    with pytest.raises(Misconfigured, match=sentence):
        OxSettings.read()


def test_it_is_found_by_variable_then_in_this_folder_then_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSIZE_PROFILE")
    assert located() is None
    assert writable() == home()
    home().parent.mkdir(parents=True)
    home().touch()
    assert located() == home()
    (tmp_path / "assize.toml").touch()
    assert located() == writable() == Path("assize.toml")
    monkeypatch.setenv("ASSIZE_PROFILE", "elsewhere.toml")
    assert located() == Path("elsewhere.toml")
    monkeypatch.setenv("ASSIZE_PROFILE", "")
    assert located() is None
    with pytest.raises(Misconfigured, match="ASSIZE_PROFILE is empty"):
        writable()


def test_a_change_keeps_comments_and_what_others_wrote(profile: Path) -> None:
    set_network(profile, "third", "http://third", profile.parent / "third.json")
    set_table(profile, "worker", {"run": 2, "keystore": "bob-gpu", "state_dir": Path("/elsewhere")})
    use_network(profile, "third")
    remove_network(profile, "far")
    text = profile.read_text()
    assert text.startswith("# kept\n")
    assert 'addresses = "third.json"' in text
    read = Profile.read(profile)
    assert (list(read.networks), read.default) == (["near", "third"], "third")
    assert read.table("worker")["furrows"] == 5
    assert (read.table("worker")["keystore"], read.table("worker")["state_dir"]) == ("bob-gpu", Path("/elsewhere"))
    remove_network(profile, "third")
    assert Profile.read(profile).default == "near"


def test_a_first_network_is_the_default_and_a_second_is_not(tmp_path: Path) -> None:
    path = tmp_path / "new" / "assize.toml"
    set_network(path, "one", "http://one", tmp_path / "one.json")
    assert set_network(path, "two", "http://two", tmp_path / "two.json").default == "one"
    assert set_network(path, "two", "http://two", tmp_path / "two.json", default=True).default == "two"


def test_a_network_that_was_the_default_for_being_alone_stays_the_default(tmp_path: Path) -> None:
    path = tmp_path / "assize.toml"
    path.write_text('# mine\n[networks.main]\nrpc = "http://m"\naddresses = "m.json"\n\n[worker]\nrun = 3\n')
    assert set_network(path, "second", "http://s", tmp_path / "s.json").default == "main"
    assert Profile.read(path).content["network"] == "main"
    assert Profile.read(path).table("worker") == {"run": 3}
    assert remove_network(path, "main").default == "second"


def test_a_change_of_an_invalid_profile_writes_nothing(profile: Path) -> None:
    profile.write_text("[ploughman]\n")
    with pytest.raises(Misconfigured, match="ploughman"):
        use_network(profile, "near")
    assert profile.read_text() == "[ploughman]\n"


IN_PIECES = (
    "[networks.a]\nrpc = 'http://a'\naddresses = 'a'\n[wallet]\nkeystore = 'k'\n"
    "[networks.b]\nrpc = 'http://b'\naddresses = 'b'\n"
)


@pytest.mark.parametrize(
    "text",
    [
        "networks = {a = {rpc = 'http://a', addresses = 'a'}}\n",
        "networks.a = {rpc = 'http://a', addresses = 'a'}\n",
        "networks.a.rpc = 'http://a'\nnetworks.a.addresses = 'a'\n",
        "[networks]\na = {rpc = 'http://a', addresses = 'a'}\n",
        IN_PIECES,
    ],
)
def test_a_profile_in_another_layout_is_changed_or_refused_in_a_sentence(profile: Path, text: str) -> None:
    changes: list[Callable[[], Profile]] = [
        lambda: set_network(profile, "a", "http://c", Path("c")),
        lambda: set_network(profile, "c", "http://c", Path("c")),
        lambda: use_network(profile, "a"),
        lambda: remove_network(profile, "a"),
    ]
    for change in changes:
        profile.write_text(text)
        try:
            assert change().networks.keys() <= {"a", "b", "c"}
        except Misconfigured:
            assert profile.read_text() == text


@pytest.mark.parametrize("table", ["wallet", "worker"])
def test_a_table_written_in_braces_is_changed_or_refused_in_a_sentence(profile: Path, table: str) -> None:
    profile.write_text(f"{table} = {{keystore = 'k'}}\n")
    with pytest.raises(Misconfigured, match=rf"put it under \[{table}\], in one place, then type this again"):
        set_table(profile, table, {"keystore": "l"})


def test_the_home_of_an_unknown_user_is_named(profile: Path) -> None:
    profile.write_text("[networks.a]\nrpc = 'http://a'\naddresses = '~nobody-there/x'\n")
    with pytest.raises(Misconfigured, match="no home directory is known for the path ~nobody-there/x: write it out"):
        list(Profile.read(profile).networks)
    with pytest.raises(Misconfigured, match="no home directory is known"):
        set_network(profile, "b", "http://b", Path("~nobody-there/x"))


def test_a_new_profile_is_private_and_an_existing_ones_mode_stays(tmp_path: Path) -> None:
    path = tmp_path / "assize.toml"
    set_network(path, "one", "http://me:secret@one", tmp_path / "one.json")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    set_network(path, "two", "http://two", tmp_path / "two.json")
    assert path.stat().st_mode & 0o777 == 0o640
    listed = typed(path, "network", "list", "--json")
    assert ("me:***@one" in listed.stdout, "secret" in listed.stdout) == (True, False)
    taken = typed(path, "network", "add", "one", "--addresses", "x", "--rpc", "http://x")
    assert ("me:***@one" in taken.stderr, "secret" in taken.stderr) == (True, False)


def test_changes_at_once_are_all_kept(profile: Path) -> None:
    names = [f"n{number}" for number in range(12)]
    changes = [threading.Thread(target=set_network, args=(profile, name, "http://x", Path("x"))) for name in names]
    for change in changes:
        change.start()
    for change in changes:
        change.join()
    assert set(names) < set(Profile.read(profile).networks)


def test_commands_take_network_and_wallet_but_pick_no_keystore_where_none_signs(profile: Path) -> None:
    def defaults(part: str, *options: str) -> dict[str, Any]:
        return command_defaults(Profile.read(profile), part, frozenset(options))

    assert defaults("run", "rpc", "addresses", "run") == {
        "rpc": "http://near",
        "addresses": profile.parent / "near" / "addresses.json",
    }
    assert "keystore" not in defaults("credits", "rpc", "addresses", "keystore")
    assert defaults("credits", "rpc", "keystore", "password_file")["keystore"] == "alice"


def test_a_ledgers_table_sets_its_options_and_the_chosen_network_goes_before_it(
    profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile.write_text(PROFILE + '[ledger]\nrpc_url = "http://mine"\ndatabase = "books.db"\nport = 8602\n')
    options = frozenset({"rpc", "addresses", "db", "port"})
    found = command_defaults(Profile.read(profile), "ledger", options)
    assert (found["rpc"], found["db"], found["port"]) == ("http://mine", profile.parent / "books.db", 8602)
    monkeypatch.setenv("ASSIZE_NETWORK", "far")
    assert command_defaults(Profile.read(profile), "ledger", options)["rpc"] == "http://far,http://farther"


def typed(profile: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(profile.parent), "COLUMNS": "200"} | variables
    environment.setdefault("ASSIZE_PROFILE", str(profile))
    line = [sys.executable, str(ROOT / "assize.py"), *words]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=profile.parent, env=environment)


def test_an_option_network_stands_before_variables_of_its_parts(profile: Path) -> None:
    with_variable = typed(profile, "run", "show", ASSIZE_ADDRESSES="told.json")
    assert "told.json" in with_variable.stderr
    with_option = typed(profile, "run", "show", "--network", "far", ASSIZE_ADDRESSES="told.json")
    assert (with_option.returncode, "/far/addresses.json" in with_option.stderr) == (2, True)
    nowhere = typed(profile, "run", "show", "--network", "nowhere")
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert nowhere.stderr.startswith("assize: unknown network 'nowhere'")


def test_the_wallets_password_is_for_its_keystore_alone(profile: Path) -> None:
    (profile.parent / "alice.password").write_text("pw-of-alice\n")
    for words in (("wallet", "new", "carol"), ("wallet", "import", "carol", "--key-file", "key")):
        (profile.parent / "key").write_text("11" * 32)
        done = typed(profile, *words)
        assert (done.returncode, "cannot ask for the password without a terminal" in done.stderr) == (2, True)


def test_every_service_with_settings_has_a_table_and_can_be_shown(profile: Path) -> None:
    assert set(CLASSES) | set(COMMAND_VARIABLES) == {*SERVICES, "commands"}


def test_config_shows_every_setting_with_its_place_and_no_password(profile: Path) -> None:
    shown = typed(
        profile, "config", "show", "coordinator", "--json", ASSIZE_COORDINATOR_REDIS_URL="redis://me:secret@host/0"
    )
    assert shown.returncode == 0, shown.stderr
    assert '"redis://me:***@host/0", "from": "variable ASSIZE_COORDINATOR_REDIS_URL"' in shown.stdout
    assert "secret" not in shown.stdout
    everything = typed(profile, "config", "show")
    assert everything.returncode == 2, "the worker's table has keys of the ox"
    assert "unknown key 'plough' in [worker]" in everything.stderr
    profile.write_text(PROFILE.replace('plough = "share"\nfurrows = 5\n', ""))
    everything = typed(profile, "config", "show")
    assert everything.returncode == 0, everything.stderr
    assert "[networks.near]" in everything.stdout
    assert "alice-gpu" in everything.stdout


def test_a_relay_of_a_profile_takes_one_upstream_or_run_and_several(tmp_path: Path) -> None:
    profile = tmp_path / "assize.toml"
    for written, told in (("run = 2", "1 runs"), ('run = "2 3"', "2 runs"), ("run = [2, 3, 4]", "3 runs")):
        text = '[relay]\nupstream = "http://one"\ntrainer = "0x1 0x2 0x3 0x4"\naddresses = "a"\nstate_dir = "s"\n'
        profile.write_text(f"{text}keep_gib = 1.5\nmost_up = 5\nobjects = ''\n{written}\n")
        done = typed_here(["relay", "serve"], {"ASSIZE_PROFILE": str(profile), "HOME": str(tmp_path)})
        assert (done.code, f"{told} and 4 trainers" in done.err) == (2, True), done.err
