"""The coordinator's server process under hostile connections: memory and disk stay flat, honest nodes are served."""

from __future__ import annotations

import gc
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st

from coordinator.api.bodies import MOST_BODIES, MOST_BODIES_OF_KEY, BodySlots
from coordinator.api.refusals import Refused
from protocol.errors import Unavailable
from protocol.transport.connections import MOST_CONNECTIONS
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire import api as bodies
from protocol.wire import rollout
from protocol.wire.auth import HEADER_ADDRESS, HEADER_RUN
from protocol.wire.rollout import Artifact, Rollout
from tests.coordinator.market import market, mirror, server
from tests.coordinator.swarm import MANIFEST_ROOT, Party, Swarm, artifact, headers

MIB = 1 << 20
FLAT_BYTES = 24 * MIB
"""Most that the server may grow by under attack; each attack sends it ten times as much or more."""


@dataclass
class Edge:
    """A coordinator's server: its port, process and folder, and the first round as its two workers see it."""

    swarm: Swarm
    port: int
    process: psutil.Process
    folder: Path
    rounds: list[bodies.Assignment]

    @property
    def http(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", trust_env=False, timeout=30)

    def connect(self, head: bytes = b"", timeout: float = 30) -> socket.socket:
        """A connection on which ``head`` was sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        connection.sendall(head)
        return connection

    def upload_path(self, which: int, job: int = 0) -> str:
        """Where the worker uploads one of its jobs."""
        round_ = self.rounds[which]
        return f"/rounds/{round_.round}/jobs/{round_.jobs[job]}/artifact"

    def memory(self) -> int:
        """The process's resident memory in bytes."""
        return int(self.process.memory_info().rss)

    def kept(self) -> list[Path]:
        """Files with bodies, whole or in part."""
        return [path for name in ("incoming", "artifacts", "evidence") for path in (self.folder / name).rglob("*.*")]

    def unnamed_bytes(self) -> int:
        """Bytes of open files that have no name any more."""
        descriptors = Path(f"/proc/{self.process.pid}/fd").iterdir()
        return sum(path.stat().st_size for path in descriptors if str(self.folder) in _target(path))


def _target(path: Path) -> str:
    try:
        target = str(path.readlink())
    except FileNotFoundError:  # closed meanwhile
        return ""
    return target if target.endswith("(deleted)") or "/#" in target else ""


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    """One server for this file; no test leaves anything behind on it."""
    with market() as swarm, server(settings := swarm.settings()) as (port, pid):
        swarm.url = f"http://127.0.0.1:{port}"
        swarm.beat()
        mirror(swarm, settings)
        mirror(swarm, settings)
        rounds = [swarm.client(worker).assignments(worker.node, wait_seconds=10)[0] for worker in swarm.workers]
        yield Edge(swarm, port, psutil.Process(pid), settings.state_dir, rounds)


def head(method: str, path: str, sent: dict[str, str], *more: str) -> bytes:
    """The head of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *more, *(f"{name}: {value}" for name, value in sent.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def answered(connection: socket.socket) -> str:
    """What the server says before it closes the connection, whether or not it takes the rest of the body."""
    said = b""
    try:
        while piece := connection.recv(65536):
            said += piece
    except ConnectionError:
        pass
    return said.decode()


def flood(edge: Edge, start: bytes, size: int = 40 * MIB) -> tuple[str, int]:
    """Sends ``size`` bytes of a body after ``start``; returns the answer, and how many bytes were taken."""
    taken = 0
    with edge.connect(start) as connection:
        try:
            while taken < size:
                taken += connection.send(b"x" * MIB)
        except OSError:
            pass
        return answered(connection), taken


def test_bodies_of_unsigned_wrongly_signed_and_replayed_requests_are_not_read(edge: Edge) -> None:
    """Six connections of 40 MiB took the server from 149 to 394 MiB, and it kept them."""
    worker, other = edge.swarm.workers
    path, length = edge.upload_path(0), f"Content-Length: {40 * MIB}"
    signed = partial(headers, edge.swarm)
    used = signed(worker, "GET", f"/nodes/{worker.node}/assignments?wait=0")
    with edge.http as http:
        assert http.get(f"/nodes/{worker.node}/assignments?wait=0", headers=used).status_code == 200
    replayed = signed(worker, "PUT", path, b"y", nonce=int(used["Assize-Nonce"]))
    stranger = Party(edge.swarm.make_wallet("stranger"), edge.swarm.make_wallet("stranger-key"))
    heads = {
        "unsigned": (401, head("PUT", path, {}, length)),
        "unsigned, without a length": (401, head("PUT", path, {}, "Transfer-Encoding: chunked") + b"2800000\r\n"),
        "a stranger's": (401, head("PUT", path, signed(stranger, "PUT", path, b"y"), length)),
        "only named": (401, head("PUT", path, {HEADER_ADDRESS: worker.key.address}, length)),
        "by another": (
            401,
            head("PUT", path, signed(other, "PUT", path) | {HEADER_ADDRESS: worker.key.address}, length),
        ),
        "replayed": (409, head("PUT", path, replayed, length)),
        "another's job": (403, head("PUT", edge.upload_path(1), signed(worker, "PUT", edge.upload_path(1)), length)),
        "on a public path": (200, head("GET", "/health", {}, length)),
        "on no path": (404, head("PUT", "/nowhere", {}, length)),
    }
    flood(edge, heads["only named"][1])
    before = edge.memory()
    with ThreadPoolExecutor(12) as pool:
        for name, (status, start) in heads.items():
            if name in ("a stranger's", "by another", "another's job"):
                flooding = [pool.submit(flood, edge, start)]  # a second one of these is a replay
            else:
                flooding = [pool.submit(flood, edge, start) for _ in range(6)]
            for each in flooding:
                said, taken = each.result()
                assert taken < 8 * MIB, f"{name}: the kernel's buffers hold a few MiB, the server reads none of it"
                assert not said or said.startswith(f"HTTP/1.1 {status}"), (name, said)
            assert edge.memory() < before + FLAT_BYTES, name
    assert edge.kept() == []
    assert edge.unnamed_bytes() == 0


def test_heads_and_first_bytes_on_many_connections_leave_memory_flat(edge: Edge) -> None:
    worker, path = edge.swarm.workers[0], edge.upload_path(0)
    start = head("PUT", path, {HEADER_ADDRESS: worker.key.address}, f"Content-Length: {40 * MIB}")
    before = edge.memory()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: flood(edge, start, 256 << 10), range(500)))
    assert edge.memory() < before + FLAT_BYTES


def test_a_signed_body_with_another_hash_is_refused_and_not_kept(edge: Edge) -> None:
    worker, path = edge.swarm.workers[0], edge.upload_path(0)
    body, sizes = b"z" * (40 * MIB), list[int]()
    with edge.http as http:
        for sent in (body, body[:-1], body + b"z", b""):
            signed = headers(edge.swarm, worker, "PUT", path, body if sent != body else b"another")
            answer = http.put(path, content=sent, headers=signed)
            assert answer.status_code == 401, answer.text
            assert f"its keccak256 is 0x{keccak(sent).hex()}, the request's signature is for" in answer.text
            assert edge.kept() == []
            sizes.append(edge.memory())  # what the first body needs, later ones use again
        del body, sent
        signed = headers(edge.swarm, worker, "PUT", path, b"")
        answer = http.put(path, content=(b"x" * MIB for _ in range(80)), headers=signed)
        assert answer.status_code == 413, answer.text
    gc.collect()
    assert edge.kept() == []
    assert edge.unnamed_bytes() == 0
    assert edge.memory() < sizes[0] + FLAT_BYTES


def test_a_body_that_is_cut_off_leaves_nothing(edge: Edge) -> None:
    worker, path = edge.swarm.workers[0], edge.upload_path(0)
    start = head("PUT", path, headers(edge.swarm, worker, "PUT", path, b"x"), f"Content-Length: {30 * MIB}")
    with edge.connect(start) as connection:
        connection.sendall(b"x" * (20 * MIB))
        _eventually(lambda: edge.unnamed_bytes() > 16 * MIB, "the body is on disk, without a name")
        assert edge.kept() == []
    _eventually(lambda: edge.unnamed_bytes() == 0, "the file to be gone")


def test_a_request_for_one_coordinator_is_refused_by_another(edge: Edge) -> None:
    """The same nodes, chain, account and contracts: only the run differs, as with a coordinator that replays."""
    swarm, worker = edge.swarm, edge.swarm.workers[0]
    second = swarm._open_run()
    (swarm.directory / "second").mkdir()
    settings = swarm.settings(run=second, state_dir=swarm.directory / "second")
    mirror(swarm, settings)
    beat = json.dumps({"node": worker.node, "version": 0}).encode()
    signed = headers(swarm, worker, "POST", "/heartbeats", beat)
    with server(settings) as (port, _), httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as other:
        refused = other.post("/heartbeats", content=beat, headers=signed)
        assert refused.status_code == 401
        sentence = bodies.ErrorBody.model_validate_json(refused.content).error
        expected = f"the request is for the coordinator of run {swarm.run}, this is the one of run {second}"
        assert sentence.startswith(expected)
        renamed = other.post("/heartbeats", content=beat, headers=signed | {HEADER_RUN: str(second)})
        assert renamed.status_code == 401
        assert "invalid signature" in renamed.text
        with edge.http as http:
            assert http.post("/heartbeats", content=beat, headers=signed).status_code == 200, "meant for this one"
        deployment = swarm.chain.deployment
        url = f"http://127.0.0.1:{port}"
        with closing(CoordinatorClient(url, worker.key, deployment.chain_id, deployment.rounds)) as client:
            assert client.heartbeat(bodies.Heartbeat(node=worker.node, version=0)), "signed for the run it drives"


def test_slow_heads_slow_bodies_and_answers_that_are_not_taken_are_cut(edge: Edge) -> None:
    worker, path = edge.swarm.workers[0], edge.upload_path(0)
    signed = headers(edge.swarm, worker, "PUT", path, b"slow")
    slow_body = edge.connect(head("PUT", path, signed, "Content-Length: 4000000"))
    slow_head = edge.connect(b"GET /health HTTP/1.1\r\n")
    silent = edge.connect()
    deaf = edge.connect()
    asking = head("GET", "/openapi.json", {})
    stop = threading.Event()

    def trickle() -> None:
        while not stop.wait(0.2):
            for connection, piece in ((slow_body, b"x"), (slow_head, b"A: b\r\n")):
                with suppress(OSError):
                    connection.sendall(piece)

    trickling = threading.Thread(target=trickle)
    trickling.start()
    deaf.settimeout(0.5)
    try:
        while True:  # until neither side's buffers take more
            deaf.sendall(asking)
    except OSError:
        pass
    started = time.monotonic()
    try:
        said = answered(slow_body)
        assert said.startswith("HTTP/1.1 408"), said
        assert "body too slow" in said
        assert answered(slow_head) == ""
        assert answered(silent) == ""
        assert time.monotonic() - started < 20
        _eventually(lambda: _ended(deaf), "the connection that takes no answer to be cut", 30)
    finally:
        stop.set()
        trickling.join()
        for connection in (slow_body, slow_head, silent, deaf):
            connection.close()
    assert edge.unnamed_bytes() == 0


def test_one_key_has_few_bodies_at_once_while_another_key_uploads(edge: Edge) -> None:
    swarm, (worker, other) = edge.swarm, edge.swarm.workers
    round_, job = edge.rounds[1].round, edge.rounds[1].jobs[0]
    with ExitStack() as held, edge.http as http:
        for index in range(MOST_BODIES_OF_KEY):
            path = edge.upload_path(0)
            signed = headers(swarm, worker, "PUT", path, b"%d" % index)
            held.enter_context(edge.connect(head("PUT", path, signed, "Content-Length: 1000000"))).sendall(b"x")

        def beat(party: Party) -> httpx.Response:
            body = json.dumps({"node": party.node, "version": 0}).encode()
            return http.post("/heartbeats", content=body, headers=headers(swarm, party, "POST", "/heartbeats", body))

        _eventually(lambda: beat(worker).status_code == 429, "the bodies to be under way")
        refused = beat(worker)
        assert refused.status_code == 429
        assert f"expected at most {MOST_BODIES_OF_KEY} of one node" in refused.text
        assert beat(other).status_code == 200
        data = rollout.encode(artifact(round_, job, other.node))
        assert swarm.client(other).upload(round_, job, data)
        assert swarm.client(worker).assignments(worker.node), "requests without a body are not held up"
    with edge.http as http:
        _eventually(lambda: beat_again(edge, http, worker), "the slots to be free again")


def beat_again(edge: Edge, http: httpx.Client, party: Party) -> bool:
    body = json.dumps({"node": party.node, "version": 0}).encode()
    signed = headers(edge.swarm, party, "POST", "/heartbeats", body)
    return http.post("/heartbeats", content=body, headers=signed).status_code == 200


def test_artifacts_that_are_asked_for_and_not_taken_leave_memory_flat(edge: Edge) -> None:
    worker, round_, job = edge.swarm.workers[0], edge.rounds[0].round, edge.rounds[0].jobs[0]
    data = rollout.encode(large_artifact(round_, job, worker.node))
    assert len(data) > 8 * MIB
    root = edge.swarm.client(worker).upload(round_, job, data)
    assert edge.swarm.client(worker).artifact(root) == data
    before = edge.memory()
    asking = head("GET", f"/artifacts/0x{root.hex()}", {})
    with ExitStack() as held:
        for _ in range(100):
            held.enter_context(edge.connect(asking))
        with edge.http as http:
            for _ in range(10):
                assert http.get("/health").status_code == 200
                time.sleep(0.1)
        assert edge.memory() < before + FLAT_BYTES


def test_idle_connections_give_way_to_new_ones(edge: Edge) -> None:
    with ExitStack() as held, edge.http as http:
        for _ in range(MOST_CONNECTIONS + 100):
            held.enter_context(edge.connect())
        assert http.get("/health").status_code == 200
        assert edge.process.num_fds() < MOST_CONNECTIONS + 200
        assert beat_again(edge, http, edge.swarm.workers[1])


def large_artifact(round_: int, job: int, node: int) -> Artifact:
    """An artifact that does not compress."""
    chance = np.random.default_rng(7)

    def made() -> Rollout:
        tokens = chance.integers(0, 2**31 - 1, 65536, dtype=np.int32)
        logprobs = -chance.random(65536, dtype=np.float32)
        return Rollout(np.array([1]), tokens, logprobs, (b"\x00" * 8,), "length")

    return Artifact(round_, job, node, MANIFEST_ROOT, tuple(made() for _ in range(24)))


def _ended(connection: socket.socket) -> bool:
    """Returns whether the server has cut the connection."""
    try:
        connection.sendall(b"x")
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


def _eventually(true, what: str, seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, f"waited {seconds} s for {what}"
        time.sleep(0.05)


@given(st.lists(st.integers(0, 40), max_size=400))
def test_however_few_keys_ask_another_key_still_gets_a_slot(asking: list[int]) -> None:
    """Half of the slots are first bodies' alone: shutting out the others takes as many keys as that."""
    slots, used = BodySlots(), 0
    with ExitStack() as held:
        for key in asking:
            try:
                held.enter_context(slots.taken(f"{key}"))
                used += 1
            except (Refused, Unavailable):
                pass
            assert used <= MOST_BODIES
        if len(set(asking)) < MOST_BODIES // 2:
            held.enter_context(slots.taken("honest"))
    for _ in range(MOST_BODIES_OF_KEY):
        with slots.taken("honest"):
            pass
