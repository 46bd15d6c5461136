"""Orders and answers in the owner's Redis, which may lose them at any moment.

    assize:validator:answer:KEY    answer for a job, kept for an hour
    assize:validator:lease:KEY     a worker is judging this job; a killed worker stops renewing its lease
    assize:validator:newest:RUN    newest version of a run, so that weights are fetched before they are needed
    assize-validator               the queue itself (Celery's list)
    assize-validator-sampling      orders to sample, which are taken while none to judge waits

The daemon votes on what it finds here: the Redis must be the owner's own, behind a password.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from redis import Redis
from redis.exceptions import RedisError

from protocol.errors import Misconfigured, Unavailable

QUEUE, SAMPLING_QUEUE = "assize-validator", "assize-validator-sampling"
ANSWER_SECONDS, NEWEST_SECONDS = 3600, 120
LEASE_SECONDS = 15.0
"""Time after a worker's last renewal until its jobs go to another."""
ANSWERING_SECONDS = 2.0
"""Timeout of each request to Redis, since votes have deadlines."""
_PREFIX = "assize:validator"


@dataclass(frozen=True, slots=True)
class Look:
    """Snapshot of answers by key, leased keys, and the number of orders in the queue."""

    answers: Mapping[str, bytes]
    leased: frozenset[str]
    queued: int


class Exchange:
    """The keys drawn above. Thread-safe; every method raises ``Unavailable`` if Redis does not answer."""

    def __init__(self, url: str, queue: str = QUEUE) -> None:
        try:
            self._redis = Redis.from_url(
                url, socket_timeout=ANSWERING_SECONDS, socket_connect_timeout=ANSWERING_SECONDS
            )
        except ValueError as error:
            raise Misconfigured(f"invalid queue_url {url!r}: {error}") from error
        self._queue = queue

    def check(self) -> None:
        """Checks that Redis answers."""
        with _answering():
            self._redis.ping()

    def look(self, keys: Sequence[str]) -> Look:
        """Returns a snapshot of ``keys``."""
        with _answering():
            pipeline = self._redis.pipeline()
            pipeline.mget([_answer(key) for key in keys])
            pipeline.mget([_lease(key) for key in keys])
            pipeline.llen(self._queue)
            answers, leases, queued = pipeline.execute()
        found = {key: data for key, data in zip(keys, answers, strict=True) if data is not None}
        return Look(found, frozenset(key for key, held in zip(keys, leases, strict=True) if held is not None), queued)

    @property
    def queued(self) -> int:
        """Number of orders to judge that wait."""
        with _answering():
            return int(self._redis.llen(self._queue))

    def forget(self, keys: Sequence[str]) -> None:
        """Deletes answers, so that the jobs can be ordered again."""
        with _answering():
            self._redis.delete(*map(_answer, keys))

    def lease(self, keys: Sequence[str]) -> list[str]:
        """Takes the leases of those ``keys`` that have neither a lease nor an answer; returns them."""
        with _answering():
            taken = [key for key in keys if self._redis.set(_lease(key), 1, nx=True, px=int(LEASE_SECONDS * 1000))]
            if not taken:
                return []
            answered = self._redis.mget(list(map(_answer, taken)))
            stale = [key for key, answer in zip(taken, answered, strict=True) if answer is not None]
            if stale:
                self._redis.delete(*map(_lease, stale))
            return [key for key in taken if key not in stale]

    @contextmanager
    def renewing(self, keys: Sequence[str]) -> Iterator[None]:
        """Renews leases from a thread of its own for the duration of the block."""
        over = threading.Event()
        thread = threading.Thread(target=self._renew, args=(keys, over), name="leases", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def answer(self, answers: Mapping[str, bytes]) -> None:
        """Stores answers and releases their leases in one transaction."""
        with _answering():
            pipeline = self._redis.pipeline()
            for key, data in answers.items():
                pipeline.set(_answer(key), data, ex=ANSWER_SECONDS)
                pipeline.delete(_lease(key))
            pipeline.execute()

    def announce(self, run: int, order: str) -> None:
        """Announces the version of ``run`` that will be needed soon."""
        with _answering():
            self._redis.set(f"{_PREFIX}:newest:{run}", order, ex=NEWEST_SECONDS)

    def announced(self) -> list[str]:
        """Returns the announced orders, one per run."""
        with _answering():
            names = sorted(self._redis.scan_iter(f"{_PREFIX}:newest:*"))
            return [order.decode() for order in self._redis.mget(names) if isinstance(order, bytes)] if names else []

    def close(self) -> None:
        """Closes the connections."""
        self._redis.close()

    def _renew(self, keys: Sequence[str], over: threading.Event) -> None:
        while not over.wait(LEASE_SECONDS / 4):
            try:
                with _answering():
                    pipeline = self._redis.pipeline()
                    for key in keys:
                        pipeline.set(_lease(key), 1, px=int(LEASE_SECONDS * 1000))
                    pipeline.execute()
            except Unavailable:
                continue  # an expired lease only costs duplicate work


def _answer(key: str) -> str:
    return f"{_PREFIX}:answer:{key}"


def _lease(key: str) -> str:
    return f"{_PREFIX}:lease:{key}"


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise Unavailable(f"the queue's Redis does not answer: {error}") from error
