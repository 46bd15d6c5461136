"""HTTP server of a store of versions, for origins and relays. Paths are listed in ``shardcast``.

A request for a chunk that a stored manifest names, but that has not arrived yet, waits for it: a relay serves chunk k
while chunk k + 1 is in flight, and clients need not guess when to retry. The system sends a chunk from its file, as
fast as each client takes it, without a copy in this process.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO

from blake3 import blake3
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from protocol.broadcast.listing import listed
from protocol.broadcast.traffic import CHUNKS, FRAMES, Traffic
from protocol.broadcast.version_store import VersionStore
from protocol.errors import AssizeError
from protocol.transport.connections import FILE_SENDING
from protocol.transport.index import add_index
from protocol.transport.request_times import RequestTimes
from protocol.wire.api import (
    Body,
    ErrorBody,
    LatestCheckpoint,
    StoreStatus,
)
from protocol.wire.delta_manifest import FRAMES_FILE
from protocol.wire.manifest import Chunk

CHUNK_WAIT_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 30.0
POLL_SECONDS = 0.02
WAITING_AT_FULL_PACE = 64
"""Requests that may wait before each of them looks less often: anyone may wait, and looking takes time."""
PIECE_BYTES = 64 << 10
_RANGE = re.compile(r"bytes=(\d{1,12})-(\d{0,12})", re.ASCII)
_FOREVER = "public, max-age=31536000, immutable"


class Waiting:
    """Requests that wait for a file or a list to change."""

    def __init__(self) -> None:
        self._count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts a request while the block runs."""
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    async def pause(self) -> None:
        """Returns when a waiting request may look again."""
        await asyncio.sleep(POLL_SECONDS * (1 + self._count // WAITING_AT_FULL_PACE))


def create_app(
    store: VersionStore,
    chunk_wait_seconds: float = CHUNK_WAIT_SECONDS,
    traffic: Traffic | None = None,
    status_of: Callable[[bool], StoreStatus] | None = None,
) -> Starlette:
    """Returns the ASGI app that serves ``store``; other processes may write into it meanwhile.

    ``traffic`` counts and caps what it sends. ``status_of`` returns its status, with peers or without.
    """
    waiting, traffic = Waiting(), traffic or Traffic()

    async def health(request: Request) -> Response:
        return Response(b'{"ok":true}', media_type="application/json")

    async def latest(request: Request) -> Response:
        version = store.latest(int(request.path_params["run"]))
        if version is None:
            return _refuse(404, "no checkpoint of this run is stored here")
        return _json(LatestCheckpoint(version=version))

    async def manifest(request: Request) -> Response:
        root = request.query_params.get("root", "")
        if not re.fullmatch(r"(0x[0-9a-f]{64})?", root, re.ASCII):
            return _refuse(400, "invalid root: expected 0x and 64 hex digits")
        wanted = bytes.fromhex(root[2:]) if root else None
        signed = store.manifest(int(request.path_params["run"]), int(request.path_params["version"]), wanted)
        if signed is None:
            return _refuse(404, "this checkpoint is not stored here")
        return Response(signed.canonical, media_type="application/json")

    async def delta(request: Request) -> Response:
        root = request.path_params["root"]
        if not re.fullmatch(r"0x[0-9a-f]{64}", root, re.ASCII):
            return _refuse(400, "invalid root: expected 0x and 64 hex digits")
        signed = store.delta(int(request.path_params["run"]), bytes.fromhex(root[2:]))
        if signed is None:
            return _refuse(404, "this delta is not stored here")
        return Response(signed.canonical, media_type="application/json")

    async def status(request: Request) -> Response:
        if status_of is None:
            return _refuse(404, "this server tells no status")
        local = request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
        return _json(await run_in_threadpool(status_of, local))

    async def broken(request: Request, error: Exception) -> Response:
        return _refuse(503, str(error))

    routes = [
        Route("/health", health),
        Route("/status", status),
        Route("/runs/{run:int}/checkpoints/latest", latest),
        Route("/runs/{run:int}/checkpoints", partial(_listing, store, waiting)),
        Route("/runs/{run:int}/checkpoints/{version:int}", manifest),
        Route("/runs/{run:int}/deltas/{root:str}", delta),
        Route("/chunks/{hash:str}", partial(_chunk, store, waiting, traffic, chunk_wait_seconds)),
    ]
    app = Starlette(routes=routes, exception_handlers={AssizeError: broken})
    app.add_middleware(RequestTimes)
    add_index(app, "Assize weights", lambda: [route.path for route in routes])
    return app


async def _listing(store: VersionStore, waiting: Waiting, request: Request) -> Response:
    """Answers at once, unless the client has the current list: then waits for a change."""
    run, known = int(request.path_params["run"]), request.headers.get("if-none-match")
    wait = re.fullmatch(r"\d{1,3}(\.\d{1,3})?", request.query_params.get("wait", "0"), re.ASCII)
    if wait is None:
        return _refuse(400, "invalid wait: expected a number of seconds")
    loop = asyncio.get_running_loop()
    until = loop.time() + min(float(wait.group()), LONGEST_WAIT_SECONDS)
    seen = -1
    with waiting.counted():
        while True:
            changed_at = store.changed_at(run)
            if changed_at != seen:
                seen, held = changed_at, listed(store, run)
                tag = f'"{blake3(held.model_dump_json().encode()).hexdigest()[:32]}"'
                if tag != known:
                    return _json(held, {"ETag": tag})
            if loop.time() >= until:
                return Response(status_code=304)
            await waiting.pause()


async def _chunk(
    store: VersionStore, waiting: Waiting, traffic: Traffic, wait_seconds: float, request: Request
) -> Response:
    name = request.path_params["hash"]
    if not re.fullmatch(r"[0-9a-f]{64}", name, re.ASCII):
        return _refuse(400, "invalid chunk hash: expected 64 hex digits")
    tag = f'"{name}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag, "Cache-Control": _FOREVER})
    opened = await _arrived(store, waiting, bytes.fromhex(name), wait_seconds)
    if opened is None:
        return _refuse(404, "this chunk is not stored here")
    return _ranged(*opened, traffic, request.headers.get("range"), {"ETag": tag, "Cache-Control": _FOREVER})


async def _arrived(
    store: VersionStore, waiting: Waiting, digest: bytes, wait_seconds: float
) -> tuple[IO[bytes], Chunk] | None:
    """Opens the file of a chunk, waiting for it if a stored manifest names it."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_seconds
    with waiting.counted():
        while (opened := store.open(digest)) is None:
            if loop.time() >= until or not store.expects(digest):
                return None
            await waiting.pause()
    return opened


def _ranged(file: IO[bytes], chunk: Chunk, traffic: Traffic, header: str | None, headers: dict[str, str]) -> Response:
    """Answers with the whole chunk, or with one range (RFC 9110, 14.2); an unreadable range header is ignored."""
    headers["Accept-Ranges"] = "bytes"
    asked = _RANGE.fullmatch(header) if header else None
    if asked is None:
        return FilePart(file, chunk, 0, chunk.size, traffic, 200, headers)
    first, last = int(asked[1]), min(int(asked[2] or chunk.size), chunk.size - 1)
    if first > last:
        file.close()
        return Response(status_code=416, headers={"Content-Range": f"bytes */{chunk.size}"})
    headers["Content-Range"] = f"bytes {first}-{last}/{chunk.size}"
    return FilePart(file, chunk, first, last + 1 - first, traffic, 206, headers)


class FilePart(Response):
    """Answers with ``size`` bytes of a chunk in an open file, from ``first`` on, and closes it."""

    def __init__(
        self,
        file: IO[bytes],
        chunk: Chunk,
        first: int,
        size: int,
        traffic: Traffic,
        status: int,
        headers: dict[str, str],
    ) -> None:
        headers = {"Content-Length": str(size)} | headers
        super().__init__(None, status, headers, "application/octet-stream")
        self._file, self._first, self._size, self._traffic = file, chunk.offset + first, size, traffic
        self._kind = FRAMES if chunk.file == FRAMES_FILE else CHUNKS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Has the server send the file if it can, else reads it piece by piece."""
        with self._file:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._send_body(scope, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_body(self, scope: Scope, send: Send) -> None:
        by_system = FILE_SENDING in scope.get("extensions", {})
        step = self._size if by_system and not self._traffic.capped else PIECE_BYTES
        peer = (scope.get("client") or ("",))[0]
        for first in range(self._first, self._first + self._size, step):
            size = min(step, self._first + self._size - first)
            if wait := self._traffic.pacer.wait_for(size):
                await asyncio.sleep(wait)
            if by_system:
                await send({"type": FILE_SENDING, "file": self._file, "offset": first, "count": size})
            else:
                piece = await run_in_threadpool(os.pread, self._file.fileno(), size, first)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            self._traffic.sent(self._kind, peer, size)


def _json(body: Body, headers: dict[str, str] | None = None) -> Response:
    return Response(body.model_dump_json(), headers=headers, media_type="application/json")


def _refuse(status: int, sentence: str) -> Response:
    return Response(ErrorBody(error=sentence).model_dump_json(), status, media_type="application/json")
