"""The order of one fetch: which chunk is next, which are on their way, and which source is overtaken."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.wire.manifest import Chunk

PARALLEL_REQUESTS, PARALLEL_WHERE_SLOW = 4, 2
"""Chunks that are asked for at once; the second holds until it is known that a chunk takes less than `SLOW_SECONDS`."""
PARALLEL_OF_OBJECTS = 12
"""Ranges asked for at once where all sources are object stores: each is slow, and they do not slow one another."""
SLOW_SECONDS, RECENT = 0.5, 8
OVERTAKE_SECONDS, FIRST_OVERTAKE_SECONDS = 1.0, 5.0
"""A chunk that takes longer than this, and than twice the usual time, is asked of another source too; the second holds
until a usual time is known."""


@dataclass(slots=True, eq=False)
class TakenChunk:
    """A chunk that is being fetched: when that began, from which source now, and by how many threads.

    Its source is not overtaken before ``again_at``: another one has just failed.
    """

    chunk: Chunk
    since: float
    threads: int = 1
    url: str | None = None
    avoided: str | None = None
    again_at: float = 0.0


class ChunkQueue:
    """The chunks of one fetch: which are next, which are being fetched, and whether all are there.

    ``threads`` is how many threads have work at once; one more than chunks where a source may be overtaken.
    """

    def __init__(self, missing: Sequence[Chunk], sources: int, objects: bool = False) -> None:
        """Takes the chunks, the number of sources, and whether all of them are object stores."""
        self.largest = max(chunk.size for chunk in missing)
        self._next, self._left, self._objects = deque(missing), len(missing), objects
        self._overtake = sources > 1
        most = PARALLEL_OF_OBJECTS if objects else PARALLEL_REQUESTS
        self.threads = min(most, len(missing) + self._overtake)
        self._running: dict[bytes, TakenChunk] = {}
        self._seconds: list[float] = []
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def take(self) -> TakenChunk | None:
        """Returns the next chunk, or one whose source is slow; None once nothing is left to do."""
        with self._changed:
            while not self._over():
                if self._next and len(self._running) < self._most_running():
                    chunk = self._next.popleft()
                    taken = self._running[chunk.hash] = TakenChunk(chunk, time.monotonic())
                    return taken
                if (slow := self._slowest()) is not None:
                    slow.threads += 1
                    return TakenChunk(slow.chunk, slow.since, avoided=slow.url)
                self._changed.wait(OVERTAKE_SECONDS / 4)
            return None

    def fetched(self, taken: TakenChunk) -> None:
        """Notes that a chunk is in the store."""
        with self._changed:
            if self._running.pop(taken.chunk.hash, None) is not None:
                self._left -= 1
                self._seconds.append(time.monotonic() - taken.since)
            self._changed.notify_all()

    def failed(self, taken: TakenChunk, error: BaseException) -> None:
        """Notes that a chunk did not come; another thread may still bring it."""
        with self._changed:
            running = self._running.get(taken.chunk.hash)
            if running is not None:
                running.threads -= 1
                running.again_at = time.monotonic() + OVERTAKE_SECONDS
                if running.threads == 0:
                    self._error = self._error or error
                    del self._running[taken.chunk.hash]
            self._changed.notify_all()

    def wait(self) -> None:
        """Returns once all chunks are there; raises what prevented it, once no other chunk is on its way."""
        with self._changed:
            while self._left and not (self._error and not self._running):
                self._changed.wait()
        if self._error is not None:
            raise self._error

    def _most_running(self) -> int:
        """Returns how many chunks to ask for at once: few where each takes long.

        More of them would not arrive sooner, but all later, and whoever waits for the first behind a relay with them.
        """
        if self._objects:
            return PARALLEL_OF_OBJECTS
        recent = self._seconds[-RECENT:]
        return PARALLEL_REQUESTS if recent and sum(recent) / len(recent) < SLOW_SECONDS else PARALLEL_WHERE_SLOW

    def _over(self) -> bool:
        return self._left == 0 or self._error is not None

    def _slowest(self) -> TakenChunk | None:
        """Returns the chunk that has been on its way for much longer than others took, and by one thread only."""
        now = time.monotonic()
        running = [each for each in self._running.values() if each.url is not None and now >= each.again_at]
        alone = [each for each in running if each.threads == 1]
        if not self._overtake or not alone:
            return None
        slowest, patience = min(alone, key=lambda each: each.since), FIRST_OVERTAKE_SECONDS
        if self._seconds:
            patience = max(OVERTAKE_SECONDS, 2 * sum(self._seconds) / len(self._seconds))
        return slowest if now - slowest.since > patience else None
