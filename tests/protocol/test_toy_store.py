"""A store of blobs that only this file knows behaves like those of the product: nothing else has to change for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from protocol.errors import Rejected, Unavailable
from protocol.transport.blobs import SCHEMES, Blobs, BlobStores, Scheme, TooLarge
from protocol.wire.artifact_blob import head_of
from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from validator.judging.claims import Claim
from validator.judging.fetching import Absence, fetch_once

pytestmark = pytest.mark.usefixtures("loopback")

ROOT, OTHER = bytes(range(32)), bytes(32)


class ToyBlobs:
    """Blobs in memory."""

    def __init__(self) -> None:
        self.held: dict[bytes, bytes] = {}

    def put(self, root: bytes, data: bytes) -> None:
        self.held.setdefault(root, data)

    def get(self, root: bytes, limit: int) -> bytes | None:
        data = self.held.get(root)
        if data is not None and len(data) > limit:
            raise TooLarge(f"the blob has more than {limit} bytes", data[:limit])
        return data

    def has(self, root: bytes) -> bool:
        return root in self.held

    def drop(self, root: bytes) -> None:
        self.held.pop(root, None)


def server() -> Starlette:
    """A writable server of blobs."""
    held: dict[str, bytes] = {}

    async def blob(request: Request) -> Response:
        name = request.path_params["root"]
        if request.method == "PUT":
            if name in held and request.headers["If-None-Match"] == "*":
                return Response(status_code=412)
            held[name] = await request.body()
            return Response(status_code=201)
        if request.method == "DELETE":
            return Response(status_code=204 if held.pop(name, None) is not None else 404)
        return Response(held[name]) if name in held else Response(status_code=404)

    return Starlette(routes=[Route("/blobs/{root}", blob, methods=["GET", "PUT", "DELETE"])])


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobStores]:
    """Stores of every kind, the toy's among them."""
    toys: dict[str, ToyBlobs] = {}
    monkeypatch.setitem(SCHEMES, "toy", Scheme(lambda url, _: toys.setdefault(url, ToyBlobs()), public=True))
    with closing(BlobStores(timeout_seconds=2.0)) as opened:
        yield opened


@pytest.fixture(params=["directory", "http", "toy"])
def url(request: pytest.FixtureRequest, tmp_path: Path, serve: Callable[[Any], Any]) -> str:
    """Where an empty store is."""
    if request.param == "directory":
        return (tmp_path / "blobs").as_uri()
    return f"{serve(server()).url}/blobs/" if request.param == "http" else "toy:here"


@pytest.fixture
def blobs(stores: BlobStores, url: str) -> Blobs:
    return stores.open(url)


def test_what_is_put_is_there_and_nothing_else(blobs: Blobs) -> None:
    assert (blobs.has(ROOT), blobs.get(ROOT, 100)) == (False, None)
    blobs.put(ROOT, b"bytes")
    assert (blobs.has(ROOT), blobs.get(ROOT, 100)) == (True, b"bytes")
    assert (blobs.has(OTHER), blobs.get(OTHER, 100)) == (False, None)


def test_a_store_opened_twice_is_the_same_store(stores: BlobStores, url: str) -> None:
    stores.open(url).put(ROOT, b"bytes")
    assert stores.open(url).get(ROOT, 5) == b"bytes"


def test_the_first_to_arrive_under_a_root_is_kept(blobs: Blobs) -> None:
    blobs.put(ROOT, b"first")
    blobs.put(ROOT, b"second")
    assert blobs.get(ROOT, 100) == b"first"


def test_a_blob_over_the_limit_is_rejected_and_one_at_the_limit_is_not(blobs: Blobs) -> None:
    blobs.put(ROOT, bytes(1000))
    with pytest.raises(Rejected, match="more than 999 bytes"):
        blobs.get(ROOT, 999)
    assert blobs.get(ROOT, 1000) == bytes(1000)


def test_what_is_dropped_is_gone_and_can_be_put_again(blobs: Blobs) -> None:
    blobs.put(ROOT, b"first")
    blobs.drop(ROOT)
    assert (blobs.has(ROOT), blobs.get(ROOT, 100)) == (False, None)
    blobs.drop(ROOT)
    blobs.put(ROOT, b"second")
    assert blobs.get(ROOT, 100) == b"second"


def test_others_may_name_a_public_store_and_no_local_one(stores: BlobStores, url: str) -> None:
    stores.open(url).put(ROOT, b"bytes")
    if url.startswith("file:"):
        with pytest.raises(Rejected, match="local"):
            stores.fetch(url, ROOT, 100)
        return
    assert stores.fetch(url, ROOT, 100) == b"bytes"
    with pytest.raises(Rejected, match="more than"):
        stores.fetch(url, ROOT, 4)
    with pytest.raises(Unavailable):
        stores.fetch(url, OTHER, 100)


def test_a_validator_fetches_artifacts_from_a_public_store_and_from_no_local_one(stores: BlobStores, url: str) -> None:
    head = head_of(bytes(32), b"bytes")
    stores.open(url).put(head.root, head.packed + b"bytes")
    here = Claim(31337, "0x", 1, 0, 7, ROOT, ROOT, ROOT, 1, 1, head.root, url, False)
    found, too_large = (fetch_once(stores, here, limit) for limit in (5, 4))
    assert isinstance(too_large, Finding)
    if url.startswith("file:"):
        assert isinstance(found, Finding)
        assert found.reason is too_large.reason is Reason.UNAVAILABLE
        return
    assert found == head.packed + b"bytes"
    assert too_large.reason is Reason.SHAPE
    assert fetch_once(stores, replace(here, root=OTHER), 5) is Absence.DENIED, "it may come yet"
