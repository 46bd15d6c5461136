"""Blobs on disk and over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
from starlette.applications import Starlette
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from protocol.errors import Rejected, Unavailable
from protocol.transport.blobs import BlobStores, DirectoryBlobs

pytestmark = pytest.mark.usefixtures("loopback")

ROOT = bytes(range(32))


@pytest.fixture
def stores():
    with closing(BlobStores(timeout_seconds=2.0)) as opened:
        yield opened


def test_what_is_put_survives_a_restart(tmp_path):
    DirectoryBlobs(tmp_path / "blobs").put(ROOT, b"bytes")
    blobs = DirectoryBlobs(tmp_path / "blobs")
    assert blobs.has(ROOT)
    assert blobs.get(ROOT, 5) == b"bytes"


def test_a_directory_is_opened_by_its_url_however_it_is_called(tmp_path, stores):
    folder = tmp_path / "a b?c#d%20"
    stores.open(folder.as_uri()).put(ROOT, b"bytes")
    assert DirectoryBlobs(folder).get(ROOT, 5) == b"bytes"


def test_a_disk_that_fails_is_unavailable_and_leaves_nothing(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable):
        DirectoryBlobs(tmp_path / "file").put(ROOT, b"bytes")
    with pytest.raises(Unavailable):
        DirectoryBlobs(tmp_path / "file").drop(ROOT)
    with pytest.raises(Unavailable):
        DirectoryBlobs(tmp_path / ("x" * 300)).has(ROOT)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_blob_is_fetched_from_its_uri(serve, stores):
    asked = []

    async def blob(request):
        asked.append(request.path_params["root"])
        return Response(b"bytes")

    url = serve(Starlette(routes=[Route("/artifacts/{root}", blob)])).url
    assert stores.fetch(f"{url}/artifacts/", ROOT, 5) == b"bytes"
    assert asked == ["0x" + ROOT.hex()]


def test_a_blob_over_the_limit_is_rejected_without_reading_on(serve, stores):
    sent = []

    async def two_gigabytes():
        for _ in range(32768):
            sent.append(1)
            yield bytes(65536)
            await asyncio.sleep(0)

    async def blob(request):
        return StreamingResponse(two_gigabytes())

    url = serve(Starlette(routes=[Route("/{root}", blob)])).url
    with pytest.raises(Rejected, match="more than"):
        stores.fetch(f"{url}/", ROOT, 100_000)
    assert len(sent) < 1000


def test_a_blob_that_is_not_there_now_is_unavailable(serve, stores):
    async def elsewhere(request):
        return RedirectResponse("http://127.0.0.1:1/")

    url = serve(Starlette(routes=[Route("/moved/{root}", elsewhere)])).url
    for base in (f"{url}/missing/", f"{url}/moved/", "http://127.0.0.1:9/", "http://nowhere.invalid/"):
        with pytest.raises(Unavailable):
            stores.fetch(base, ROOT, 100)


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "ftp://host/", "", "artifacts/", "http:///x/", "http://[::1"])
def test_a_uri_that_is_no_http_url_is_rejected(stores, uri):
    with pytest.raises(Rejected):
        stores.fetch(uri, ROOT, 100)


@pytest.mark.parametrize("url", ["file:", "file:relative", "s4://bucket/", "/path", ""])
def test_a_url_that_opens_no_store_is_rejected(stores, url):
    with pytest.raises(Rejected):
        stores.open(url)


def test_a_server_that_fails_is_unavailable_and_not_empty(serve, stores):
    async def broken(request):
        return Response(status_code=503)

    url = serve(Starlette(routes=[Route("/{root}", broken, methods=["GET", "PUT", "DELETE"])])).url
    blobs = stores.open(f"{url}/")
    for call in (lambda: blobs.has(ROOT), lambda: blobs.put(ROOT, b""), lambda: blobs.drop(ROOT)):
        with pytest.raises(Unavailable, match="503"):
            call()
