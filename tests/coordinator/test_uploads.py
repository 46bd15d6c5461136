"""Artifacts in an object store: uploaded to it by signed URLs, examined in the background, served from it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pytest
from eth_utils import keccak

from coordinator.api.app import create_app
from coordinator.api.service import CoordinatorService
from coordinator.driver.wiring import keep_rules
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store
from protocol.transport.coordinator import CoordinatorClient
from protocol.transport.objects import Objects
from protocol.transport.uploading import Uploader
from protocol.wire import api as bodies
from protocol.wire import rollout
from tests.conftest import ROOT, serving, until
from tests.coordinator.market import market, mirror
from tests.coordinator.swarm import RULES, Party, Swarm, artifact
from tests.s3.outage import Outage
from tests.s3.servers import KINDS, environment, s3_server


@dataclass
class Shop:
    """A coordinator whose artifacts are in a bucket, and the first round as its first worker sees it."""

    swarm: Swarm
    settings: CoordinatorSettings
    store: Store
    outage: Outage
    url: str
    kind: str
    round: bodies.Assignment

    @property
    def worker(self) -> Party:
        return self.swarm.workers[0]

    @property
    def objects(self) -> Objects:
        return Objects(self.settings.objects)

    def client(self, party: Party | None = None) -> CoordinatorClient:
        deployment, party = self.swarm.chain.deployment, party or self.worker
        return CoordinatorClient(self.url, party.key, deployment.chain_id, deployment.rounds, self.swarm.run)

    def file(self, which: int, variant: int = 0) -> bytes:
        """An artifact of one of the worker's jobs; its variants differ in their bytes."""
        made = artifact(self.round.round, self.round.jobs[which], self.worker.node)
        return rollout.encode(rollout.Artifact(*_fields(made), (made.rollouts[0],) * (variant + 1)))

    def ask(self, file: bytes, which: int = 0, party: Party | None = None) -> bodies.UploadTicket:
        asked = bodies.UploadRequest(node=self.worker.node, size=len(file), file_hash=keccak(file))
        with closing(self.client(party)) as client:
            return client.ask_upload(self.round.round, self.round.jobs[which], asked)

    def tell(self, ticket: bodies.UploadTicket, wait: int = 10) -> bodies.UploadTicket:
        with closing(self.client()) as client:
            return client.uploaded(ticket.name, wait)


def _fields(made: rollout.Artifact) -> tuple[int, int, int, bytes]:
    return made.round, made.job, made.node, made.manifest_root


@pytest.fixture(scope="module")
def swarm() -> Iterator[Swarm]:
    """A run on a chain of its own."""
    with market() as made:
        yield made


@pytest.fixture(scope="module", params=KINDS)
def shop(request: pytest.FixtureRequest, swarm: Swarm) -> Iterator[Shop]:
    """A coordinator over each kind of store, and a process that examines uploads."""
    folder = swarm.directory / request.param
    folder.mkdir()
    with s3_server(request.param) as server, pytest.MonkeyPatch.context() as patch:
        outage = Outage(server.endpoint)
        for name, value in environment(outage.url).items():
            patch.setenv(name, value)
        redis_url = f"{swarm.redis_url.rpartition('/')[0]}/{1 + KINDS.index(request.param)}"
        settings = swarm.settings(objects=server.url("run"), state_dir=folder, redis_url=redis_url, jobs_per_round=16)
        store = Store(settings.database)
        keep_rules(store, RULES)
        service = CoordinatorService(settings, store, swarm.chain.deployment, swarm.coordinator)
        with serving(create_app(service)) as url, examining(settings):
            swarm.url = url
            for client in swarm.clients.values():
                client.close()
            swarm.clients.clear()
            mirror(swarm, settings)
            swarm.beat()
            mirror(swarm, settings)
            worker = swarm.workers[0]
            round_ = swarm.client(worker).assignments(worker.node, wait_seconds=10)[0]
            until(service.uploads._queue.attended, 30, "the process that examines uploads")
            yield Shop(swarm, settings, store, outage, url, request.param, round_)
        outage.close()


@contextmanager
def examining(settings: CoordinatorSettings) -> Iterator[subprocess.Popen[bytes]]:
    """``assize coordinator precheck``."""
    values = settings.model_dump(mode="json", exclude_unset=True)
    given = {f"ASSIZE_COORDINATOR_{name.upper()}": str(value) for name, value in values.items()}
    words = [sys.executable, "-m", "assize", "coordinator", "precheck"]
    process = subprocess.Popen(words, env=os.environ | given, cwd=ROOT)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def test_a_worker_uploads_to_the_store_and_anyone_fetches_the_artifact(shop: Shop) -> None:
    file = shop.file(0)
    with closing(shop.client()) as client, closing(Uploader(client, [shop.outage.url])) as uploader:
        root = uploader.upload(shop.round.round, shop.round.jobs[0], shop.worker.node, file)
        assert not uploader._direct_until, "it went the other way"
        assert client.artifact(root) == file
        assert uploader.upload(shop.round.round, shop.round.jobs[0], shop.worker.node, file) == root
    assert shop.objects.keys("incoming") == set(), "nothing is left of what was taken"
    assert len(shop.objects.keys("artifacts")) == 1
    assert not list(shop.settings.state_dir.glob("artifacts/*"))
