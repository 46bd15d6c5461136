"""Server connections that must make progress, so that idle or slow peers can neither keep memory nor shut out others.

A peer sends the head of each request in time, takes an answer at a lowest speed, and sends a body only if the
application asks for it: until then nothing is read beyond what came with the head. When all connections are in use, one
without a request in progress gives way to a new one; if there is none, the oldest of the network with the most does.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
from collections import Counter
from typing import IO, TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.config import Config

MOST_CONNECTIONS = 2048
"""Most connections of a server at once: a thousand nodes wait for work in one each, and beat in another."""

HEAD_SECONDS = 10.0
"""Longest time for the head of a request, and by which a peer that takes an answer may be late."""

LEAST_BYTES_PER_SECOND = 16 << 10
"""Lowest speed at which a peer takes an answer."""

UNSENT_BYTES = 16 << 10
"""Bytes that wait for a slow peer before the application stops making more: beyond them one piece of a file waits."""

_FULL = b'{"error":"all connections of this server are in use: try again later"}'
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_FULL), _FULL)
)


FILE_SENDING = "http.response.zerocopysend"
"""ASGI extension with which an application has the server send part of an open file."""

FILE_PIECE_BYTES = 4 << 20
"""Bytes of a file that are sent under one deadline."""


class BoundedConnection(H11Protocol):
    """One connection of a server, with a deadline for whatever its peer has to do next.

    It offers applications the extension ``FILE_SENDING``: the system sends a file without a copy in this process.
    """

    def __init__(self, config: Config, *more: Any, **options: Any) -> None:
        super().__init__(config, *more, **options)
        self.app = self._sending_files(self.app)

    _head_timer: asyncio.TimerHandle | None = None
    _take_timer: asyncio.TimerHandle | None = None
    _idle_since = 0.0
    _network = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accepts the connection, in place of an idle one if all are in use, or refuses it."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self._idle_since, self._network = self.loop.time(), network(self.client[0] if self.client else "")
        if len(self.connections) > MOST_CONNECTIONS and not self._displace():
            transport.write(_REFUSAL)
            self._end()
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops all timers."""
        self._cancel_head()
        self._cancel_take()
        super().connection_lost(exc)
        # The wrapped application refers to this connection: what is in no cycle is freed without the collector.
        self.app = self.config.loaded_app

    def data_received(self, data: bytes) -> None:
        """Parses what arrived; an application that has not asked for the body holds up the rest of it."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._await_head()
        else:
            self._cancel_head()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self.flow.pause_reading()

    def on_response_complete(self) -> None:
        """Ends the connection if the request's body was not read, or waits for the next request."""
        unread = self.conn.their_state is h11.SEND_BODY
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if unread or self.transport.is_closing():
            self._end()

    def _sending_files(self, app: ASGIApp) -> ASGIApp:
        """Returns ``app`` with the extension offered to it."""

        async def extended(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_any(message: Message) -> None:
                if message["type"] == FILE_SENDING:
                    await self._send_file(message["file"], message["offset"], message["count"])
                else:
                    await send(message)

            if scope["type"] == "http":
                scope = {**scope, "extensions": {**scope.get("extensions", {}), FILE_SENDING: {}}}
            await app(scope, receive, send_any)

        return extended

    async def _send_file(self, file: IO[bytes], offset: int, count: int) -> None:
        """Sends part of a file as the body of the answer; a peer that is too slow, or gone, loses its connection."""
        if self.transport.is_closing():
            return
        self.conn.send_with_data_passthrough(h11.Data(data=_Length(count)))  # type: ignore[arg-type]
        while count:
            size = min(count, FILE_PIECE_BYTES)
            seconds = HEAD_SECONDS + size / LEAST_BYTES_PER_SECOND
            try:
                sent = await asyncio.wait_for(self.loop.sendfile(self.transport, file, offset, size), seconds)
            except (OSError, RuntimeError, TimeoutError):
                sent = 0
            if sent == 0:  # gone, too slow, or the file was cut
                self.transport.abort()
                return
            offset, count = offset + sent, count - sent

    def timeout_keep_alive_handler(self) -> None:
        """Ends a connection that was idle for too long."""
        super().timeout_keep_alive_handler()
        self._end()

    def pause_writing(self) -> None:
        """Gives the peer time by the amount it has to take."""
        super().pause_writing()
        self._cancel_take()
        seconds = HEAD_SECONDS + self.transport.get_write_buffer_size() / LEAST_BYTES_PER_SECOND
        self._take_timer = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Goes on sending."""
        self._cancel_take()
        super().resume_writing()

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _displace(self) -> bool:
        """Ends another connection in favour of this one; returns whether there was one that gives way."""
        others = [each for each in self.connections if isinstance(each, BoundedConnection) and each is not self]
        giving = [each for each in others if each._idle]
        if not giving:
            ((most, held),) = Counter(each._network for each in others).most_common(1)
            mine = sum(each._network == self._network for each in others)
            giving = [each for each in others if each._network == most] if held > mine + 1 else []
        oldest = min(giving, key=lambda each: each._idle_since, default=None)
        if oldest is None:
            return False
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    def _end(self) -> None:
        """Closes the connection once the peer has taken what is left, within its time."""
        self._cancel_head()
        self.transport.close()
        if self._take_timer is None:
            self._take_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _cancel_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _cancel_take(self) -> None:
        if self._take_timer is not None:
            self._take_timer.cancel()
            self._take_timer = None


class _Length:
    """Stands for the bytes of a body that h11 counts and does not see."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count


def network(host: str) -> str:
    """Returns the network that one party usually holds: an IPv4 address, or 64 bits of an IPv6 address."""
    return str(ipaddress.ip_network(f"{host}/64", strict=False)) if ":" in host else host


def allow_files(wanted: int) -> None:
    """Raises the process's limit of open files to ``wanted``, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
