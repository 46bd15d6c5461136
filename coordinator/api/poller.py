"""Wakes waiting requests when the mirror has moved; all of them share one poll of the database."""

from __future__ import annotations

import asyncio

from starlette.concurrency import run_in_threadpool

from coordinator.store import Store
from coordinator.tables import CursorRow
from protocol.errors import Unavailable

POLL_SECONDS = 0.05
"""Poll interval while requests wait: much less than a block takes."""


class Poller:
    """Wakes waiting requests when the mirror's cursor changes. Polls only while requests wait."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._moved: asyncio.Future[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._state: int | None = None
        self._position: int | None = None

    async def wait(self, seconds: float) -> None:
        """Returns when the mirror has moved since the last poll, or after ``seconds``."""
        if self._moved is None or self._moved.done():
            self._moved = asyncio.get_running_loop().create_future()
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll(self._moved))
        await asyncio.wait({self._moved}, timeout=seconds)

    async def _poll(self, moved: asyncio.Future[None]) -> None:
        try:
            while not moved.done():
                await asyncio.sleep(POLL_SECONDS)
                state = self._store.state()
                if state == self._state:
                    continue
                self._state = state
                position = await run_in_threadpool(self._cursor)
                if position != self._position:
                    self._position = position
                    break
        except Unavailable:
            pass  # the waiting requests ask the database next and report the error themselves
        finally:
            if not moved.done():
                moved.set_result(None)

    def _cursor(self) -> int | None:
        with self._store.reading() as session:
            row = session.get(CursorRow, 1)
            return None if row is None else row.number
