"""Where orders and answers meet: a few keys in the owner's Redis, which may forget them at any moment.

    assize:validator:answer:KEY    what came of a job, for an hour
    assize:validator:lease:KEY     somebody is at this job now; a worker that is killed stops renewing its lease
    assize:validator:newest:RUN    the newest version of a run, so that weights are there before they are needed
    assize-validator               the queue itself (Celery's list)

What is in here is believed by the daemon that votes on it: a Redis of the owner's own, behind a password.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from redis import Redis
from redis.exceptions import RedisError

from protocol.errors import Misconfigured, Unavailable

QUEUE = "assize-validator"
ANSWER_SECONDS, NEWEST_SECONDS = 3600, 120
LEASE_SECONDS = 15.0
"""How long after its last breath a worker's jobs are given to another."""
ANSWERING_SECONDS = 2.0
"""A Redis that takes longer is as good as none: votes have deadlines."""
_PREFIX = "assize:validator"


@dataclass(frozen=True, slots=True)
class Look:
    """What there is at one moment: answers by key, keys somebody is at, and how many orders wait in the queue."""

    answers: Mapping[str, bytes]
    leased: frozenset[str]
    queued: int


class Exchange:
    """The keys drawn above. Every method raises ``Unavailable`` where Redis does not answer. Threads may share it."""

    def __init__(self, url: str, queue: str = QUEUE) -> None:
        try:
            self._redis = Redis.from_url(
                url, socket_timeout=ANSWERING_SECONDS, socket_connect_timeout=ANSWERING_SECONDS
            )
        except ValueError as error:
            raise Misconfigured(f"queue_url {url!r} cannot be used: {error}") from error
        self._queue = queue

    def check(self) -> None:
        """Asks whether Redis is there."""
        with _answering():
            self._redis.ping()

    def look(self, keys: Sequence[str]) -> Look:
        """Returns what there is of ``keys``, all of one moment."""
        with _answering():
            pipeline = self._redis.pipeline()
            pipeline.mget([_answer(key) for key in keys])
            pipeline.mget([_lease(key) for key in keys])
            pipeline.llen(self._queue)
            answers, leases, queued = pipeline.execute()
        found = {key: data for key, data in zip(keys, answers, strict=True) if data is not None}
        return Look(found, frozenset(key for key, held in zip(keys, leases, strict=True) if held is not None), queued)

    def forget(self, keys: Sequence[str]) -> None:
        """Drops answers, so that the jobs can be ordered again."""
        with _answering():
            self._redis.delete(*map(_answer, keys))

    def lease(self, keys: Sequence[str]) -> list[str]:
        """Takes the leases of those ``keys`` that nobody is at and that have no answer; returns which."""
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
        """Keeps leases alive for as long as the block lasts, from a thread of its own."""
        over = threading.Event()
        thread = threading.Thread(target=self._renew, args=(keys, over), name="leases", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def answer(self, answers: Mapping[str, bytes]) -> None:
        """Leaves answers and gives up their leases, at one moment."""
        with _answering():
            pipeline = self._redis.pipeline()
            for key, data in answers.items():
                pipeline.set(_answer(key), data, ex=ANSWER_SECONDS)
                pipeline.delete(_lease(key))
            pipeline.execute()

    def announce(self, run: int, order: str) -> None:
        """Says which version of ``run`` will be needed soon."""
        with _answering():
            self._redis.set(f"{_PREFIX}:newest:{run}", order, ex=NEWEST_SECONDS)

    def announced(self) -> list[str]:
        """Returns the newest version of each run, as it was announced."""
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
                continue  # a lease that runs out costs work done twice, nothing else


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
