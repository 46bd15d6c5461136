"""Celery workers that judge on the owner's other GPUs and machines. The task's body is one line.

    daemon ──order──> Redis ──> one worker a GPU, pool "solo": fetches, judges ──answer──> Redis ──> daemon, which votes

Orders are acknowledged when taken, and Celery keeps no results: the daemon alone detects lost orders, by leases
(``validator.queue.exchange``). Redis may lose everything at any moment. Only JSON is accepted, since a pickle from the
queue could run arbitrary code.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import structlog
from celery import Celery
from celery.signals import worker_ready
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from protocol.errors import Unavailable
from validator.queue.checker import Checker
from validator.queue.exchange import ANSWERING_SECONDS, QUEUE, SAMPLING_QUEUE
from validator.queue.orders import decode_order

log = structlog.get_logger()

EXPIRE_SECONDS = 600.0
"""Age at which an order in the queue is dropped; the daemon repeats those it still needs."""

celery = Celery("assize-validator")
celery.conf.update(
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    task_default_queue=QUEUE,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    enable_utc=True,
)

_checker: list[Checker] = []
"""This process's checker, set by ``work``; Celery finds tasks by name and cannot pass them objects."""


@celery.task(name="check")  # type: ignore[untyped-decorator]
def check(order: str) -> None:
    """Judges the jobs of one order and stores their answers."""
    _checker[0].take(order)


def sender(queue_url: str) -> Callable[[str], None]:
    """Returns the function with which a daemon queues orders."""
    _configure(queue_url)

    def send(order: str) -> None:
        try:
            queue = SAMPLING_QUEUE if decode_order(order).secret else QUEUE
            check.apply_async((order,), queue=queue, retry=False, expires=EXPIRE_SECONDS)
        except (OperationalError, RedisError, OSError) as error:
            raise Unavailable(f"the queue's Redis does not answer: {error}") from error

    return send


def work(queue_url: str, checker: Checker) -> int:
    """Takes orders until stopped, finishing the current one; returns the exit code."""
    _configure(queue_url)
    _checker[:] = [checker]
    worker_ready.connect(lambda **_: log.info("started", pid=os.getpid()), weak=False)
    worker = celery.Worker(
        pool="solo",
        concurrency=1,
        queues=[QUEUE, SAMPLING_QUEUE],
        loglevel="WARNING",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


def _configure(queue_url: str) -> None:
    celery.conf.update(
        broker_url=queue_url,
        broker_transport_options={
            "socket_timeout": ANSWERING_SECONDS,
            "socket_connect_timeout": ANSWERING_SECONDS,
            "queue_order_strategy": "priority",  # the first queue that holds anything
        },
    )
