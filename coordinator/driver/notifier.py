"""Notifications through Redis: the API tells the driver's process that leaves have come in.

They only reduce latency: the driver also ticks without them, and Redis may lose one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog
from redis import Redis
from redis.exceptions import RedisError

log = structlog.get_logger()

EXPIRY_SECONDS = 60
"""Lifetime of a notification that is not received."""

LISTEN_SECONDS = 0.5
"""Longest wait of one request to Redis; ``close`` may take as long."""


class Notifier:
    """Notifications of one run. Each instance belongs to one process; threads may share it."""

    def __init__(self, redis_url: str, run: int) -> None:
        self._redis = Redis.from_url(redis_url, socket_timeout=5.0)
        self._key = f"assize:notify:{run}"
        self._closed = threading.Event()
        self._listener: threading.Thread | None = None

    def notify(self) -> None:
        """Wakes the listening process. Logs a warning if Redis does not answer."""
        try:
            pipeline = self._redis.pipeline()
            pipeline.lpush(self._key, 1)
            pipeline.expire(self._key, EXPIRY_SECONDS)
            pipeline.execute()
        except RedisError as error:
            log.warning("notification_lost", error=str(error))

    def listen(self, wake: Callable[[], None], listening: Callable[[], bool] = lambda: True) -> None:
        """Starts a thread that calls ``wake`` at each notification while ``listening`` holds, until ``close``."""
        self._listener = threading.Thread(target=self._listen, args=(wake, listening), name="notifier", daemon=True)
        self._listener.start()

    def _listen(self, wake: Callable[[], None], listening: Callable[[], bool]) -> None:
        while not self._closed.is_set():
            if not listening():  # another process takes them
                self._closed.wait(LISTEN_SECONDS)
                continue
            try:
                if self._redis.blpop([self._key], timeout=LISTEN_SECONDS):
                    self._redis.delete(self._key)  # one wake-up serves all pending notifications
                    wake()
            except RedisError:
                self._closed.wait(LISTEN_SECONDS)

    def close(self) -> None:
        """Ends the thread and closes the connections."""
        self._closed.set()
        if self._listener is not None:
            self._listener.join()
        self._redis.close()
