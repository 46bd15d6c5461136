"""Examinations of uploads in the background, by Celery. The task's body is one line.

    API ──name──> Redis ──> `assize coordinator precheck`, one or several, on any machine ──> database and object store

The database holds what is to be examined; an order that Redis loses is repeated when the node asks again. Only JSON is
accepted, since a pickle from the queue could run arbitrary code.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import structlog
from celery import Celery
from celery.signals import worker_ready
from kombu.exceptions import OperationalError
from redis import Redis
from redis.exceptions import RedisError

from protocol.errors import Unavailable

log = structlog.get_logger()

ANSWERING_SECONDS = 5.0
"""Longest wait for an answer of Redis."""

EXPIRE_SECONDS = 60.0
"""Age at which an order is dropped; it is repeated while its node waits."""

ATTENDANCE_SECONDS = 15
"""Time after its last sign of life for which a process counts as examining."""

TASK = "precheck"

CONFIGURATION = {
    "task_serializer": "json",
    "result_serializer": "json",
    "accept_content": ["json"],
    "task_ignore_result": True,
    "task_store_errors_even_if_ignored": False,
    "worker_send_task_events": False,
    "worker_enable_remote_control": False,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "worker_prefetch_multiplier": 1,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_transport_options": {"socket_timeout": ANSWERING_SECONDS, "socket_connect_timeout": ANSWERING_SECONDS},
    "enable_utc": True,
}


class PrecheckQueue:
    """The orders of one coordinator, named by its first ``run``. Threads may share it."""

    def __init__(self, redis_url: str, run: int) -> None:
        self._redis = Redis.from_url(redis_url, socket_timeout=ANSWERING_SECONDS)
        self._name, self._attendance = f"assize-precheck-{run}", f"assize:precheck:{run}"
        self._celery = Celery("assize-coordinator", broker=redis_url, set_as_current=False)
        self._celery.conf.update(CONFIGURATION)

    def order(self, name: str) -> None:
        """Has an upload examined. Raises ``Unavailable``."""
        try:
            self._celery.send_task(TASK, (name,), queue=self._name, retry=False, expires=EXPIRE_SECONDS)
        except (OperationalError, RedisError, OSError) as error:
            raise Unavailable(f"Redis does not answer: {error}") from error

    def attended(self) -> bool:
        """Returns whether a process examines uploads. Raises ``Unavailable``."""
        try:
            return bool(self._redis.exists(self._attendance))
        except RedisError as error:
            raise Unavailable(f"Redis does not answer: {error}") from error

    def work(self, examine: Callable[[str], None]) -> int:
        """Examines uploads until stopped, finishing the current one; returns the exit code."""

        def precheck(name: str) -> None:
            _examined(examine, name)

        self._celery.task(name=TASK)(precheck)
        stopped = threading.Event()
        worker_ready.connect(lambda **_: log.info("started", pid=os.getpid()), weak=False)
        attending = threading.Thread(target=self._attend, args=(stopped,), name="attend", daemon=True)
        attending.start()
        worker = self._celery.Worker(
            pool="solo",
            concurrency=1,
            queues=[self._name],
            loglevel="WARNING",
            quiet=True,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        try:
            worker.start()
        finally:
            stopped.set()
            attending.join(ANSWERING_SECONDS)
            self.close()
        return int(worker.exitcode or 0)

    def close(self) -> None:
        """Closes the connections."""
        self._celery.close()
        self._redis.close()

    def _attend(self, stopped: threading.Event) -> None:
        while True:
            try:
                self._redis.set(self._attendance, os.getpid(), ex=ATTENDANCE_SECONDS)
            except RedisError as error:
                log.warning("unavailable", error=f"Redis does not answer: {error}")
            if stopped.wait(ATTENDANCE_SECONDS / 3):
                return


def _examined(examine: Callable[[str], None], name: str) -> None:
    try:
        examine(name)
    except Unavailable as error:
        log.warning("unavailable", upload=name[:8], error=str(error))
