"""Live: one watcher of the ledger, and streams that tell what it sees as server-sent events (WHATWG HTML, 9.2).

watcher ─ looks while there are streams ─ newest event ─┬─ stream ─ a reader
                                                        └─ stream ─ a slow reader, who gets the newest only
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable

from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ledger.explorer.freshness import Freshness
from ledger.queries.lookup import At
from protocol.errors import Unavailable
from protocol.transport.connections import network

LOOK_SECONDS = 0.25
"""Between two looks at the ledger, whose follower looks at the chain as often."""
KEEP_ALIVE_SECONDS = 15.0
"""Longest silence of a stream: proxies end a connection on which nothing comes."""
MOST_STREAMS = 1_000
"""Most streams at once: somewhat fewer than the server's connections, so that pages keep some."""
RETRY = b"retry: 3000\n\n"
"""Milliseconds after which a reader comes back whose stream broke off."""
KEEP_ALIVE = b": nothing new\nevent: alive\ndata:\n\n"
"""A comment for proxies; an event for scripts, which see no comment, to notice a connection that was lost silently."""
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Accel-Buffering": "no"}
"""Headers of a stream; the last keeps nginx from collecting events."""


def event_of(here: At, fresh: Freshness) -> bytes:
    """Returns the event of the block at which the ledger stands. PURE."""
    told = json.dumps({"block": here.block_number, "hash": here.block_hash, "state": fresh.state})
    return f"event: block\nid: {here.block_hash}\ndata: {told}\n\n".encode()


class LiveFeed:
    """Fans the ledger's newest event out to all streams. It belongs to one event loop.

    Args:
        look: returns the event of the present block; called in a thread.
        look_seconds: time between two looks.
        keep_alive_seconds: longest silence of a stream.
        most_streams: most streams at once.
    """

    def __init__(
        self,
        look: Callable[[], bytes],
        look_seconds: float = LOOK_SECONDS,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
        most_streams: int = MOST_STREAMS,
    ) -> None:
        self._look, self._look_seconds = look, look_seconds
        self._keep_alive_seconds, self._most_streams = keep_alive_seconds, most_streams
        self._streams: dict[LiveStream, None] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._closed = False
        self.newest = b""

    def stream(self, host: str) -> LiveStream:
        """Returns a stream for a reader at ``host``; it raises a 503 when it begins if there are too many."""
        return LiveStream(self, network(host))

    def close(self) -> None:
        """Ends all streams, and refuses new ones."""
        self._closed = True
        if self._watcher is not None:
            self._watcher.cancel()
        for stream in self._streams:  # the watcher ends none if it has not begun
            stream.end()

    def enter(self, stream: LiveStream) -> None:
        """Takes a stream in. Where all are in use, the oldest of the network with the most gives way, if to another."""
        if self._closed or (len(self._streams) >= self._most_streams and not self._displace(stream.network)):
            raise HTTPException(
                503, "all live streams of this server are in use: try again later", {"Retry-After": "5"}
            )
        self._streams[stream] = None
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())

    def leave(self, stream: LiveStream) -> None:
        """Forgets a stream."""
        self._streams.pop(stream, None)

    def _displace(self, mine: str) -> bool:
        held = Counter(each.network for each in self._streams)
        ((most, count),) = held.most_common(1)
        if count <= held[mine] + 1:
            return False
        oldest = next(each for each in self._streams if each.network == most)
        self.leave(oldest)
        oldest.end()
        return True

    async def _watch(self) -> None:
        """Looks as long as there are streams; they end with it, so that their readers come back to a new watcher."""
        clock = asyncio.get_running_loop().time
        told_at = clock()
        try:
            while self._streams:
                try:
                    seen = await asyncio.to_thread(self._look)
                except Unavailable:
                    seen = self.newest  # pages say that the database does not answer
                if seen != self.newest or clock() - told_at >= self._keep_alive_seconds:
                    self.newest, told_at = seen, clock()
                    for stream in self._streams:
                        stream.due.set()
                await asyncio.sleep(self._look_seconds)
        finally:
            self.newest, self._watcher = b"", None
            for stream in self._streams:
                stream.end()


class LiveStream(StreamingResponse):
    """One reader's events."""

    media_type = "text/event-stream"

    def __init__(self, feed: LiveFeed, network: str) -> None:
        super().__init__(self._events(), headers=HEADERS)
        self._feed, self.network = feed, network
        self.due = asyncio.Event()
        self._ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends events until the reader goes or the stream is ended."""
        self._feed.enter(self)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.leave(self)

    def end(self) -> None:
        """Ends the stream."""
        self._ended = True
        self.due.set()

    async def _events(self) -> AsyncIterator[bytes]:
        yield RETRY
        told = b""
        if self._feed.newest:
            self.due.set()
        while True:
            await self.due.wait()
            self.due.clear()
            if self._ended:
                return
            newest = self._feed.newest
            yield KEEP_ALIVE if newest == told else newest
            told = newest
