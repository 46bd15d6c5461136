"""Celery: what runs beside the API. Task bodies are one line; what they do is in ``clockwork`` and below.

    beat (a thread) ──tick, expire──> Redis ──> one worker, pool "solo": tick watches the chain until the next is due
                                        API ──> bell, which cuts the pauses of the watch short

A solo pool runs one task at a time in one process, so there is one sender and one mirror. A message costs as much as
seven looks at the chain, hence a watch of some seconds a message. Everything queued may be lost: the next tick does
what a lost one would have done, and one that waited too long expires unrun.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import structlog
from celery import Celery
from celery.beat import EmbeddedService
from celery.signals import worker_ready
from celery.worker import state

from coordinator.driver.wiring import Clockwork
from coordinator.settings import CoordinatorSettings
from protocol.errors import Misconfigured
from protocol.node.console import EXIT_MISCONFIGURED

log = structlog.get_logger()

TICK_SECONDS = 2.0
"""How long one tick watches, and how often beat sends one."""

EXPIRE_SECONDS = 5.0
"""Between looks for ended leases and nonces."""

celery = Celery("assize-coordinator")
celery.conf.update(
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    beat_max_loop_interval=1,
    enable_utc=True,
)

_clockwork: list[Clockwork] = []
"""The one of this process, once ``work`` has made it; Celery's tasks are found by name and take no objects."""


@celery.task(name="tick")  # type: ignore[untyped-decorator]
def tick() -> None:
    """Mirrors the chain and sends what is due, for as long as a tick lasts."""
    _guarded(lambda: _clockwork[0].watch(TICK_SECONDS, _stopping))


@celery.task(name="expire")  # type: ignore[untyped-decorator]
def expire() -> None:
    """Ends leases, forgets nonces."""
    _guarded(_clockwork[0].expire)


def _guarded(body: Callable[[], None]) -> None:
    """Ends the worker where it cannot go on as set up; Celery would log the error and go on."""
    try:
        body()
    except Misconfigured as error:
        log.error("misconfigured", error=str(error))
        state.should_stop = EXIT_MISCONFIGURED


def _configure(settings: CoordinatorSettings) -> None:
    celery.conf.update(
        broker_url=settings.redis_url,
        task_default_queue=f"assize-coordinator-{settings.run}",
        beat_schedule={
            "tick": {"task": "tick", "schedule": TICK_SECONDS, "options": {"expires": TICK_SECONDS}},
            "expire": {"task": "expire", "schedule": EXPIRE_SECONDS, "options": {"expires": EXPIRE_SECONDS}},
        },
    )


def _stopping() -> bool:
    return state.should_stop is not None and state.should_stop is not False


def work(settings: CoordinatorSettings, clockwork: Clockwork) -> int:
    """Runs worker and beat until told to stop. Returns the exit code: 2 after ``Misconfigured``."""
    _configure(settings)
    _clockwork[:] = [clockwork]
    beat = EmbeddedService(celery, thread=True, scheduler_cls="celery.beat:Scheduler")

    def start(**_: object) -> None:
        beat.start()
        log.info("started", run=settings.run, pid=os.getpid())

    worker_ready.connect(start, weak=False)
    worker = celery.Worker(
        pool="solo",
        concurrency=1,
        loglevel="WARNING",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        use_eventloop=False,  # Celery's own loop does not read from a Redis that went away and came back
    )
    worker.start()
    return int(worker.exitcode or 0)
