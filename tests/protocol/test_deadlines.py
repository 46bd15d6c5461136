"""Requests to servers that drip: each byte is in time, the whole never is."""

from __future__ import annotations

import socket
import time
from contextlib import closing

import httpx
import pytest

from protocol.chain import rpc
from protocol.chain.reading.endpoints import Endpoints
from protocol.chain.rpc import Rpc
from protocol.deadlines import bounded, within
from protocol.errors import Unavailable
from protocol.transport import coordinator
from protocol.transport.artifacts import fetch_artifact
from protocol.transport.blobs import BlobStores
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire.artifact_blob import head_of
from tests.dripping import OK, drip_body, drip_head, dripping

pytestmark = pytest.mark.usefixtures("loopback")


def drip_reading(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    while connection.recv(512):
        time.sleep(0.1)


@pytest.mark.parametrize("serve", [drip_head, drip_body])
def test_a_dripping_coordinator_is_given_up_in_time(serve, monkeypatch) -> None:
    monkeypatch.setattr(coordinator, "TIMEOUT_SECONDS", 1.0)
    started = time.monotonic()
    with (
        dripping(serve) as url,
        closing(CoordinatorClient(url)) as client,
        pytest.raises(Unavailable, match="does not answer"),
    ):
        client.health()
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("serve", [drip_head, drip_body])
def test_a_dripping_endpoint_is_given_up_in_time_and_another_takes_over(serve) -> None:
    started = time.monotonic()
    with (
        dripping(serve) as hostile,
        dripping(answer_rpc) as honest,
        closing(Endpoints([Rpc(hostile, 1.0), Rpc(honest, 1.0)], lambda _: None)) as endpoints,
    ):
        assert endpoints.call("eth_chainId") == "0x1"
    assert time.monotonic() - started < 5


def answer_rpc(connection: socket.socket) -> None:
    connection.recv(65536)
    body = b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    connection.recv(1)


def test_an_endpoint_whose_answer_has_no_end_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(rpc, "MOST_BYTES", 1 << 20)

    def endless(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b" " * 65536)

    with (
        dripping(endless) as url,
        closing(Rpc(url)) as endpoint,
        pytest.raises(Unavailable, match="more than 1048576 bytes"),
    ):
        endpoint.call("eth_chainId")


def test_a_server_that_takes_a_body_by_the_drop_is_given_up_in_time() -> None:
    started = time.monotonic()
    with (
        dripping(drip_reading) as url,
        bounded(httpx.Client(trust_env=False)) as client,
        within(1.0),
        pytest.raises(httpx.TimeoutException),
    ):
        client.put(url, content=bytes(32 << 20))
    assert time.monotonic() - started < 5


def test_a_dripping_store_is_given_up_in_time(monkeypatch) -> None:
    monkeypatch.setattr("protocol.transport.blobs.GRACE_SECONDS", 1.0)
    for serve in (drip_head, drip_body):
        started = time.monotonic()
        with dripping(serve) as url, closing(BlobStores()) as stores, pytest.raises(Unavailable):
            stores.fetch(f"{url}/", bytes(32), 1 << 20)
        assert time.monotonic() - started < 5


def test_a_holder_that_drips_is_asked_last_from_then_on(monkeypatch) -> None:
    monkeypatch.setattr("protocol.transport.blobs.GRACE_SECONDS", 1.0)
    monkeypatch.setattr("protocol.transport.artifacts.SLOW_SECONDS", 0.5)
    files = [b"file" * n for n in range(5)]
    blobs = {head.root: head.packed + file for file in files for head in [head_of(bytes(32), file)]}

    def serve(connection: socket.socket) -> None:
        root = bytes.fromhex(connection.recv(65536).split(b" ")[1].partition(b"0x")[2].decode())
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        connection.sendall(answer % len(blobs[root]) + blobs[root])

    with dripping(drip_head) as slow, dripping(serve) as prompt, closing(BlobStores()) as stores:
        started = time.monotonic()
        for root, blob in blobs.items():
            assert fetch_artifact(stores, (f"{slow}/", f"{prompt}/"), root, 1000) == blob
    assert time.monotonic() - started < 2.0


def test_bytes_that_arrive_earn_time() -> None:
    def steady(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(OK)
        for _ in range(10):
            connection.sendall(bytes(100_000))
            time.sleep(0.2)

    with (
        dripping(steady) as url,
        bounded(httpx.Client(trust_env=False)) as client,
        within(1.0) as deadline,
        client.stream("GET", url) as response,
    ):
        assert len(b"".join(deadline.extended(response.iter_raw()))) == 1_000_000
    with bounded(httpx.Client(trust_env=False)) as client, within(0.0), pytest.raises(httpx.ConnectTimeout):
        client.get(url)
