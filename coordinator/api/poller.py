"""Wakes requests that wait for assignments when a round was opened; all of them share one poll of the database."""

from __future__ import annotations

import asyncio

from sqlmodel import col, select
from starlette.concurrency import run_in_threadpool

from coordinator.store import Store
from coordinator.tables import RoundRow
from protocol.errors import Unavailable

POLL_SECONDS = 0.05
"""Poll interval while requests wait: much less than a block takes."""


class Poller:
    """Wakes waiting requests when the newest round changes. Polls only while requests wait.

    ``turn`` counts those changes. A request notes it before it asks the database, so that it does not wait for a round
    that was opened meanwhile.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.turn = 0
        self.ended = False
        self._moved: asyncio.Future[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._state: int | None = None
        self._newest: tuple[int, bytes] | None = None

    async def wait(self, turn: int, seconds: float) -> None:
        """Returns once a round was opened after ``turn``, or after ``seconds``."""
        if turn != self.turn:
            return
        if self._moved is None or self._moved.done():
            self._moved = asyncio.get_running_loop().create_future()
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll(self._moved))
        await asyncio.wait({self._moved}, timeout=seconds)

    def end(self) -> None:
        """Has every waiting request answer now, and those to come at once: the server ends."""
        self.ended = True
        if self._moved is not None and not self._moved.done():
            self._moved.set_result(None)

    async def _poll(self, moved: asyncio.Future[None]) -> None:
        try:
            while not moved.done():
                await asyncio.sleep(POLL_SECONDS)
                state = self._store.state()
                if state == self._state:
                    continue
                self._state = state
                newest = await run_in_threadpool(self._newest_round)
                if newest != self._newest:
                    self._newest = newest
                    self.turn += 1
                    break
        except Unavailable:
            pass  # the waiting requests ask the database next and report the error themselves
        finally:
            if not moved.done():
                moved.set_result(None)

    def _newest_round(self) -> tuple[int, bytes] | None:
        with self._store.reading() as session:
            row = session.exec(select(RoundRow.id, RoundRow.beacon).order_by(col(RoundRow.id).desc()).limit(1)).first()
            return None if row is None else (row[0], row[1])
