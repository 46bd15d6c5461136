"""A relay's server process under peers that ask, send or wait without end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from deploy.localnet.processes import free_port
from protocol.broadcast.publishing import publish
from protocol.broadcast.version_store import VersionStore
from protocol.chain.deployment import Deployment
from protocol.transport.connections import MOST_CONNECTIONS
from protocol.wire.manifest import Chunk, SignedManifest
from tests.conftest import ROOT, until

MIB = 1 << 20
ADDRESS = "0x" + "11" * 20
FLAT_BYTES = 48 * MIB
"""Most that the relay may grow by while a hundred peers ask for 800 MiB: pieces in flight, and the threads' memory."""


@dataclass
class Relayed:
    """A relay's port and process, and the version it holds."""

    port: int
    process: psutil.Process
    signed: SignedManifest

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", trust_env=False, timeout=30)

    def asking(self, path: str, *more: str, source: str = "127.0.0.1") -> socket.socket:
        """A connection on which a request was sent, and from which nothing is read."""
        connection = socket.create_connection(("127.0.0.1", self.port), 10, (source, 0))
        connection.sendall("\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *more, "", ""]).encode())
        return connection

    @property
    def chunk(self) -> Chunk:
        return max(self.signed.manifest.chunks(), key=lambda chunk: chunk.size)


@pytest.fixture
def relayed(tmp_path: Path, signer) -> Iterator[Relayed]:
    """``assize relay serve`` over a store with one version in chunks of 8 MiB."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(os.urandom(16 * MIB))
    store = VersionStore(tmp_path / "relay")
    signed = publish(tmp_path / "model", 1, 1, 31337, ADDRESS, signer, store, chunk_bytes=8 * MIB)
    Deployment(31337, 0, bytes(32), *[ADDRESS] * 7).save(tmp_path / "addresses.json")
    port = free_port()
    words = ["--upstream", "http://127.0.0.1:9", "--trainer", signer.address, "--run", "1", "--port", str(port)]
    words += ["--addresses", str(tmp_path / "addresses.json"), "--state-dir", str(tmp_path / "relay")]
    process = subprocess.Popen([sys.executable, str(ROOT / "assize.py"), "relay", "serve", *words], cwd=ROOT)
    try:
        made = Relayed(port, psutil.Process(process.pid), signed)
        until(lambda: _answers(made), 60, "the relay to answer")
        yield made
    finally:
        process.kill()
        process.wait()


def _answers(relayed: Relayed) -> bool:
    try:
        with relayed.http() as http:
            return http.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def test_whoever_asks_and_does_not_read_sends_without_end_or_waits_costs_little_and_shuts_nobody_out(
    relayed: Relayed,
) -> None:
    path = f"/chunks/{relayed.chunk.hash.hex()}"
    with relayed.http() as http:
        whole = http.get(path).content
        assert len(whole) == 8 * MIB
        assert http.get(path, headers={"Range": "bytes=5-9"}).content == whole[5:10]
        before = relayed.process.memory_info().rss

        with ExitStack() as held:  # chunks that are not taken
            for _ in range(100):
                held.enter_context(relayed.asking(path))
            for _ in range(5):
                assert http.get(path).content == whole
            assert relayed.process.memory_info().rss < before + FLAT_BYTES

        with relayed.asking("/health", f"Content-Length: {1 << 30}") as sending:  # a body that no path takes
            sent = 0
            with suppress(OSError):
                while sent < 1 << 30:
                    sent += sending.send(b"x" * MIB)
            assert sent < 16 * MIB, "the relay has ended the connection"
        assert relayed.process.memory_info().rss < before + FLAT_BYTES

        tag = http.get("/runs/1/checkpoints").headers["etag"]
        with ExitStack() as held:  # lists that do not change, then connections without a request
            for _ in range(MOST_CONNECTIONS // 2):
                held.enter_context(relayed.asking("/runs/1/checkpoints?wait=30", f"If-None-Match: {tag}"))
            started = time.monotonic()
            assert http.get(path).content == whole
            assert time.monotonic() - started < 5
            for _ in range(MOST_CONNECTIONS):
                held.enter_context(socket.create_connection(("127.0.0.1", relayed.port), timeout=10))
            with relayed.http() as newcomer:  # the other's idle connection may be ended while it sends
                assert newcomer.get(path).content == whole
        assert relayed.process.memory_info().rss < before + FLAT_BYTES


def test_a_network_that_keeps_every_connection_busy_makes_way_for_another(relayed: Relayed) -> None:
    with relayed.http() as http:
        tag = http.get("/runs/1/checkpoints").headers["etag"]
    with ExitStack() as held:

        def wait() -> socket.socket:
            asked = relayed.asking("/runs/1/checkpoints?wait=30", f"If-None-Match: {tag}", source="127.0.0.2")
            return held.enter_context(asked)

        def is_refused() -> bool:
            """Asks once more; an earlier connection whose request was not read yet gives way."""
            with suppress(TimeoutError):
                asked = wait()
                asked.settimeout(1)
                return b"all connections of this server are in use" in asked.recv(65536)
            return False

        waiting = [wait() for _ in range(MOST_CONNECTIONS - 8)]
        for _ in range(3):  # answered after the requests before it were read
            with relayed.http() as http:
                assert http.get("/health").status_code == 200
        waiting += [wait() for _ in range(8)]
        until(is_refused, 20, "all connections to be in use")
        with relayed.http() as http:
            assert http.get("/health").status_code == 200
        # The relay takes connections that come at once in any order, so its oldest is one of the first.
        until(lambda: any(map(_is_cut, waiting[:32])), 20, "the oldest of the network that held most to be cut")
        assert not _is_cut(waiting[MOST_CONNECTIONS // 2])


def _is_cut(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
