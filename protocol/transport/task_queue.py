"""Celery as services use it: orders in JSON through Redis, taken one at a time, without results.

Orders are acknowledged when taken; who gave one finds out that it was lost, and repeats it. Only JSON is accepted,
since a pickle from the queue could run arbitrary code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog
from celery import Celery
from celery.signals import worker_ready
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from protocol.errors import Unavailable
from protocol.garbage import collect_as_usual

log = structlog.get_logger()

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
    "enable_utc": True,
}


def task_app(name: str, *, current: bool = True) -> Celery:
    """Returns a Celery application; ``current`` makes it the process's own, of which there is one."""
    app = Celery(name, set_as_current=current)
    app.conf.update(CONFIGURATION)
    return app


def connect(app: Celery, queue_url: str, seconds: float, **options: object) -> None:
    """Has an application use the Redis at ``queue_url``, which must answer within ``seconds``.

    ``options`` are further ones of Celery's transport through Redis.
    """
    waits = {"socket_timeout": seconds, "socket_connect_timeout": seconds}
    app.conf.update(broker_url=queue_url, broker_transport_options=waits | options)


def take_orders(app: Celery, queues: Sequence[str]) -> int:
    """Takes orders until stopped, finishing the current one; returns the exit code."""
    collect_as_usual()
    worker_ready.connect(lambda **_: log.info("started", pid=os.getpid()), weak=False)
    worker = app.Worker(
        pool="solo",
        concurrency=1,
        queues=[*queues],
        loglevel="WARNING",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


@contextmanager
def ordering(redis_name: str = "Redis") -> Iterator[None]:
    """Raises ``Unavailable`` where an order that is given in the block cannot be queued."""
    try:
        yield
    except (OperationalError, RedisError, OSError) as error:
        raise Unavailable(f"{redis_name} does not answer: {error}") from error
