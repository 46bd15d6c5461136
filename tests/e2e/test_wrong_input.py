"""Wrong input, as people and strangers give it: one clear sentence, the documented exit code or a 4xx, no traceback."""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from deploy.localnet.processes import free_port
from protocol.chain.reading.client import Chain
from protocol.environments.arithmetic import Arithmetic
from protocol.node.wallet import Keystores, Wallet
from protocol.wire.api import Assignment, ErrorBody
from protocol.wire.auth import Audience, sign_request
from protocol.wire.rollout import encode
from tests.conftest import ROOT, TOKEN, Anvil, deploy_on
from tests.coordinator.conftest import redis_process, redis_url
from tests.coordinator.swarm import Swarm, artifact
from tests.typing_in import Typed, typed_here
from tests.worker.farm import Farm
from trainer.builtin import Warmup, make_builtin

__all__ = ["redis_process", "redis_url"]
pytestmark = pytest.mark.e2e

PASSWORD = "a password for tests"
TWO_GIGABYTES = 2 << 30


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without warm-up: the real thing, made in a moment."""
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("weights") / "v0"
    make_builtin(directory, seed=3, environment=Arithmetic(3), warmup=Warmup(hidden=32, intermediate=32, steps=0))
    return directory


@pytest.fixture
def farm(
    chain: Chain, anvil: Anvil, make_wallet: Callable[[str], Wallet], redis_url: str, tmp_path: Path, tiny_model: Path
) -> Iterator[Farm]:
    """A run with its coordinator on a real chain."""
    swarm = Swarm(chain, anvil, make_wallet, redis_url, tmp_path)
    made = Farm(swarm, tiny_model, tmp_path)
    yield made
    made.close()
    swarm.close()


@dataclass(frozen=True)
class Person:
    """Someone at a terminal: a funded owner ``alice``, a node key ``box``, and the network's address file."""

    folder: Path
    anvil: Anvil
    chain: Chain

    def __post_init__(self) -> None:
        keystores = Keystores(self.folder / "keystores")
        for name in ("alice", "box"):
            self.anvil.fund(keystores.create(name, PASSWORD, scrypt_n=2**4).address)
        (self.folder / "password").write_text(PASSWORD + "\n")
        self.chain.deployment.save(self.folder / "addresses.json")

    def types(self, *words: object, **changed: object) -> Typed:
        """Runs a command to its end; one that would serve or work, in a process of its own."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ASSIZE_")}
        given: dict[str, object] = {
            "ASSIZE_PROFILE": "",
            "ASSIZE_RPC_URL": self.anvil.url,
            "ASSIZE_ADDRESSES": self.folder / "addresses.json",
            "ASSIZE_KEYSTORE_DIR": self.folder / "keystores",
            "ASSIZE_KEYSTORE": "alice",
            "ASSIZE_PASSWORD_FILE": self.folder / "password",
            "ASSIZE_STATE_DIR": self.folder / "state",
        }
        told = {name: str(value) for name, value in (given | changed).items()}
        line = [str(word) for word in words]
        if line[1] not in ("serve", "drive", "run", "up"):
            return typed_here(line, environment | told)
        apart = [sys.executable, str(ROOT / "assize.py"), *line]
        done = subprocess.run(
            apart, cwd=ROOT, env=environment | told, capture_output=True, text=True, timeout=120, check=False
        )
        return Typed(done.returncode, done.stdout, done.stderr)

    def daemon(self, service: str, keystore: str, **more: object) -> dict[str, object]:
        """A daemon's settings as environment."""
        values: dict[str, object] = {
            "rpc_url": self.anvil.url,
            "addresses": self.folder / "addresses.json",
            "keystore": keystore,
            "keystore_directory": self.folder / "keystores",
            "password_file": self.folder / "password",
            "state_dir": self.folder / service,
            **more,
        }
        return {f"ASSIZE_{service.upper()}_{name.upper()}": value for name, value in values.items()}


@pytest.fixture
def person(chain: Chain, anvil: Anvil, tmp_path: Path) -> Person:
    return Person(tmp_path, anvil, chain)


def refused(done: Typed, code: int, *words: str) -> None:
    """Asserts the exit code and one sentence on stderr that has these words."""
    assert done.code == code, done.out + done.err
    assert "Traceback" not in done.err + done.out
    told = [line for line in done.err.splitlines() if line.strip()]
    assert len(told) == 1, done.err
    assert all(word in told[0] for word in words), told[0]


COMMANDS = [("node", "list"), ("wallet", "balance", "--keystore", "alice"), ("stake", "deposit", 1, 5)]


@pytest.mark.parametrize("words", COMMANDS)
def test_no_rpc_there(person: Person, words: tuple[object, ...]) -> None:
    refused(person.types(*words, ASSIZE_RPC_URL=f"http://127.0.0.1:{free_port()}"), 3, "RPC", "127.0.0.1")


def test_no_rpc_there_for_the_ledger_and_what_is_no_url(person: Person) -> None:
    port, addresses = free_port(), person.folder / "addresses.json"
    ledger = ("ledger", "audit", "--addresses", addresses, "--db", person.folder / "l.db", "--rpc")
    refused(person.types(*ledger, f"http://127.0.0.1:{port}"), 3, "RPC")
    refused(person.types("node", "list", ASSIZE_RPC_URL="elephant"), 2, "elephant")


def test_another_chain(person: Person, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    other = Anvil(folder, "--chain-id", "4242")
    try:
        refused(person.types("node", "list", ASSIZE_RPC_URL=other.url), 2, "4242", "31337")
    finally:
        other.stop()


def test_an_address_file_of_another_deployment(person: Person, chain: Chain) -> None:
    path = person.folder / "addresses.json"
    content = json.loads(path.read_text())
    elsewhere = deploy_on(person.anvil).to_json()
    mixed = content | {"contracts": content["contracts"] | {"Market": elsewhere["contracts"]["Market"]}}
    path.write_text(json.dumps(mixed))
    refused(person.types("node", "list"), 2, "mixes deployments")
    empty = {name: "0x" + f"{number:040x}" for number, name in enumerate(content["contracts"], 7)}
    path.write_text(json.dumps(content | {"contracts": empty}))
    refused(person.types("node", "list"), 2, "no contract")
    path.write_text("{}")
    refused(person.types("node", "list"), 2, "addresses.json")
    path.write_bytes(b"\xff\xfe")
    refused(person.types("node", "list"), 2, "addresses.json")
    path.unlink()
    refused(person.types("node", "list"), 2, "addresses.json")


def test_a_wrong_password_and_a_key_that_is_not_there(person: Person, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("elephant\n")
    deposit = ("stake", "deposit", 1, TOKEN)
    refused(person.types(*deposit, ASSIZE_PASSWORD_FILE=wrong), 2, "password", "alice")
    refused(person.types(*deposit, ASSIZE_PASSWORD_FILE=tmp_path / "nowhere"), 2, "nowhere")
    refused(person.types(*deposit, ASSIZE_KEYSTORE="bob"), 2, "bob")
    refused(person.types("wallet", "import", "eve", "--key-file", wrong), 2, "private key")


def test_too_little_bond(person: Person) -> None:
    register = ("node", "register", "--owner-keystore", "alice", "--node-keystore", "box", "--role", "worker")
    refused(person.types(*register, "--capacity", 4), 1, "bond too small", "assize wallet drip")


def test_what_does_not_exist_on_chain(person: Person) -> None:
    for words in (("run", "show", 77), ("run", "fund", 77, 5), ("node", "retire", 77), ("stake", "deposit", 77, 1)):
        refused(person.types(*words), 1)


def test_what_is_no_address_and_numbers_that_fit_nowhere(person: Person) -> None:
    for words in (("credits", "show"), ("wallet", "balance")):
        refused(person.types(*words, "--address", "0x12"), 2, "invalid address '0x12'")
    refused(person.types("node", "list", "--owner", "0x12"), 2, "invalid address '0x12'")
    refused(person.types("node", "retire", 1 << 40), 1, "out of range")
    refused(person.types("run", "show", 1 << 300), 1, "out of range")
    (person.folder / "rules.json").write_text('{"version": 2, "elephant": 1}')
    refused(person.types("run", "rules", person.folder / "rules.json", person.folder / "out"), 2, "version")


def test_an_unfunded_run_is_told_by_the_coordinator_with_what_to_type(
    chain: Chain, anvil: Anvil, make_wallet: Callable[[str], Wallet], redis_url: str, tmp_path: Path, tiny_model: Path
) -> None:
    swarm = Swarm(chain, anvil, make_wallet, redis_url, tmp_path)
    farm = Farm(swarm, tiny_model, tmp_path, escrow=0)
    try:
        farm.worker().checkpoints.directory(0, farm.root)
        swarm.beat()
        farm.driver.tick()
        waiting = httpx.get(f"{farm.url}/status", trust_env=False).json()["waiting"]
        assert "unfunded" in waiting
        assert f"assize run fund {swarm.run}" in waiting
    finally:
        farm.close()
        swarm.close()


@pytest.mark.parametrize("command", [("coordinator", "serve"), ("coordinator", "drive")])
def test_a_coordinator_of_no_run_or_with_other_rules(farm: Farm, person: Person, command: tuple[str, str]) -> None:
    Keystores(person.folder / "keystores").keep(
        "coordinator", bytes(farm.swarm.coordinator._account.key), PASSWORD, scrypt_n=2**4
    )
    rules = person.folder / "rules.json"
    given = person.daemon(
        "coordinator", "coordinator", run=farm.swarm.run, rules=rules, redis_url=farm.swarm.redis_url, port=0
    )
    missing = person.types(*command, **given | {"ASSIZE_COORDINATOR_RUN": 77})
    refused(missing, 2, "run 77")
    other = json.loads(rules.read_text()) | {"max_tokens": 9}
    (person.folder / "other.json").write_text(json.dumps(other))
    refused(person.types(*command, **given | {"ASSIZE_COORDINATOR_RULES": person.folder / "other.json"}), 2, "rules")


def test_a_port_that_is_taken(farm: Farm, person: Person) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        given = person.daemon("coordinator", "box", run=1, rules=person.folder / "rules.json", redis_url="", port=port)
        refused(person.types("coordinator", "serve", **given), 2, str(port))
        addresses, trainer = person.folder / "addresses.json", farm.swarm.trainer.address
        relay = ("relay", "serve", "--upstream", farm.origin_url, "--trainer", trainer, "--addresses", addresses)
        more = ("--run", farm.swarm.run, "--state-dir", person.folder / "relay", "--port", port)
        refused(person.types(*relay, *more), 2, str(port))
        ledger = ("ledger", "serve", "--rpc", person.anvil.url, "--addresses", addresses, "--port", port)
        refused(person.types(*ledger, "--db", f"sqlite:///{person.folder / 'l.db'}"), 2, str(port))
        network = ("localnet", "up", "--root", person.folder / "net", "--chain-port", port)
        refused(person.types(*network), 2, str(port))


def test_a_model_directory_without_a_tokenizer(person: Person, tiny_model: Path) -> None:
    model = person.folder / "model"
    shutil.copytree(tiny_model, model)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).unlink()
    run_file = ROOT / "deploy" / "runs" / "builtin.toml"
    given = person.daemon(
        "trainer", "trainer", run=1, model=model, run_file=run_file, coordinator_url="http://127.0.0.1:1"
    )
    refused(person.types("trainer", "run", **given), 2, "no tokenizer", "tokenizer.json")
    refused(person.types("localnet", "run", "--root", person.folder / "net", "--model", model), 2, "no tokenizer")
    nowhere = person.types("trainer", "run", **given | {"ASSIZE_TRAINER_MODEL": person.folder / "nowhere"})
    refused(nowhere, 2, "nowhere", "model directory")


def test_a_worker_without_settings_or_node(farm: Farm, person: Person) -> None:
    refused(person.types("worker", "run"), 2, "ASSIZE_WORKER_")
    given = person.daemon("worker", "box", run=farm.swarm.run, coordinator_url=farm.url)
    refused(person.types("worker", "run", **given | {"ASSIZE_WORKER_KEYSTOER": "x"}), 2, "ASSIZE_WORKER_KEYSTOER")
    refused(person.types("worker", "run", **given), 2, "belongs to no node", "assize node register")


class Uploads:
    """One node's upload of one job, in every wrong way."""

    def __init__(self, farm: Farm) -> None:
        self.farm = farm
        self.assignment: Assignment = farm.open_round(farm.worker())
        self.job = self.assignment.jobs[0]
        self.path = f"/rounds/{self.assignment.round}/jobs/{self.job}/artifact"

    def headers(self, body: bytes, key: Wallet | None = None) -> dict[str, str]:
        deployment = self.farm.swarm.chain.deployment
        signer, nonce, deadline = key or self.farm.party.key, secrets.randbits(256), int(time.time()) + 60
        audience = Audience(deployment.chain_id, deployment.rounds, self.farm.swarm.run)
        return sign_request(signer, audience, "PUT", self.path, body, nonce, deadline)

    def put(self, body: bytes, key: Wallet | None = None, signed: bytes | None = None) -> httpx.Response:
        headers = self.headers(body if signed is None else signed, key)
        return httpx.put(self.farm.url + self.path, content=body, headers=headers, trust_env=False)

    def good(self) -> bytes:
        return encode(artifact(self.assignment.round, self.job, self.farm.party.node, self.farm.root))

    def raw(self, *lines: str) -> socket.socket:
        """A connection on which the request's head has been sent."""
        host, port = self.farm.url.removeprefix("http://").split(":")
        connection = socket.create_connection((host, int(port)), timeout=20)
        head = [f"PUT {self.path} HTTP/1.1", "Host: x", *lines]
        head += [f"{name}: {value}" for name, value in self.headers(b"").items()]
        connection.sendall("\r\n".join([*head, "", ""]).encode())
        return connection


@pytest.fixture
def uploads(farm: Farm) -> Uploads:
    return Uploads(farm)


def sentence(response: httpx.Response, status: int, *words: str) -> None:
    """Asserts the status and one sentence that has these words."""
    assert response.status_code == status, response.text
    error = ErrorBody.model_validate_json(response.content).error
    assert "\n" not in error
    assert all(word in error for word in words), error


def test_an_artifact_of_garbage_of_another_schema_or_signed_by_another_key(uploads: Uploads) -> None:
    sentence(uploads.put(secrets.token_bytes(5_000)), 422, "artifact")
    sentence(uploads.put(b"PAR1" + secrets.token_bytes(500) + b"PAR1"), 422, "artifact")
    other = io.BytesIO()
    pq.write_table(pa.table({"tokens": pa.array([[1, 2]], pa.list_(pa.int64()))}), other)
    sentence(uploads.put(other.getvalue()), 422, "artifact")
    stranger = uploads.farm.swarm.make_wallet("stranger")
    sentence(uploads.put(uploads.good(), key=stranger), 401, "no node")
    sentence(uploads.put(uploads.good(), key=uploads.farm.swarm.workers[1].key), 403, "not assigned")
    sentence(uploads.put(uploads.good(), signed=b"something else"), 401, "signature")
    assert uploads.put(uploads.good()).status_code == 200


def test_an_artifact_said_to_be_two_gigabytes_is_refused_before_it_is_read(uploads: Uploads) -> None:
    started = time.monotonic()
    with uploads.raw(f"Content-Length: {TWO_GIGABYTES}") as connection:
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    assert time.monotonic() - started < 5
    assert answer.startswith("HTTP/1.1 413")
    assert "at most" in answer


def test_two_gigabytes_streamed_without_a_length_are_cut_off_at_the_limit(uploads: Uploads) -> None:
    block = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    sent = 0
    with uploads.raw("Transfer-Encoding: chunked") as connection:
        try:
            while sent < TWO_GIGABYTES:
                connection.sendall(block)
                sent += 1 << 20
        except OSError:
            pass
        connection.settimeout(5)
        try:
            answer = connection.recv(65536).decode()
        except OSError:  # reset: what was in flight when it was refused swallowed the answer
            answer = ""
    assert sent < TWO_GIGABYTES // 8, "far less than all of it was taken"
    assert not answer or answer.startswith("HTTP/1.1 413")
    assert uploads.put(uploads.good()).status_code == 200, "the coordinator goes on"
