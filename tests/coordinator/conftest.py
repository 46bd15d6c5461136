"""A run with workers and validators on a real chain, a real Redis, and the coordinator's two halves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import redis

from coordinator.api.app import create_app
from coordinator.api.service import CoordinatorService
from coordinator.driver.wiring import DriverProcess, keep_rules
from coordinator.store import Store
from protocol.chain.reading.client import Chain
from protocol.node.wallet import Wallet
from protocol.wire import api as bodies
from tests.conftest import Anvil, redis_server, serving
from tests.coordinator.swarm import RULES, Swarm


@pytest.fixture(scope="session")
def redis_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One redis-server for the session; its URL."""
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


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
def driver(swarm: Swarm) -> Iterator[DriverProcess]:
    """The driver, whose ticks the test makes."""
    made = DriverProcess(swarm.settings(), swarm.coordinator)
    yield made
    made.close()


@pytest.fixture
def api(swarm: Swarm) -> Iterator[str]:
    """The HTTP half on a free port; its URL."""
    settings = swarm.settings()
    store = Store(settings.database)
    keep_rules(store, RULES)
    with serving(create_app(CoordinatorService(settings, store, swarm.chain.deployment, swarm.coordinator))) as url:
        swarm.url = url
        yield url


@pytest.fixture
def assignment(swarm: Swarm, driver: DriverProcess, api: str) -> bodies.Assignment:
    """Round 1 as the first worker sees it."""
    driver.tick()
    swarm.beat()
    driver.tick()
    worker = swarm.workers[0]
    return swarm.client(worker).assignments(worker.node)[0]


@pytest.fixture
def http(api: str) -> Iterator[httpx.Client]:
    """A bare client."""
    with httpx.Client(base_url=api, trust_env=False) as client:
        yield client
