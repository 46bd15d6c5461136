"""Artifacts come from wherever a submission says; places that lie or fall silent harm nobody."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from protocol.errors import Unavailable
from protocol.transport.artifacts import fetch_artifact
from protocol.transport.blobs import BlobStores
from protocol.wire.artifact_blob import head_of
from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from tests.dripping import dripping
from tests.validator.conftest import Court
from validator.judging.claims import Claim
from validator.judging.fetching import FETCHES_PER_NODE, Absence, Fetching, fetch_once

pytestmark = pytest.mark.usefixtures("loopback")

FILE, LARGE = b"x" * 10, b"y" * 5_000_000
BLOB, LARGE_BLOB = (head_of(bytes(32), file).packed + file for file in (FILE, LARGE))
ROOT, LARGE_ROOT = (head_of(bytes(32), file).root for file in (FILE, LARGE))
JUNK = {
    "other": head_of(bytes(32), b"other").packed + b"other",
    "bare": FILE,
    "empty": b"",
    "cut": BLOB[:-1],
    "longer": BLOB + b"x",
    "changed": BLOB[:-1] + b"y",
    "head": BLOB[:71],
    "endless": BLOB + bytes(5_000_000),
}
"""Bytes that are not those that were signed."""


class Store(http.server.BaseHTTPRequestHandler):
    """Answers by path: /good/ the blob, /big/ a large one, /once/ none the first time, /drip/ a byte now and then."""

    refused = 0

    def do_GET(self) -> None:
        if self.path.startswith("/once/") and Store.refused == 0:
            Store.refused = 1
            self.send_error(503)
            return
        if self.path.startswith("/drip/"):
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                for _ in range(1000):
                    self.wfile.write(b"x")
                    time.sleep(0.05)
            return
        body = JUNK.get(self.path.split("/")[1], LARGE_BLOB if self.path.startswith("/big/") else BLOB)
        self.send_response(404 if self.path.startswith("/gone/") else 200)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class StoreServer(http.server.ThreadingHTTPServer):
    """Takes a hundred connections at once: beyond its backlog, a connection is only tried again after seconds."""

    daemon_threads = True
    request_queue_size = 128


@pytest.fixture
def url() -> Iterator[str]:
    server = StoreServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def claim(court: Court) -> Claim:
    return replace(court.sample[0], root=ROOT)


def looked(fetching: Fetching, claim: Claim, seconds: float = 5.0) -> bytes | Finding | None:
    """What comes within the time."""
    give_up = time.monotonic() + seconds
    while (found := fetching.look(claim, 1000)) is None and time.monotonic() < give_up:
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("path", ["good", "once"])
def test_an_artifact_is_fetched_if_need_be_again(url: str, claim: Claim, path: str) -> None:
    fetching = Fetching(BlobStores())
    assert looked(fetching, replace(claim, uri=f"{url}/{path}/")) == BLOB
    fetching.close()


def test_a_file_that_was_signed_too_large_is_a_finding_before_it_is_read(url: str, claim: Claim) -> None:
    stores = BlobStores()
    found = fetch_once(stores, replace(claim, uri=f"{url}/big/", root=LARGE_ROOT), 1000)
    stores.close()
    assert isinstance(found, Finding)
    assert (found.reason, found.reason.unavailable) == (Reason.SHAPE, False)
    assert "5000000 bytes: expected at most 1000" in found.detail


@pytest.mark.parametrize("path", ["big", *JUNK])
def test_a_holder_that_sends_other_bytes_than_the_signed_ones_has_none(url: str, claim: Claim, path: str) -> None:
    stores = BlobStores()
    assert fetch_once(stores, replace(claim, uri=f"{url}/{path}/"), 1000) is Absence.DENIED
    stores.close()


def test_junk_first_and_the_truth_later_is_the_truth(url: str, claim: Claim) -> None:
    with closing(BlobStores()) as stores:
        holders = [f"{url}/{path}/" for path in (*JUNK, "gone", "good")]
        assert fetch_artifact(stores, holders, ROOT, 1000) == BLOB
        with pytest.raises(Unavailable, match=r"does not have the artifact"):
            fetch_artifact(stores, holders[:-1], ROOT, 1000)


@pytest.mark.parametrize("uri", ["", "file:///etc/passwd", "ftp://host/", "http://", "http://[", "\x00", "é" * 300])
def test_a_uri_that_is_none_is_a_finding_and_no_crash(claim: Claim, uri: str) -> None:
    stores = BlobStores()
    found = fetch_once(stores, replace(claim, uri=uri), 1000)
    stores.close()
    assert isinstance(found, Finding)
    assert found.reason is Reason.UNAVAILABLE


@pytest.mark.parametrize("path", ["/gone/", None])
def test_silence_proves_nothing(url: str, claim: Claim, path: str | None) -> None:
    stores = BlobStores()
    uri = "http://127.0.0.1:1/" if path is None else url + path
    expected = Absence.SILENT if path is None else Absence.DENIED
    assert fetch_once(stores, replace(claim, uri=uri), 1000) is expected
    stores.close()


def test_an_answer_without_the_artifact_is_told_from_no_answer(url: str, claim: Claim) -> None:
    fetching = Fetching(BlobStores())
    nowhere, gone = replace(claim, uri="http://127.0.0.1:1/"), replace(claim, uri=f"{url}/gone/", job=claim.job + 1)
    assert looked(fetching, nowhere, 0.5) is looked(fetching, gone, 0.5) is None
    assert (fetching.denied(nowhere), fetching.denied(gone)) == (False, True)
    fetching.close()


def test_what_belongs_to_a_finished_round_is_let_go(url: str, claim: Claim) -> None:
    fetching, good = Fetching(BlobStores()), replace(claim, uri=f"{url}/good/")
    assert looked(fetching, good) is not None
    fetching.keep({claim.round + 1})
    assert fetching.look(good, 1000) is None
    fetching.close()


def test_stores_that_drip_delay_no_other_nodes_artifacts(url: str, claim: Claim) -> None:
    fetching = Fetching(BlobStores())
    for node in range(12):
        for job in range(12):
            dripping = replace(claim, uri=f"{url}/drip/", node=1000 + node, job=1000 + 12 * node + job)
            assert fetching.look(dripping, 1000) is None
    for job in range(8, 12):
        honest = replace(claim, uri=f"{url}/good/", node=1, job=job)
        assert looked(fetching, honest) == BLOB, f"job {job} waited for another node's store"
    fetching.close()


def test_what_was_not_tried_is_not_silent(url: str, claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protocol.transport.blobs.GRACE_SECONDS", 0.5)
    fetching = Fetching(BlobStores())
    claims = [replace(claim, uri=f"{url}/drip/", job=job) for job in range(3 * FETCHES_PER_NODE)]
    started = time.monotonic()
    for each in claims:
        fetching.look(each, 1000)
    time.sleep(0.7)
    assert [fetching.tried(each) for each in claims] == [True] * FETCHES_PER_NODE + [False] * 2 * FETCHES_PER_NODE
    while not all(fetching.tried(each) for each in claims):
        time.sleep(0.01)
    assert time.monotonic() - started < 4, "a store that drips is cut off"
    fetching.close()


def test_what_nobody_wants_any_more_is_no_longer_fetched(url: str, claim: Claim) -> None:
    fetching, before = Fetching(BlobStores()), set(threading.enumerate())
    for job in range(FETCHES_PER_NODE):
        fetching.look(replace(claim, uri=f"{url}/drip/", job=job), 1000)
    started = {thread for thread in threading.enumerate() if thread.name.startswith("artifacts-")} - before
    assert len(started) == FETCHES_PER_NODE
    time.sleep(0.2)
    fetching.keep({claim.round + 1})
    give_up = time.monotonic() + 3
    while any(thread.is_alive() for thread in started):
        assert time.monotonic() < give_up, "fetches go on"
        time.sleep(0.01)
    fetching.close()


def test_a_steady_store_is_given_the_time_that_its_bytes_take(monkeypatch: pytest.MonkeyPatch, claim: Claim) -> None:
    monkeypatch.setattr("protocol.transport.blobs.GRACE_SECONDS", 0.5)
    size = 200_000

    def steady(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(10):
            connection.sendall(bytes(size // 10))
            time.sleep(0.15)

    with dripping(steady) as url, contextlib.closing(BlobStores()) as stores:
        assert stores.open_public(f"{url}/").get(claim.root, size) == bytes(size)
