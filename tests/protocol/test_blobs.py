"""Blobs on disk and over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
from starlette.applications import Starlette
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from protocol.errors import Rejected, Unavailable
from protocol.transport.blobs import DirectoryBlobs, HttpBlobs

ROOT = bytes(range(32))


@pytest.fixture
def http():
    with closing(HttpBlobs(timeout_seconds=2.0)) as blobs:
        yield blobs


def test_what_is_put_is_there_and_survives_a_restart(tmp_path):
    DirectoryBlobs(tmp_path / "blobs").put(ROOT, b"bytes")
    blobs = DirectoryBlobs(tmp_path / "blobs")
    assert blobs.has(ROOT)
    assert blobs.get(ROOT) == b"bytes"
    blobs.drop(ROOT)
    assert blobs.get(ROOT) is None
    blobs.drop(ROOT)


def test_the_first_to_arrive_under_a_root_is_kept(tmp_path):
    blobs = DirectoryBlobs(tmp_path)
    blobs.put(ROOT, b"first")
    blobs.put(ROOT, b"second")
    assert blobs.get(ROOT) == b"first"


def test_a_disk_that_fails_is_unavailable_and_leaves_nothing(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable):
        DirectoryBlobs(tmp_path / "file").put(ROOT, b"bytes")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_blob_is_fetched_from_its_uri(serve, http):
    asked = []

    async def blob(request):
        asked.append(request.path_params["root"])
        return Response(b"bytes")

    url = serve(Starlette(routes=[Route("/artifacts/{root}", blob)])).url
    assert http.get(f"{url}/artifacts/", ROOT, 5) == b"bytes"
    assert asked == ["0x" + ROOT.hex()]


def test_a_blob_over_the_limit_is_rejected_without_reading_on(serve, http):
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
        http.get(f"{url}/", ROOT, 100_000)
    assert len(sent) < 1000


def test_a_blob_that_is_not_there_now_is_unavailable(serve, http):
    async def elsewhere(request):
        return RedirectResponse("http://127.0.0.1:1/")

    url = serve(Starlette(routes=[Route("/moved/{root}", elsewhere)])).url
    for base in (f"{url}/missing/", f"{url}/moved/", "http://127.0.0.1:9/", "http://nowhere.invalid/"):
        with pytest.raises(Unavailable):
            http.get(base, ROOT, 100)


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "ftp://host/", "", "artifacts/", "http:///x/", "http://[::1"])
def test_a_uri_that_is_no_http_url_is_rejected(http, uri):
    with pytest.raises(Rejected):
        http.get(uri, ROOT, 100)
