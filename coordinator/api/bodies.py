"""Receipt of request bodies: to disk, hashed on the way, within limits of number, size and speed.

A body is read only once its request is admitted. It is kept in a file without a name, so that nothing is left of one
that is refused or cut off, nor after a crash.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO

from eth_hash.auto import keccak
from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from coordinator.api.gate import Admission
from coordinator.api.refusals import Refused, too_large, too_many, too_slow, unreadable, unsigned
from protocol.errors import Unavailable, accessing

MOST_BODIES_OF_KEY = 4
"""Most bodies of one key that are received or stored at once."""

MOST_BODIES = 64
"""Most bodies received or stored at once; a key's second one is refused while half of them are in use."""

LEAST_BYTES_PER_SECOND = 64 << 10
"""Lowest speed of a body, on average, after the first ``PATIENCE_SECONDS``."""

PATIENCE_SECONDS = 10.0
"""Time by which a body may be late at any moment, measured against the lowest speed."""

BLOCK_BYTES = 256 << 10
"""Bytes of a body that are hashed and written at once; a smaller body never touches the disk."""

NO_BODY = keccak(b"")
"""Hash that a request without a body is signed with."""


class BodySlots:
    """Bounds on how many bodies are in progress. Used from one thread.

    Half of the slots are kept for keys that use none, so that a few keys cannot shut out the others.
    """

    def __init__(self, of_key: int = MOST_BODIES_OF_KEY, in_all: int = MOST_BODIES) -> None:
        self._of_key, self._in_all = of_key, in_all
        self._used: Counter[str] = Counter()

    @contextmanager
    def taken(self, key: str) -> Iterator[None]:
        """Takes a slot for ``key`` while the block runs.

        Raises:
            Refused: the key has no slot left.
            Unavailable: no slot is left.
        """
        mine, used = self._used[key], self._used.total()
        if mine >= self._of_key:
            raise too_many(f"too many bodies at once: expected at most {self._of_key} of one node, send them in turn")
        if used >= self._in_all or (mine and 2 * used >= self._in_all):
            raise Unavailable(f"{used} bodies of other requests are being received: send this one again later")
        self._used[key] += 1
        try:
            yield
        finally:
            self._used[key] -= 1
            if not self._used[key]:
                del self._used[key]


class Bodies:
    """Receives the bodies of admitted requests into files under ``directory``."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._slots = directory, BodySlots()

    @asynccontextmanager
    async def received(self, request: Request, admission: Admission, limit: int) -> AsyncIterator[IO[bytes]]:
        """Yields the body, at most ``limit`` bytes, as a file that vanishes when the block ends.

        Raises:
            Refused: too many bodies of this key, too many bytes, too slow, or another hash than the signed one.
            Unavailable: too many bodies in all, or the disk is full.
        """
        with (
            self._slots.taken(admission.caller.key),
            SpooledTemporaryFile(BLOCK_BYTES, dir=str(self._directory)) as file,
        ):
            with accessing(f"keep a body in {self._directory}", Unavailable):
                digest = await _receive(request, limit, file)
            if digest != admission.body:
                raise mismatch(digest, admission.body)
            file.seek(0)
            yield file


def has_body(request: Request) -> bool:
    """Returns whether the request announces a body."""
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"


def check_length(request: Request, limit: int) -> None:
    """Refuses a body that its head announces as larger than ``limit`` bytes. Raises ``Refused``."""
    declared = request.headers.get("content-length", "0")
    if not declared.isascii() or not declared.isdigit() or len(declared) > 18:
        raise unreadable("invalid Content-Length header: expected a number of bytes")
    if int(declared) > limit or (not limit and has_body(request)):
        raise _over(limit)


def mismatch(digest: bytes, expected: bytes) -> Refused:
    """Returns the refusal of a body that does not have the signed hash."""
    return unsigned(
        f"invalid body: its keccak256 is 0x{digest.hex()}, the request's signature is for 0x{expected.hex()}"
    )


async def _receive(request: Request, limit: int, file: IO[bytes]) -> bytes:
    """Writes the body to ``file`` and returns its hash."""
    digest = keccak.new(b"")

    def keep(block: bytes) -> None:
        digest.update(block)
        file.write(block)

    async for block in _blocks(request, limit):
        if len(block) < BLOCK_BYTES:
            keep(block)
        else:
            await run_in_threadpool(keep, block)
    return bytes(digest.digest())


async def _blocks(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Yields the body in blocks; the last is shorter."""
    block, size = bytearray(), 0
    async for piece in _pieces(request):
        size += len(piece)
        if size > limit:
            raise _over(limit)
        block += piece
        if len(block) >= BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    yield bytes(block)


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    """Yields the body as it arrives; only time spent waiting for the client counts against its speed."""
    stream, clock = request.stream(), asyncio.get_running_loop().time
    waited, received = 0.0, 0
    while True:
        asked_at = clock()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS + received / LEAST_BYTES_PER_SECOND - waited):
                piece = await anext(stream, b"")
        except TimeoutError:
            raise too_slow(
                f"body too slow: {received} bytes in {waited + clock() - asked_at:.0f} s, "
                f"expected {LEAST_BYTES_PER_SECOND} a second"
            ) from None
        except ClientDisconnect:
            raise unreadable("incomplete body: the connection was closed before its end") from None
        if not piece:
            return
        waited += clock() - asked_at
        received += len(piece)
        yield piece


def _over(limit: int) -> Refused:
    return too_large(
        f"body too large: expected at most {limit} bytes" if limit else "unexpected body: this request has none"
    )
