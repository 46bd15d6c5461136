"""Deadlines for whole requests: httpx's timeouts begin anew with every byte that a server sends or takes.

A request made by a client of `bounded` inside `within` ends with `httpx.TimeoutException` once its time is up, however
the server spreads the bytes of its head, its body or its TLS records. Inside `until`, it also ends once another thread
cancels the deadline.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpcore
import httpx

LEAST_BYTES_PER_SECOND = 64 << 10
"""Bytes of a body for which a deadline allows another second."""

_WRITE_BYTES = 64 << 10


class Deadline:
    """The time by which a request must be complete, and an ``outer`` deadline before which it must be as well."""

    def __init__(self, seconds: float = math.inf, outer: Deadline | None = None) -> None:
        self._until, self._outer = time.monotonic() + seconds, outer

    def left(self, timeout: float | None, error: type[Exception]) -> float | None:
        """Returns the seconds left, at most ``timeout``, None without bound; raises ``error`` once there are none."""
        if self._outer is not None:
            timeout = self._outer.left(timeout, error)
        left = self._until - time.monotonic()
        if left <= 0:
            raise error("the request took too long")
        if left == math.inf:
            return timeout
        return left if timeout is None else min(left, timeout)

    def cancel(self) -> None:
        """Ends the request: at its next byte, or once it has waited for one as long as its client's timeout."""
        self._until = -math.inf

    def extend(self, seconds: float) -> None:
        """Gives the request so much more time."""
        self._until += seconds

    def allow(self, size: int, bytes_per_second: int = LEAST_BYTES_PER_SECOND) -> None:
        """Gives the request the time that ``size`` more bytes take at this speed."""
        self.extend(size / bytes_per_second)

    def extended(self, pieces: Iterable[bytes], bytes_per_second: int = LEAST_BYTES_PER_SECOND) -> Iterator[bytes]:
        """Yields ``pieces``, allowing time for each at this speed."""
        for piece in pieces:
            self.allow(len(piece), bytes_per_second)
            yield piece


_DEADLINE: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def within(seconds: float, body: int = 0) -> Iterator[Deadline]:
    """Bounds the requests made in the block, by this thread, to ``seconds`` and the time for ``body`` bytes sent."""
    with until(Deadline(seconds + body / LEAST_BYTES_PER_SECOND, _DEADLINE.get())) as deadline:
        yield deadline


@contextmanager
def until(deadline: Deadline) -> Iterator[Deadline]:
    """Bounds the requests made in the block, by this thread, by ``deadline``."""
    before = _DEADLINE.set(deadline)
    try:
        yield deadline
    finally:
        _DEADLINE.reset(before)


def bounded(client: httpx.Client) -> httpx.Client:
    """Makes ``client`` keep the deadlines of `within`, and returns it."""
    return rewired(client, _Backend)


def rewired(
    client: httpx.Client, wrapped: Callable[[httpcore.NetworkBackend], httpcore.NetworkBackend]
) -> httpx.Client:
    """Has ``client`` open its connections through its network backend as ``wrapped``, and returns it."""
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            transport._pool._network_backend = wrapped(transport._pool._network_backend)
    return client


def left(timeout: float | None, error: type[Exception]) -> float | None:
    """Returns the seconds that this thread's request may still wait, at most ``timeout``; raises ``error`` at 0."""
    deadline = _DEADLINE.get()
    return timeout if deadline is None else deadline.left(timeout, error)


class _Backend(httpcore.NetworkBackend):
    """Opens streams that keep the deadline of the request that uses them."""

    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *rest: Any, **options: Any
    ) -> httpcore.NetworkStream:
        seconds = left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._backend.connect_tcp(host, port, seconds, *rest, **options))


class _Stream(httpcore.NetworkStream):
    """A stream whose every read and write ends by the deadline."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for first in range(0, len(buffer), _WRITE_BYTES):
            piece = buffer[first : first + _WRITE_BYTES]
            self._stream.write(piece, left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        seconds = left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, seconds))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
