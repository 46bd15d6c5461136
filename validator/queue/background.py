"""Celery workers that judge on the owner's other GPUs and machines. The task's body is one line.

    daemon ──order──> Redis ──> one worker a GPU, pool "solo": fetches, judges ──answer──> Redis ──> daemon, which votes

Orders are acknowledged when taken, and Celery keeps no results: the daemon alone detects lost orders, by leases
(``validator.queue.exchange``). Redis may lose everything at any moment.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.transport.task_queue import connect, ordering, take_orders, task_app
from validator.queue.checker import Checker
from validator.queue.exchange import ANSWERING_SECONDS, QUEUE, SAMPLING_QUEUE
from validator.queue.orders import decode_order

EXPIRE_SECONDS = 600.0
"""Age at which an order in the queue is dropped; the daemon repeats those it still needs."""

celery = task_app("assize-validator")
celery.conf.update(task_default_queue=QUEUE)

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
        queue = SAMPLING_QUEUE if decode_order(order).secret else QUEUE
        with ordering("the queue's Redis"):
            check.apply_async((order,), queue=queue, retry=False, expires=EXPIRE_SECONDS)

    return send


def work(queue_url: str, checker: Checker) -> int:
    """Takes orders until stopped, finishing the current one; returns the exit code."""
    _configure(queue_url)
    _checker[:] = [checker]
    return take_orders(celery, [QUEUE, SAMPLING_QUEUE])


def _configure(queue_url: str) -> None:
    # The first queue that holds anything is served.
    connect(celery, queue_url, ANSWERING_SECONDS, queue_order_strategy="priority")
