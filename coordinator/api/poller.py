"""Wakes requests that wait for assignments when their node gets some; all of them share one poll of the database."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from sqlmodel import col, select
from starlette.concurrency import run_in_threadpool

from coordinator.store import Store
from coordinator.tables import ListingRow, RoundRow
from protocol.chain.structs import State
from protocol.errors import Unavailable

POLL_SECONDS = 0.05
"""Poll interval while requests wait: much less than a block takes."""

MOST_WOKEN = 1
"""Most nodes woken in one poll interval: those of a large round, all answered at once, would hold up everyone else.

Twenty a second: a part of what one process can answer on a slow core, and the 255 of the largest round in 13 seconds.
"""


class Poller:
    """Wakes the waiting requests of listed nodes when the newest round changes. Polls only while requests wait.

    ``turn`` counts those changes. A request notes it before it asks the database, so that it does not wait for a round
    that was opened meanwhile.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.turn = 0
        self.ended = False
        self._waiting: defaultdict[int, set[asyncio.Future[None]]] = defaultdict(set)
        self._polling: asyncio.Task[None] | None = None
        self._state: int | None = None
        self._newest: tuple[int, bytes] | None = None

    async def wait(self, node: int, turn: int, seconds: float) -> bool:
        """Returns once a round was opened after ``turn`` while the node is listed in an open one, or ``seconds`` later.

        If one was opened before the wait begins, it returns at once, whoever is listed. The result is whether to ask
        the database again: false where the time has passed.
        """
        if turn != self.turn:
            return True
        woken = asyncio.get_running_loop().create_future()
        self._waiting[node].add(woken)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            await asyncio.wait({woken}, timeout=seconds)
        finally:
            self._waiting[node].discard(woken)
            if not self._waiting[node]:
                del self._waiting[node]
        return woken.done()

    def end(self) -> None:
        """Has every waiting request answer now, and those to come at once: the server ends."""
        self.ended = True
        self._wake(list(self._waiting))

    async def _wake_in_turn(self, nodes: Iterable[int]) -> None:
        """Wakes the requests of these nodes, a few nodes in each poll interval."""
        due = [node for node in nodes if node in self._waiting]
        for start in range(0, len(due), MOST_WOKEN):
            if start:
                await asyncio.sleep(POLL_SECONDS)
            self._wake(due[start : start + MOST_WOKEN])

    def _wake(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            for woken in self._waiting.get(node, ()):
                if not woken.done():
                    woken.set_result(None)

    async def _poll(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(POLL_SECONDS)
                state = self._store.state()
                if state == self._state:
                    continue
                self._state = state
                newest, listed = await run_in_threadpool(self._news)
                if newest != self._newest:
                    self._newest = newest
                    self.turn += 1
                    await self._wake_in_turn(listed)
        except Unavailable:
            self._wake(list(self._waiting))  # they ask the database next and report the error themselves

    def _news(self) -> tuple[tuple[int, bytes] | None, list[int]]:
        """Returns the newest round with its beacon, and the nodes listed in open rounds where it is another."""
        with self._store.reading() as session:
            row = session.exec(select(RoundRow.id, RoundRow.beacon).order_by(col(RoundRow.id).desc()).limit(1)).first()
            newest = None if row is None else (row[0], row[1])
            if newest == self._newest:
                return newest, []
            open_rounds = select(RoundRow.id).where(RoundRow.state == State.OPEN)
            listed = session.exec(select(ListingRow.node).where(col(ListingRow.round).in_(open_rounds)).distinct())
            return newest, list(listed)
