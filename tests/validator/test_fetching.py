"""Artifacts come from wherever a submission says; places that lie or fall silent harm nobody."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from protocol.transport.blobs import BlobStores
from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from tests.validator.conftest import Court
from validator.judging.claims import Claim
from validator.judging.fetching import Fetching, fetch_once


class Store(http.server.BaseHTTPRequestHandler):
    """Answers by path: /good/ bytes, /big/ too many, /once/ nothing the first time, /drip/ a byte now and then."""

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
        body = b"x" * (5_000_000 if self.path.startswith("/big/") else 10)
        self.send_response(404 if self.path.startswith("/gone/") else 200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def claim(court: Court) -> Claim:
    return court.sample[0]


def looked(fetching: Fetching, claim: Claim, seconds: float = 5.0) -> bytes | Finding | None:
    """What comes within the time."""
    give_up = time.monotonic() + seconds
    while (found := fetching.look(claim, 1000)) is None and time.monotonic() < give_up:
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("path", ["good", "once"])
def test_an_artifact_is_fetched_if_need_be_again(url: str, claim: Claim, path: str) -> None:
    fetching = Fetching()
    assert looked(fetching, replace(claim, uri=f"{url}/{path}/")) == b"x" * 10
    fetching.close()


def test_too_many_bytes_are_a_finding(url: str, claim: Claim) -> None:
    stores = BlobStores()
    found = fetch_once(stores, replace(claim, uri=f"{url}/big/"), 1000)
    stores.close()
    assert isinstance(found, Finding)
    assert found.reason is Reason.SHAPE


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
    assert fetch_once(stores, replace(claim, uri=uri), 1000) is None
    stores.close()


def test_what_belongs_to_a_finished_round_is_let_go(url: str, claim: Claim) -> None:
    fetching, good = Fetching(), replace(claim, uri=f"{url}/good/")
    assert looked(fetching, good) is not None
    fetching.keep({claim.round + 1})
    assert fetching.look(good, 1000) is None
    fetching.close()


def test_stores_that_drip_delay_no_other_nodes_artifacts(url: str, claim: Claim) -> None:
    fetching = Fetching()
    for node in range(12):
        for job in range(12):
            dripping = replace(claim, uri=f"{url}/drip/", node=1000 + node, job=1000 + 12 * node + job)
            assert fetching.look(dripping, 1000) is None
    for job in range(8, 12):
        honest = replace(claim, uri=f"{url}/good/", node=1, job=job)
        assert looked(fetching, honest) == b"x" * 10, f"job {job} waited for another node's store"
    fetching.close()
