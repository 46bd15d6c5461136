"""Leases: a heartbeat makes a node listable for a while. Kept in Redis, which may forget them at any moment.

Nothing is lost with them: the next heartbeat takes a new lease. They live here rather than in SQL because they are
written several times a minute by every node and matter to nobody a minute later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis
from redis.exceptions import RedisError

from protocol.errors import Misconfigured, Unavailable


class Leases:
    """The leases of one run: a sorted set of node ids, scored by when each lease ends (unix seconds)."""

    def __init__(self, redis_url: str, run: int) -> None:
        """Connects when first used. Raises ``Misconfigured`` for a URL that is none."""
        try:
            self._redis = Redis.from_url(redis_url, socket_timeout=5.0)
        except ValueError as error:
            raise Misconfigured(f"redis_url {redis_url!r} cannot be used: {error}") from error
        self._key = f"assize:leases:{run}"

    def grant(self, node: int, until: float) -> None:
        """Gives ``node`` a lease, or a longer one."""
        with _answering():
            self._redis.zadd(self._key, {str(node): until})

    def held(self, now: float) -> frozenset[int]:
        """The nodes whose lease has not ended."""
        with _answering():
            return frozenset(int(node) for node in self._redis.zrangebyscore(self._key, f"({now}", "+inf"))

    def expire(self, now: float) -> tuple[int, ...]:
        """Takes away the leases that have ended and returns whose they were."""
        with _answering():
            ended = self._redis.zrangebyscore(self._key, "-inf", now)
            if ended:
                self._redis.zremrangebyscore(self._key, "-inf", now)
            return tuple(int(node) for node in ended)

    def close(self) -> None:
        """Closes the connections."""
        self._redis.close()


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise Unavailable(f"Redis does not answer: {error}") from error
