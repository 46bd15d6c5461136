"""A bell in Redis: the API rings it when leaves come in, the background process wakes from its pause.

Only latency depends on it: who pauses looks anyway when the pause is over, and Redis may forget the ring.
"""

from __future__ import annotations

import time

import structlog
from redis import Redis
from redis.exceptions import RedisError

log = structlog.get_logger()

FORGET_SECONDS = 60
"""A ring nobody hears is dropped after this long."""


class Bell:
    """The bell of one run. Each instance belongs to one process; threads may share it."""

    def __init__(self, redis_url: str, run: int) -> None:
        self._redis = Redis.from_url(redis_url, socket_timeout=5.0)
        self._key = f"assize:bell:{run}"

    def ring(self) -> None:
        """Wakes whoever waits. Without Redis it is silent."""
        try:
            self._redis.pipeline().lpush(self._key, 1).expire(self._key, FORGET_SECONDS).execute()
        except RedisError as error:
            log.warning("bell_silent", error=str(error))

    def wait(self, seconds: float) -> None:
        """Returns when the bell is rung, or after ``seconds``."""
        try:
            if self._redis.blpop([self._key], timeout=seconds):
                self._redis.delete(self._key)  # several rings mean the same
        except RedisError:
            time.sleep(seconds)

    def close(self) -> None:
        """Closes the connection."""
        self._redis.close()
