"""Artifacts in an object store: uploaded to it by signed URLs, examined in the background, served from it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import httpx
import numpy as np
import pytest
from eth_utils import keccak
from sqlmodel import col, delete

from coordinator.api.app import create_app
from coordinator.api.artifacts import ArtifactIntake
from coordinator.api.gate import Caller
from coordinator.api.refusals import Refused
from coordinator.api.service import CoordinatorService
from coordinator.api.uploads import MOST_OPEN, Uploads
from coordinator.blobs import KeptBlobs
from coordinator.doctor import examine_store
from coordinator.driver.retention import Retention
from coordinator.driver.wiring import keep_rules
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store
from coordinator.tables import GrantRow, UploadRow
from deploy.localnet.processes import free_port
from protocol.chain.deployment import Deployment
from protocol.chain.structs import Role
from protocol.errors import Rejected, Unavailable
from protocol.transport.blobs import MARKER, ObjectBlobs
from protocol.transport.coordinator import CoordinatorClient
from protocol.transport.objects import Objects
from protocol.transport.uploading import Uploader
from protocol.wire import api as bodies
from protocol.wire import rollout
from tests.azure import azurite
from tests.conftest import ROOT, serving, until
from tests.coordinator.market import market, mirror
from tests.coordinator.swarm import RULES, Party, Swarm, artifact
from tests.s3 import servers
from tests.s3.outage import Outage

STORES: tuple[str, ...] = ("azurite",) if os.environ.get("ASSIZE_AZURE") else servers.KINDS
WITH_ONE = pytest.mark.parametrize("shop", STORES[-1:], indirect=True, scope="module")
"""For what does not depend on the store."""
SENT = {200, 201}
"""A store's answers once it has a file."""


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
    late: str

    @property
    def worker(self) -> Party:
        return self.swarm.workers[0]

    @property
    def objects(self) -> Objects:
        return Objects(self.settings.objects)

    @property
    def artifacts(self) -> ArtifactIntake:
        return self.intake()

    def intake(self, **changes: int) -> ArtifactIntake:
        """What checks artifacts here, with other settings."""
        blobs = ObjectBlobs(self.objects, "artifacts")
        return ArtifactIntake.of(self.settings.model_copy(update=changes), self.store, blobs, self.deployment)

    @property
    def caller(self) -> Caller:
        return Caller(self.worker.node, Role.WORKER, self.worker.key.address, self.swarm.run)

    @property
    def deployment(self) -> Deployment:
        return self.swarm.chain.deployment

    @contextmanager
    def uploader(self, *allowed: str) -> Iterator[Uploader]:
        with closing(self.client()) as client, closing(Uploader(client, allowed)) as made:
            yield made

    def upload(self, uploader: Uploader, which: int, file: bytes) -> bytes:
        return uploader.upload(self.round.round, self.round.jobs[which], self.worker.node, file)

    def client(self, party: Party | None = None) -> CoordinatorClient:
        deployment, party = self.swarm.chain.deployment, party or self.worker
        return CoordinatorClient(self.url, party.key, deployment.chain_id, deployment.rounds, self.swarm.run)

    def file(self, which: int, token: int = 0) -> bytes:
        """An artifact of one of the worker's jobs; those of different tokens have the same size."""
        made = artifact(self.round.round, self.round.jobs[which], self.worker.node)
        rollouts = tuple(replace(each, output_tokens=np.array([4, 5, token])) for each in made.rollouts)
        return rollout.encode(replace(made, rollouts=rollouts))

    def ask(self, file: bytes, which: int = 0, party: Party | None = None) -> bodies.UploadTicket:
        asked = bodies.UploadRequest(node=self.worker.node, size=len(file), file_hash=keccak(file))
        with closing(self.client(party)) as client:
            return client.ask_upload(self.round.round, self.round.jobs[which], asked)

    def tell(self, ticket: bodies.UploadTicket, wait: int = 10) -> bodies.UploadTicket:
        with closing(self.client()) as client:
            return client.uploaded(ticket.name, wait)

    def send(self, ticket: bodies.UploadTicket, file: bytes) -> int:
        with httpx.Client(trust_env=False) as client:
            return client.put(ticket.url, content=file, headers=ticket.headers).status_code

    def refusal(self, ticket: bodies.UploadTicket, file: bytes) -> str:
        """Why a file is not taken."""
        assert self.send(ticket, file) in SENT
        answer = self.tell(ticket)
        assert (answer.state, answer.root) == ("refused", None)
        assert f"incoming/{ticket.name}" not in self.objects.keys("incoming")
        return answer.why


@pytest.fixture(scope="module")
def swarm() -> Iterator[Swarm]:
    """A run on a chain of its own."""
    with market() as made:
        yield made


@pytest.fixture(scope="module", params=STORES)
def shop(request: pytest.FixtureRequest, swarm: Swarm) -> Iterator[Shop]:
    """A coordinator over each kind of store, and a process that examines uploads."""
    folder = swarm.directory / request.param
    folder.mkdir()
    opened = azurite.azure_server() if request.param == "azurite" else servers.s3_server(request.param)
    kind = azurite if request.param == "azurite" else servers
    with opened as server, pytest.MonkeyPatch.context() as patch:
        outage = Outage(server.endpoint)
        for name, value in kind.environment(outage.url).items():
            patch.setenv(name, value)
        redis_url = f"{swarm.redis_url.rpartition('/')[0]}/{1 + STORES.index(request.param)}"
        own = {"state_dir": folder, "redis_url": redis_url, "precheck_metrics_port": free_port()}
        settings = swarm.settings(objects=server.url("run"), jobs_per_round=16, **own)
        late = Objects(settings.objects).sign_put("incoming/late", 1)
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
            yield Shop(swarm, settings, store, outage, url, request.param, round_, late)
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
    with shop.uploader(shop.outage.url) as uploader:
        root = shop.upload(uploader, 0, file)
        assert shop.upload(uploader, 0, file) == root, "the same artifact again"
        assert uploader._told == ""
        assert uploader.client.artifact(root) == file
    assert shop.objects.keys("incoming") == set(), "nothing is left of what was taken"
    assert shop.objects.keys("artifacts") == {f"artifacts/{root.hex()[:2]}/{root.hex()}"}
    assert not (shop.settings.state_dir / "artifacts").exists()
    shown = httpx.get(f"http://127.0.0.1:{shop.settings.precheck_metrics_port}/metrics").text
    assert "assize_coordinator_uploads_total 1.0" in shown, "the process that took it counts it"


@WITH_ONE
def test_a_store_at_an_address_that_nobody_allowed_is_not_sent_to(shop: Shop) -> None:
    with shop.uploader() as uploader:
        root = shop.upload(uploader, 0, file := shop.file(0, 1))
        assert "expected one of the ports that the run allows" in uploader._told
        assert uploader.client.artifact(root) == file, "the coordinator took it itself"


def test_a_file_of_another_size_hash_or_job_is_refused_in_one_sentence(shop: Shop) -> None:
    file = shop.file(1)
    assert shop.refusal(shop.ask(file, 1), file + b"x") == (
        f"wrong upload: {len(file) + 1} bytes, expected the {len(file)} that were announced"
    )
    other = shop.file(1, 3)
    assert len(other) == len(file)
    assert shop.refusal(shop.ask(file, 1), other) == (
        f"wrong upload: its keccak256 is 0x{keccak(other).hex()}, announced was 0x{keccak(file).hex()}"
    )
    assert shop.refusal(shop.ask(file, 2), file).startswith("wrong artifact: it is of round")
    assert "\n" not in shop.refusal(shop.ask(junk := b"junk" * 100, 1), junk)
    with pytest.raises(Rejected, match="artifact too large"):
        shop.ask(bytes(shop.settings.max_artifact_bytes + 1), 1)
    with shop.uploader() as uploader:  # after all these refusals the right one is taken
        assert shop.upload(uploader, 1, file)


@WITH_ONE
def test_another_node_can_neither_ask_for_a_jobs_upload_nor_tell_of_it(shop: Shop) -> None:
    file, other = shop.file(2), shop.swarm.workers[1]
    with pytest.raises(Rejected, match="wrong signer: expected node"):
        shop.ask(file, 2, other)
    asked = bodies.UploadRequest(node=other.node, size=len(file), file_hash=keccak(file))
    with closing(shop.client(other)) as client:
        with pytest.raises(Rejected, match="is not assigned to node"):
            client.ask_upload(shop.round.round, shop.round.jobs[2], asked)
        with pytest.raises(Rejected, match="no round 99 of run"):
            client.ask_upload(99, shop.round.jobs[2], asked)
        with pytest.raises(Rejected, match=r"no upload .* of node"):
            client.uploaded(shop.ask(file, 2).name)


def test_an_upload_that_expired_is_asked_for_again(shop: Shop) -> None:
    ticket = shop.ask(file := shop.file(2), 2)
    with shop.store.writing() as session:
        session.get_one(GrantRow, ticket.name).expires_at -= 10_000
    assert shop.send(ticket, file) in SENT, "the store's clock is its own"
    with pytest.raises(Rejected, match=r"^upload expired \d+ s ago: ask for another$"):
        shop.tell(ticket)
    assert shop.ask(file, 2).name != ticket.name
    late = ticket.model_copy(update={"url": shop.late})
    assert shop.send(late, file) == (200 if shop.kind == "moto" else 403), "not every store checks it"


def test_what_is_sent_to_the_url_after_the_check_does_not_matter(shop: Shop) -> None:
    ticket = shop.ask(file := shop.file(3), 3)
    assert shop.send(ticket, file) in SENT
    root = shop.tell(ticket).root
    assert root is not None
    assert shop.send(ticket, b"something else") in SENT
    assert shop.tell(ticket).root == root
    with closing(shop.client()) as client:
        assert client.artifact(root) == file
    retention = Retention(shop.settings, shop.store, KeptBlobs.open(shop.settings))
    retention.sweep(time.time())
    assert f"incoming/{ticket.name}" in shop.objects.keys("incoming")
    retention.sweep(time.time() + 86400)
    assert shop.objects.keys("incoming") == set()


def test_a_crash_between_any_two_steps_loses_nothing(shop: Shop) -> None:
    ticket = shop.ask(file := shop.file(4), 4)
    assert shop.ask(file, 4).name == ticket.name, "asked, then crashed"
    assert shop.tell(ticket).state == "open", "nothing was sent: still open"
    assert shop.send(ticket, file) in SENT
    again = shop.ask(file, 4)
    assert (again.name, again.state) == (ticket.name, "open"), "sent, then crashed"
    with shop.store.writing() as session:  # told, then the coordinator crashed before it ordered
        row = session.get_one(GrantRow, ticket.name)
        row.state, row.ordered_at = "checking", 0.0
    assert shop.ask(file, 4).state == "checking"
    stored = shop.tell(ticket)
    assert stored.state == "stored"
    assert shop.ask(file, 4).root == stored.root, "stored, then crashed"
    assert stored.root is not None
    shop.objects.delete(shop.objects.keys("artifacts"))  # the bucket is lost
    assert shop.ask(file, 4).state == "open"


@WITH_ONE
def test_a_store_that_answers_503_is_one_sentence_and_loses_nothing(shop: Shop) -> None:
    file = shop.file(5)
    with shop.uploader(shop.outage.url) as uploader:
        kept = shop.upload(uploader, 6, held := shop.file(6))
        with shop.outage.down():
            with pytest.raises(Unavailable, match=rf"^{shop.settings.objects} does not answer for [^\n]*$"):
                shop.upload(uploader, 5, file)
            with pytest.raises(Unavailable, match="does not answer"):
                uploader.client.artifact(kept)  # which is no signed refusal
            assert shop.outage.refused > 2, "it was tried again"
        assert uploader.client.artifact(kept) == held
        uploader._direct_until = 0.0
        assert uploader.client.artifact(shop.upload(uploader, 5, file)) == file


@pytest.mark.long
@WITH_ONE
def test_a_minute_of_503_is_a_sentence_for_each_try_and_loses_nothing(shop: Shop) -> None:
    file, tries = shop.file(5, token=3), 0
    with shop.uploader(shop.outage.url) as uploader:
        with shop.outage.down():
            ends = time.monotonic() + 60
            while time.monotonic() < ends:
                with pytest.raises(Unavailable, match=rf"^{shop.settings.objects} does not answer for [^\n]*$"):
                    shop.upload(uploader, 5, file)
                tries += 1
        assert tries > 1
        uploader._direct_until = 0.0
        assert uploader.client.artifact(shop.upload(uploader, 5, file)) == file


@WITH_ONE
def test_a_store_that_hangs_keeps_no_heartbeat_waiting(shop: Shop) -> None:
    with shop.uploader() as uploader, ThreadPoolExecutor(48) as readers:
        root = shop.upload(uploader, 6, shop.file(6))
        with shop.outage.down(silent=True):
            fetched = [readers.submit(httpx.get, f"{shop.url}/artifacts/{root.hex()}", timeout=60) for _ in range(48)]
            until(lambda: len(shop.outage._open) >= 8, 10, "readers to wait for the store")
            began = time.monotonic()
            uploader.client.heartbeat(bodies.Heartbeat(node=shop.worker.node, version=0))
            assert time.monotonic() - began < 5
            assert not any(each.done() for each in fetched)
        assert {each.result().status_code for each in fetched} <= {200, 503}


@WITH_ONE
def test_a_store_that_fails_while_a_file_is_examined_is_asked_again(shop: Shop) -> None:
    ticket = shop.ask(file := shop.file(7), 7)
    assert shop.send(ticket, file) in SENT
    with shop.outage.down():
        assert shop.tell(ticket, wait=0).state == "checking"
        refused = shop.outage.refused
        until(lambda: shop.outage.refused > refused, 10, "the examination to fail")
    with shop.store.writing() as session:  # so long after
        session.get_one(GrantRow, ticket.name).ordered_at -= 60
    assert shop.tell(ticket).state == "stored"


@WITH_ONE
def test_a_node_over_its_quota_is_told_how_much_it_uses(shop: Shop) -> None:
    caller = shop.caller
    with shop.uploader() as uploader:
        shop.upload(uploader, 0, shop.file(0, 2))
    full = shop.intake(max_node_uploads=1)
    with pytest.raises(Refused, match=r"^quota used: node \d+ has \d+ artifacts of \d+ bytes in rounds") as refused:
        full.take(caller.node, shop.round.round, shop.round.jobs[0], file := shop.file(0, 4), keccak(file))
    assert refused.value.status == 429
    with shop.store.writing() as session:
        session.exec(delete(UploadRow).where(col(UploadRow.job) == shop.round.jobs[5]))
    with pytest.raises(Refused, match="quota used"):
        full.check_upload(caller, shop.round.round, shop.round.jobs[5])
    full.check_upload(caller, shop.round.round, shop.round.jobs[0]), "what it has sent it may send again"
    with pytest.raises(Refused, match="5000 bytes more would pass 1024 artifacts or 5000 bytes"):
        shop.intake(max_node_bytes=5000).check_upload(caller, shop.round.round, shop.round.jobs[5], 5000)


@WITH_ONE
def test_while_nobody_examines_uploads_they_go_to_the_coordinator(shop: Shop) -> None:
    unattended = shop.settings.model_copy(update={"run": "99"})
    caller, file = shop.caller, shop.file(0)
    asked = bodies.UploadRequest(node=caller.node, size=len(file), file_hash=keccak(file))
    uploads = Uploads.of(unattended, shop.store, shop.artifacts, shop.objects)
    with closing(uploads), pytest.raises(Refused, match="its operator starts `assize coordinator precheck`"):
        uploads.grant(caller, shop.round.round, shop.round.jobs[0], asked)
    assert examine_store(shop.settings) == "writes, reads, deletes and signs, and uploads are examined"
    assert "until `assize coordinator precheck` runs" in examine_store(unattended)


@WITH_ONE
def test_what_lacks_the_stores_marker_is_another_store_and_nothing_is_absent_from_it(shop: Shop) -> None:
    blobs = ObjectBlobs(shop.objects, "artifacts")
    blobs.put(b"\x01" * 32, b"blob")
    assert blobs.pieces(b"\x02" * 32) is None
    shop.objects.delete([MARKER])
    try:
        for look in (blobs.pieces, blobs.has):
            with pytest.raises(Unavailable, match="lacks assize-store, which the first blob brings"):
                look(b"\x02" * 32)
    finally:
        shop.objects.put(MARKER, b"blobs")


@WITH_ONE
def test_a_node_has_few_uploads_that_came_to_nothing(shop: Shop) -> None:
    one = {"round": shop.round.round, "job": 0, "node": shop.worker.node, "size": 1, "file_hash": bytes(32)}
    ends = (time.time() + 60, time.time() - 60)
    with shop.store.writing() as session:
        session.add_all(GrantRow(name=str(n), expires_at=ends[n % 2], **one) for n in range(MOST_OPEN))
    with pytest.raises(Unavailable, match=rf"^too many uploads: node {shop.worker.node} has {MOST_OPEN} in an hour"):
        shop.ask(shop.file(5, 6), 5)
