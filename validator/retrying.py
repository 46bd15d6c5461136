"""Fetches in a thread pool that are begun again after growing pauses."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

FIRST_PAUSE_SECONDS = 0.1

T = TypeVar("T")


@dataclass(slots=True)
class RetriedFetch(Generic[T]):
    """One fetch: its present attempt, and when the next may begin. Times are monotonic seconds.

    since     when the first attempt began
    again_at  0 while no further attempt is scheduled
    """

    future: Future[T]
    since: float
    attempts: int = 1
    again_at: float = 0.0

    def retry(self, now: float, longest_pause_seconds: float, start: Callable[[], Future[T]]) -> None:
        """Schedules the next attempt after one that failed, and begins it with ``start`` when it is due."""
        if self.again_at == 0.0:
            self.again_at = now + min(FIRST_PAUSE_SECONDS * 2.0 ** (self.attempts - 1), longest_pause_seconds)
        elif now >= self.again_at:
            self.future, self.attempts, self.again_at = start(), self.attempts + 1, 0.0
