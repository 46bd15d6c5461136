"""Examinations of uploads in the background, by Celery. The task's body is one line.

    API ──name──> Redis ──> `assize coordinator precheck`, one or several, on any machine ──> database and object store

The database holds what is to be examined; an order that Redis loses is repeated when the node asks again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import structlog
from redis import Redis

from coordinator.driver.leases import answering_redis
from protocol.errors import Unavailable
from protocol.transport.task_queue import connect, ordering, take_orders, task_app

log = structlog.get_logger()

ANSWERING_SECONDS = 5.0
"""Longest wait for an answer of Redis."""

EXPIRE_SECONDS = 60.0
"""Age at which an order is dropped; it is repeated while its node waits."""

ATTENDANCE_SECONDS = 15
"""Time after its last sign of life for which a process counts as examining."""

TASK = "precheck"


class PrecheckQueue:
    """The orders of one coordinator, named by its first ``run``. Threads may share it."""

    def __init__(self, redis_url: str, run: int) -> None:
        self._redis = Redis.from_url(redis_url, socket_timeout=ANSWERING_SECONDS)
        self._name, self._attendance = f"assize-precheck-{run}", f"assize:precheck:{run}"
        self._celery = task_app("assize-coordinator", current=False)
        connect(self._celery, redis_url, ANSWERING_SECONDS)

    def order(self, name: str) -> None:
        """Has an upload examined. Raises ``Unavailable``."""
        with ordering():
            self._celery.send_task(TASK, (name,), queue=self._name, retry=False, expires=EXPIRE_SECONDS)

    def attended(self) -> bool:
        """Returns whether a process examines uploads. Raises ``Unavailable``."""
        with answering_redis():
            return bool(self._redis.exists(self._attendance))

    def work(self, examine: Callable[[str], None]) -> int:
        """Examines uploads until stopped, finishing the current one; returns the exit code."""

        def precheck(name: str) -> None:
            _examined(examine, name)

        self._celery.task(name=TASK)(precheck)
        stopped = threading.Event()
        attending = threading.Thread(target=self._attend, args=(stopped,), name="attend", daemon=True)
        attending.start()
        try:
            return take_orders(self._celery, [self._name])
        finally:
            stopped.set()
            attending.join(ANSWERING_SECONDS)
            self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._celery.close()
        self._redis.close()

    def _attend(self, stopped: threading.Event) -> None:
        while True:
            try:
                with answering_redis():
                    self._redis.set(self._attendance, os.getpid(), ex=ATTENDANCE_SECONDS)
            except Unavailable as error:
                log.warning("unavailable", error=str(error))
            if stopped.wait(ATTENDANCE_SECONDS / 3):
                return


def _examined(examine: Callable[[str], None], name: str) -> None:
    try:
        examine(name)
    except Unavailable as error:
        log.warning("unavailable", upload=name[:8], error=str(error))
