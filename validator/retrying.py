"""Fetches in threads of their nodes that are begun again after growing pauses."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from protocol.transport.node_pools import NodeFetch

FIRST_PAUSE_SECONDS = 0.1

T = TypeVar("T")


@dataclass(slots=True)
class RetriedFetch(Generic[T]):
    """One fetch: its present attempt, and when the next may begin. Times are monotonic seconds.

    since     when the first attempt began
    again_at  0 while no further attempt is scheduled
    """

    attempt: NodeFetch[T]
    since: float
    attempts: int = 1
    again_at: float = 0.0

    @property
    def future(self) -> Future[T]:
        """The present attempt's outcome."""
        return self.attempt.future

    def tried(self, seconds: float) -> bool:
        """Returns whether an attempt has failed, or the first one has gone on for ``seconds``."""
        return self.attempts > 1 or self.future.done() or self.attempt.lasted() > seconds

    def retry(self, now: float, longest_pause_seconds: float, start: Callable[[], NodeFetch[T]]) -> None:
        """Schedules the next attempt after one that failed, and begins it with ``start`` when it is due."""
        if self.again_at == 0.0:
            self.again_at = now + min(FIRST_PAUSE_SECONDS * 2.0 ** (self.attempts - 1), longest_pause_seconds)
        elif now >= self.again_at:
            self.attempt, self.attempts, self.again_at = start(), self.attempts + 1, 0.0
