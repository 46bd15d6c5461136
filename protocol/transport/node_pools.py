"""Threads for each node: a server that drips bytes delays what that node serves, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from protocol.deadlines import Deadline, until

T = TypeVar("T")


class NodeFetch(Generic[T]):
    """One call of ``fetch`` in a thread of its node. ``begun_at`` is None until it begins, in monotonic seconds."""

    def __init__(self, pool: ThreadPoolExecutor, fetch: Callable[[], T]) -> None:
        self.begun_at: float | None = None
        self._deadline = Deadline()
        self._fetch = fetch
        self.future: Future[T] = pool.submit(self._run)

    def lasted(self) -> float:
        """Returns the seconds since it began, 0 if it has not."""
        return 0.0 if self.begun_at is None else time.monotonic() - self.begun_at

    def cancel(self) -> None:
        """Ends it, or has it never begin."""
        self.future.cancel()
        self._deadline.cancel()

    def _run(self) -> T:
        self.begun_at = time.monotonic()
        with until(self._deadline):
            return self._fetch()


class NodePools:
    """A pool of ``threads_each`` threads for every node that something is fetched from. Used from one thread."""

    def __init__(self, name: str, threads_each: int) -> None:
        self._name, self._threads_each = name, threads_each
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def submit(self, node: int, fetch: Callable[[], T]) -> NodeFetch[T]:
        """Calls ``fetch`` in a thread of ``node``."""
        if node not in self._pools:
            self._pools[node] = ThreadPoolExecutor(self._threads_each, f"{self._name}-{node}")
        return NodeFetch(self._pools[node], fetch)

    def keep(self, nodes: Collection[int]) -> None:
        """Ends the threads of all other nodes, whose attempts the caller has cancelled."""
        for node in self._pools.keys() - set(nodes):
            self._pools.pop(node).shutdown(wait=False)

    def close(self) -> None:
        """Ends all threads; attempts that have not begun never do."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
