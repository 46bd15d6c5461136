"""Group commit: what comes while others are being written shares the next transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

from protocol.errors import Unavailable

MOST_AT_ONCE = 64
"""Most items written in one transaction."""

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


class GroupCommit(Generic[_Item, _Answer]):
    """Writes items in groups and returns to each the answer that belongs to it. Used from one event loop.

    A single item waits for no other. Where a group fails, its items are written one by one, so that none fails because
    of another; a database that does not answer is told to all of them at once.
    """

    def __init__(self, write: Callable[[Sequence[_Item]], Sequence[_Answer]]) -> None:
        """``write`` commits all of its items or none, in a thread, and returns as many answers in the same order."""
        self._write = write
        self._waiting: list[tuple[_Item, asyncio.Future[_Answer]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def add(self, item: _Item) -> _Answer:
        """Returns the answer once the item is committed; raises as ``write`` does."""
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all())
        return await answer

    async def _write_all(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
            await self._write_group(group)

    async def _write_group(self, group: Sequence[tuple[_Item, asyncio.Future[_Answer]]]) -> None:
        try:
            answers = await run_in_threadpool(self._write, [item for item, _ in group])
        except Exception as error:
            if len(group) > 1 and not isinstance(error, Unavailable):
                for each in group:
                    await self._write_group([each])
                return
            for _, waiting in group:
                if not waiting.done():
                    waiting.set_exception(error)
            return
        for (_, waiting), answer in zip(group, answers, strict=True):
            if not waiting.done():  # a request may have been given up
                waiting.set_result(answer)
