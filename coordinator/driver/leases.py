"""Leases in Redis: a heartbeat makes a node eligible for listing for a while.

Redis may lose them at any moment; the next heartbeat takes a new lease. They are not in SQL, because every node renews
its lease several times a minute and an old lease has no use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from redis import Redis
from redis.exceptions import RedisError

from protocol.errors import Misconfigured, Unavailable


class Leases:
    """The leases of one run: a sorted set of node ids, scored by when each lease ends (unix seconds)."""

    def __init__(self, redis_url: str, run: int) -> None:
        """Connects when first used. Raises ``Misconfigured`` for an invalid URL."""
        try:
            self._redis = Redis.from_url(redis_url, socket_timeout=5.0)
        except ValueError as error:
            raise Misconfigured(
                f"invalid redis_url {redis_url!r}: expected redis://host:port/database ({error})"
            ) from error
        self._key = f"assize:leases:{run}"

    def grant(self, until: Mapping[int, float]) -> None:
        """Grants each node a lease, or extends it, ``until`` a time in unix seconds."""
        with answering_redis():
            self._redis.zadd(self._key, {str(node): end for node, end in until.items()})

    def count(self) -> int:
        """Returns the number of leases, those that ended lately included."""
        with answering_redis():
            return self._redis.zcard(self._key)

    def held(self, now: float) -> frozenset[int]:
        """Returns the nodes whose lease is in force at ``now`` (unix seconds)."""
        with answering_redis():
            members = cast("list[bytes]", self._redis.zrangebyscore(self._key, f"({now}", "+inf"))
            return frozenset(map(int, members))

    def expire(self, now: float) -> tuple[int, ...]:
        """Deletes the leases that have ended by ``now`` and returns their nodes."""
        with answering_redis():
            ended = cast("list[bytes]", self._redis.zrangebyscore(self._key, "-inf", now))
            if ended:
                self._redis.zremrangebyscore(self._key, "-inf", now)
            return tuple(map(int, ended))

    def close(self) -> None:
        """Closes the connections."""
        self._redis.close()


@contextmanager
def answering_redis() -> Iterator[None]:
    """Raises ``Unavailable`` where Redis does not answer in the block."""
    try:
        yield
    except RedisError as error:
        raise Unavailable(f"Redis does not answer: {error}") from error
