"""A support bundle has what helps, and no secret, wherever one is."""

from __future__ import annotations

import io
import json
import secrets
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.files import tail
from protocol.node.commands.examining import ROLES, configured_roles
from protocol.node.commands.support import MOST_FILE_BYTES, SupportBundle, add_logs
from protocol.node.profile import Profile
from protocol.node.redaction import Redaction, shown_url
from protocol.node.wallet import Keystores
from tests.conftest import ROOT

SEED_PHRASE = "legal winner thank year wave sausage worth useful legal winner thank yellow"


class Planted:
    """Secrets that were planted, none like another."""

    def __init__(self) -> None:
        self.values: list[str] = []

    def one(self, shape: str = "{}") -> str:
        """Plants a secret in a text of this shape."""
        self.values.append(secrets.token_hex(9) + "Zq")
        return shape.replace("{}", self.values[-1])


def opened(archive: bytes) -> dict[str, bytes]:
    """The files of a bundle, by name."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar.getmembers()}  # type: ignore[union-attr]


def set_up(folder: Path, planted: Planted) -> tuple[dict[str, str], str]:
    """A machine with three roles that need no torch, and a secret in every place; returns environment and a key."""
    password, key = planted.one(), secrets.token_bytes(32)
    stores = Keystores(folder / "keystores")
    name = planted.one("key-{}")
    stores.keep(name, key, password, scrypt_n=2**4)
    (folder / "password").write_text(password + "\n")
    state = folder / planted.one("state-{}")
    (state / "logs").mkdir(parents=True)
    (folder / "addresses.json").write_text("{}")
    (folder / "urls").write_text(planted.one("mailto://user:{}@mail.example\n"))
    network = planted.one("n{}")
    (folder / "assize.toml").write_text(
        f"""
network = "{network}"
[networks.{network}]
rpc = "{planted.one("https://{}.rpc.example/v3/key")},{planted.one("http://127.0.0.1:1/{}")}"
addresses = "{folder}/addresses.json"
[wallet]
keystore = "{name}"
password_file = "password"
keystore_directory = "keystores"
[coordinator]
run = 7
rules = "{planted.one("rules-{}")}"
state_dir = "{state}"
password_file = "{folder}/password"
database_url = "{planted.one("postgresql://u:{}@db.example/x")}"
redis_url = "{planted.one("redis://:{}@127.0.0.1:1/0")}"
relays = ["{planted.one("https://host.example/?token={}")}"]
origin = "{planted.one("https://bob:{}@origin.example")}"
host = "{planted.one("{}")}"
[ledger]
database = "{planted.one("postgresql://u:{}@db.example/y")}"
[notices]
urls_file = "urls"
"""
    )
    lines = [
        "an honest line of the log",
        planted.one("connecting to https://user:{}@host.example/x"),
        planted.one("asked https://host.example/v2/{} twice"),
        planted.one("GET http://127.0.0.1:9/?api_key={}&x=1"),
        planted.one("Authorization: Bearer {}"),
        planted.one('{"event": "x", "password": "{} with spaces"}'),
        planted.one("AWS_SECRET_ACCESS_KEY={}"),
        planted.one("my_token = '{}'"),
        f"key 0x{key.hex()} and {key.hex().upper()}",
        f"words: {SEED_PHRASE}.",
        f"opened with {password}",
    ]
    (state / "coordinator.log").write_text("\n".join(lines) + "\n")
    (state / "logs" / planted.one("{}.log")).write_text(planted.one("passphrase: {}\n"))
    health = {
        "daemon": "coordinator-driver",
        "pid": 1,
        "at": 2,
        "problem": planted.one("no answer from https://x.example/{}"),
        "activity": {"tokens_per_second": 12.5, "password": planted.one()},
    }
    (state / "health.json").write_text(json.dumps(health))
    (state / planted.one("{}.parquet")).write_bytes(b"123")
    (state / planted.one("folder-{}")).mkdir()
    word, aws = planted.one(), planted.one()
    with (state / "coordinator.log").open("a") as log:
        log.write(f"the word {word} alone, and {aws} too\n")
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        "ASSIZE_PROFILE": str(folder / "assize.toml"),
        "ASSIZE_RELAY_OBJECTS": planted.one("s3://bucket/{}"),
        "AWS_SECRET_ACCESS_KEY": aws,
        planted.one("ASSIZE_{}"): "7",
        "SOME_WORD": word,
    }
    return environment, key.hex()


def test_no_planted_secret_is_in_a_bundle_and_what_helps_is(tmp_path: Path) -> None:
    planted = Planted()
    environment, key = set_up(tmp_path, planted)
    out = tmp_path / "bundle.tar.gz"
    words = [sys.executable, "-m", "assize", "support", "bundle", "--out", str(out)]
    done = subprocess.run(
        words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    files = opened(out.read_bytes())
    whole = b"".join(name.encode() + data for name, data in files.items()).lower() + done.stdout.lower().encode()
    leaked = [secret for secret in (*planted.values, key, SEED_PHRASE) if secret.lower().encode() in whole]
    assert leaked == []
    assert any(b"an honest line of the log" in data for name, data in files.items() if "/logs/coordinator-" in name)
    settings = json.loads(files["assize-support/settings.json"])["settings"]
    assert settings["coordinator"]["run"] == {"value": 7, "from": "profile"}
    assert settings["coordinator"]["password_file"] == {"value": "a path, there", "from": "profile"}
    assert settings["coordinator"]["redis_url"]["value"] == ["redis://127.0.0.1:1/***"]
    assert {"coordinator", "relay", "ledger"} == set(json.loads(files["assize-support/doctor.json"]))
    assert json.loads(files["assize-support/versions.json"])["packages"]["pydantic"]
    assert json.loads(files["assize-support/state/coordinator.json"])["files"][".parquet"] == 1
    for name, data in files.items():
        assert not name.endswith(".json") or isinstance(json.loads(data), dict | list), name
    told = json.loads(files["assize-support/health/coordinator.json"])
    assert told["activity"]["tokens_per_second"] == 12.5
    assert told["activity"]["password"] == "***"
    assert out.stat().st_mode & 0o077 == 0
    assert "left out: keystores" in done.stdout


def test_the_end_of_a_long_log_begins_with_a_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    path.write_text(f"password={'x' * 100}\n" + "a line\n" * (MOST_FILE_BYTES // 7))
    assert set(tail(path, MOST_FILE_BYTES).splitlines()) == {"a line"}
    path.write_text("x" * (MOST_FILE_BYTES + 1))
    assert tail(path, MOST_FILE_BYTES) == "", "without a line's beginning nothing says what it is"


def test_a_bundle_is_bounded_and_says_what_it_left_out() -> None:
    packed = SupportBundle(Redaction({}), most=MOST_FILE_BYTES + 100)
    long = "a line\n" * (MOST_FILE_BYTES // 6)
    cut = f"its first {len(long) - MOST_FILE_BYTES:,} bytes"
    for name in ("long", "second", "short"):
        packed.add(name, "a line\n" if name == "short" else long)
    assert {name: len(data) for name, data in packed.files.items()} == {"long": MOST_FILE_BYTES, "short": 7}
    assert packed.left_out == [("long", cut), ("second", cut), ("second", "the bundle is full at 1,048,676 bytes")]


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=40))
def test_a_known_value_is_gone_as_it_is_and_escaped(secret: str) -> None:
    shown = Redaction({"NAME": secret})(f"one {secret} two {json.dumps({'a': secret})}")
    assert secret not in shown.replace("<NAME>", " ")


@pytest.mark.parametrize(
    "piece", ["a", "a.", "password", "password=", "0x", "://", "-----BEGIN ", "bearer ", "abandon ", "ab1-", '\\\\"']
)
def test_what_strangers_put_into_a_log_does_not_hold_a_bundle_up(piece: str) -> None:
    began = time.process_time()
    Redaction({"one": "secret-1"}, frozenset({"abandon"}).__contains__)(piece * (200_000 // len(piece)))
    assert time.process_time() - began < 5, "quadratic: minutes"


def test_a_link_among_the_logs_is_not_followed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (tmp_path / "private").write_text("what another may read\n")
    (state / "worker.log").symlink_to(tmp_path / "private")
    packed = SupportBundle(Redaction({}))
    add_logs(packed, "worker", {"state_dir": state})
    assert not any("private" in name or b"another may read" in data for name, data in packed.files.items())


@pytest.mark.parametrize(
    "line",
    [
        "round 97 6 jobs accepted 6, at block 1234567",
        "0x52908400098527886E0F7030069857D2E4169EE7 holds 1.5",
        "assize_coordinator_newest_round_timestamp_seconds 1.7e9",
        "the coordinator does not answer yet, so this worker waits until it does, and then goes on as before",
        "http://127.0.0.1:8001 answers",
        '{"tokens": 512, "tokens_per_second": 12.5, "max_tokens": -1}',
        "tokens=512 tokens_per_second=1.2e-05",
        '"password_file": {"value": "a path, there"}',
    ],
)
def test_ordinary_lines_stay_as_they_are(line: str) -> None:
    assert Redaction({}, frozenset(SEED_PHRASE.split()).__contains__)(line) == line


@pytest.mark.parametrize("line", ["password=12345678", '"password": 12345678', "token: 9f3k", "secret_token = 5512."])
def test_a_password_of_digits_and_a_token_that_is_no_count_are_secrets(line: str) -> None:
    assert Redaction({})(line).endswith("***")


def test_of_a_url_only_what_cannot_be_a_key_is_shown() -> None:
    assert shown_url("https://abc.rpc.example/key/1?x=2") == "https://<host>/***"
    assert shown_url("http://127.0.0.1:8545") == "http://127.0.0.1:8545"
    assert shown_url("http://[bad") == "<URL>"


def test_the_doctor_of_all_takes_the_roles_of_profile_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"[worker]\nrun = 1\n[ledger]\nport = 1\n[notices]\nruns = [1]\n"
    profile = Profile.parse(tmp_path / "assize.toml", text)
    assert configured_roles(profile) == ["worker", "ledger"]
    monkeypatch.setenv("ASSIZE_RELAY_RUN", "1")
    assert configured_roles(profile) == ["worker", "relay", "ledger"]


def test_every_role_has_a_doctor() -> None:
    import typer

    from assize import front_door

    for role in ROLES:
        command = typer.main.get_command(front_door([role]))
        assert "doctor" in command.commands[role].commands  # type: ignore[attr-defined]
