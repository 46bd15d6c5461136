"""Celery: what runs beside the API. Task bodies are one line; what they do is in ``clockwork`` and below.

    beat (a thread) ──tick, expire──> Redis ──> one worker, pool "solo" <──relay── API, when leaves come in

A solo pool runs one task at a time in one process, so there is one sender and one mirror. Everything queued here may be
lost: the next tick does what a lost message would have done. A tick that waited behind a long one expires unrun.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from celery import Celery
from celery.beat import EmbeddedService
from celery.signals import worker_ready
from celery.worker import state

from coordinator.clockwork import Clockwork
from coordinator.settings import CoordinatorSettings

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
    """Mirrors the chain and sends what is due."""
    _guarded(_clockwork[0].advance)


@celery.task(name="relay")  # type: ignore[untyped-decorator]
def relay() -> None:
    """The same at once, because leaves came in."""
    _guarded(_clockwork[0].advance)


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


def configure(settings: CoordinatorSettings) -> None:
    """Points Celery at this run's queue and schedules the tasks."""
    celery.conf.update(
        broker_url=settings.redis_url,
        task_default_queue=f"assize-coordinator-{settings.run}",
        beat_schedule={
            "tick": {
                "task": "tick",
                "schedule": settings.tick_seconds,
                "options": {"expires": 2 * settings.tick_seconds},
            },
            "expire": {"task": "expire", "schedule": EXPIRE_SECONDS, "options": {"expires": EXPIRE_SECONDS}},
        },
    )


def nudge() -> None:
    """Asks the worker to relay now. Raises kombu's ``OperationalError`` where Redis does not answer."""
    relay.apply_async(expires=5, retry=False)


def work(settings: CoordinatorSettings, clockwork: Clockwork) -> int:
    """Runs worker and beat until told to stop. Returns the exit code: 2 after ``Misconfigured``."""
    configure(settings)
    _clockwork[:] = [clockwork]
    beat = EmbeddedService(celery, thread=True, scheduler_cls="celery.beat:Scheduler")
    worker_ready.connect(lambda **_: beat.start(), weak=False)
    worker = celery.Worker(
        pool="solo",
        concurrency=1,
        loglevel="WARNING",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    return int(worker.exitcode or 0)
