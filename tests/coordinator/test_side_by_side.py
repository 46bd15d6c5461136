"""Two API processes on one PostgreSQL database: what is sent to both at once counts once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import httpx
import pytest

from coordinator.api.app import create_app
from coordinator.api.service import CoordinatorService
from coordinator.driver.wiring import DriverProcess
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire import api, rollout
from protocol.wire.assignments import Leaf
from tests.conftest import serving
from tests.coordinator.swarm import Swarm, artifact, headers
from tests.postgresql import new_database

TRIES = 8


@pytest.fixture
def settings(swarm: Swarm, postgresql: str) -> CoordinatorSettings:
    return swarm.settings(database_url=new_database(postgresql))


@pytest.fixture
def urls(swarm: Swarm, settings: CoordinatorSettings) -> Iterator[list[str]]:
    """Two services that share a database, a Redis and a folder."""
    with ExitStack() as stack:
        made = []
        for _ in range(2):
            store, deployment = Store(settings.database), swarm.chain.deployment
            app = create_app(CoordinatorService(settings, store, deployment, swarm.coordinator))
            made.append(stack.enter_context(serving(app)))
            # Routes are made at the first request, which two threads of one process cannot do at once.
            httpx.get(made[-1] + "/health", trust_env=False).raise_for_status()
        swarm.url = made[0]
        yield made


def test_what_is_sent_to_two_processes_at_once_counts_once(
    swarm: Swarm, settings: CoordinatorSettings, urls: list[str]
) -> None:
    worker, deployment = swarm.workers[0], swarm.chain.deployment
    at = [CoordinatorClient(url, worker.key, deployment.chain_id, deployment.rounds, swarm.run) for url in urls]
    with closing(DriverProcess(settings, swarm.coordinator)) as process, ThreadPoolExecutor(TRIES) as pool:
        process.tick()
        beats = [pool.submit(each.heartbeat, api.Heartbeat(node=worker.node, version=0)) for each in at * (TRIES // 2)]
        assert {beat.result().state for beat in beats} <= {"alive", "unlisted"}
        swarm.beat()
        process.tick()

        path = f"/nodes/{worker.node}/assignments"
        signed = headers(swarm, worker, "GET", path)
        answers = all_at_once(pool, lambda url: httpx.get(url + path, headers=signed, trust_env=False), urls)
        assert sorted(each.status_code for each in answers) == [200] + [409] * (TRIES - 1), "a nonce counts once"

        found = at[1].assignments(worker.node)[0]
        claims = []
        for units in range(TRIES):
            root = at[0].upload(1, found.jobs[0], rollout.encode(artifact(1, found.jobs[0], worker.node)))
            claims.append(swarm.submission(worker, found, [Leaf(found.jobs[0], 1_000 + units, root)]).model_dump_json())
        path = "/rounds/1/submissions"

        def submit(url: str, body: str) -> httpx.Response:
            content = body.encode()
            signed = headers(swarm, worker, "POST", path, content)
            return httpx.post(url + path, content=content, headers=signed, trust_env=False)

        answers = list(pool.map(submit, urls * (TRIES // 2), claims))
        assert sorted(each.status_code for each in answers) == [200] + [409] * (TRIES - 1), "a job is claimed once"
    for each in at:
        each.close()


def all_at_once(pool: ThreadPoolExecutor, ask: Callable[[str], Any], urls: list[str]) -> list[Any]:
    return list(pool.map(ask, urls * (TRIES // 2)))
