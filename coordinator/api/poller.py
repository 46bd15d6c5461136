"""Tells waiting requests that the mirror has moved: one look at the database for all of them together."""

from __future__ import annotations

import asyncio

from starlette.concurrency import run_in_threadpool

from coordinator.store import Store
from coordinator.tables import Cursor
from protocol.errors import Unavailable

LOOK_SECONDS = 0.05
"""Between looks while somebody waits: a node should know of a round well within the time a block takes."""


class Watch:
    """Wakes whoever waits when the mirror's cursor changes. Looks only while somebody waits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._moved: asyncio.Future[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._state: int | None = None
        self._position: int | None = None

    async def wait(self, seconds: float) -> None:
        """Returns when the mirror has moved since the last look, or after ``seconds``."""
        if self._moved is None or self._moved.done():
            self._moved = asyncio.get_running_loop().create_future()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(self._moved))
        await asyncio.wait({self._moved}, timeout=seconds)

    async def _look(self, moved: asyncio.Future[None]) -> None:
        try:
            while not moved.done():
                await asyncio.sleep(LOOK_SECONDS)
                state = self._store.state()
                if state == self._state:
                    continue
                self._state = state
                position = await run_in_threadpool(self._cursor)
                if position != self._position:
                    self._position = position
                    break
        except Unavailable:
            pass  # whoever waits asks the database next, and gets the error with its own request
        finally:
            if not moved.done():
                moved.set_result(None)

    def _cursor(self) -> int | None:
        with self._store.reading() as session:
            row = session.get(Cursor, 1)
            return None if row is None else row.number
