"""The loop of every daemon: tick, wait, tick, with backoff after errors, until it is stopped.

    tick returns True      there may be more to do: the next tick follows at once
    tick returns otherwise the next tick follows after ``interval_seconds``, or as soon as ``wake`` is set
    Unavailable, Rejected  logged once per message, retried after a growing, jittered pause
    Misconfigured          logged, and the loop ends with exit code 2
    any other exception    logged with its traceback, retried like Unavailable
    SIGTERM                a drain, if the service has one: the loop goes on until it is done; a second signal, or
                           SIGINT, ends the loop after the present tick

This is the only place that catches all exceptions: one bad round must neither end a node nor go unnoticed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType

import structlog
from prometheus_client import Counter, Gauge

from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.garbage import collect_as_usual
from protocol.node.activity import Activity

TICKS = Counter("assize_ticks", "Ticks of the loop", ["daemon", "outcome"])
LAST_TICK = Gauge(
    "assize_last_tick_timestamp_seconds", "When the last tick ended without error, or when the loop started", ["daemon"]
)

HEALTH_SECONDS = 1.0
"""Shortest time between writes of the health file."""

EXIT_OK, EXIT_MISCONFIGURED = 0, 2

Tick = Callable[[], object]


class Wake:
    """An event for one waiting thread that signal handlers may set too.

    ``threading.Event`` holds a lock while it is cleared and waited for. A handler runs in the main thread, which may
    hold that lock just then, and would wait for itself for ever; the queue's ``put`` may interrupt its own thread.
    """

    def __init__(self) -> None:
        self._set = SimpleQueue[None]()

    def set(self) -> None:
        """Ends the wait that is under way, or the next one."""
        self._set.put(None)

    def clear(self) -> None:
        """Forgets what was set."""
        with contextlib.suppress(Empty):
            while True:
                self._set.get_nowait()

    def wait(self, seconds: float) -> None:
        """Waits until it is set, and forgets that it was; at most ``seconds``."""
        with contextlib.suppress(Empty):
            self._set.get(timeout=seconds)


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """A service's way to end without leaving work undone.

    Args:
        begin: called in the loop's thread, once SIGTERM was received: the service takes no new work.
        done: called after each tick that had nothing more to do: True once a drain was asked for and nothing is left.
        most_seconds: longest that the loop goes on after SIGTERM; 0 ends it after the present tick.
    """

    begin: Callable[[], None]
    done: Callable[[], bool]
    most_seconds: float


class Daemon:
    """One loop of one service.

    Args:
        name: the service's name in logs, metrics and the health file.
        tick: one pass: schedule, run, postprocess; returns True if there may be more to do.
        interval_seconds: pause between ticks when idle.
        health_file: rewritten while the loop runs, if given.
        longest_backoff_seconds: longest pause after errors.
        close: called once when the loop ends, also after an error.
        activity: published in the health file, as soon as it changes.
        drain: how the service ends on SIGTERM; None ends it after the present tick.
    """

    def __init__(
        self,
        name: str,
        tick: Tick,
        interval_seconds: float,
        health_file: Path | None = None,
        longest_backoff_seconds: float = 15.0,
        close: Callable[[], None] | None = None,
        activity: Activity | None = None,
        drain: DrainPlan | None = None,
    ) -> None:
        self.name = name
        self._drain, self._drain_until = drain, math.inf
        self._told_to_drain = False
        self._activity, self._writing = activity, threading.Lock()
        if activity is not None:
            activity.changed = self._write_health
        self.wake = Wake()
        self._tick = tick
        self._interval = interval_seconds
        self._health_file = health_file
        self._health_written = 0.0
        self._longest_backoff = longest_backoff_seconds
        self._close = close
        self._stopping = False
        self._failures = 0
        self._problem = self._told_problem = ""
        self._failed_at = 0
        self._log = structlog.get_logger().bind(daemon=name)

    def run(self) -> int:
        """Ticks until stopped and returns the exit code: 0 when stopped, 2 after ``Misconfigured``."""
        self._listen()
        collect_as_usual()
        self._log.info("started", pid=os.getpid())
        LAST_TICK.labels(self.name).set_to_current_time()
        try:
            return self._loop()
        finally:
            if self._close is not None:
                self._close()
            self._log.info("stopped")

    def stop(self) -> None:
        """Ends the loop after the current tick. Safe to call from any thread and from signal handlers."""
        self._stopping = True
        self.wake.set()

    @property
    def stopping(self) -> bool:
        """True after ``stop``; a long tick checks this between its parts."""
        return self._stopping

    def _loop(self) -> int:
        while not self._stopping:
            self.wake.clear()
            try:
                self._begin_drain_if_told()
                pause = 0.0 if self._tick() is True else self._interval
                self._succeeded()
                if pause > 0 and self._drain is not None and self._drain.done():
                    self._log.info("drained")
                    self.stop()
            except Misconfigured as error:
                self._log.error("misconfigured", error=str(error))
                self._beat(str(error), force=True)
                return EXIT_MISCONFIGURED
            except Exception as error:
                pause = self._failed(error)
            left = self._drain_until - time.monotonic()
            if left <= 0 and not self._stopping:
                self._log.warning("not_drained", error="the time for a drain is over; the next start goes on")
                self.stop()
            if not self._stopping and pause > 0:
                self.wake.wait(min(pause, left))
        return EXIT_OK

    def _begin_drain_if_told(self) -> None:
        if self._told_to_drain and self._drain is not None and self._drain_until == math.inf:
            self._drain_until = time.monotonic() + self._drain.most_seconds
            self._log.info("draining", most_seconds=self._drain.most_seconds)
            self._drain.begin()

    def _succeeded(self) -> None:
        if self._failures:
            self._log.info("recovered", failures=self._failures)
        self._failures, self._problem = 0, ""
        TICKS.labels(self.name, "ok").inc()
        LAST_TICK.labels(self.name).set_to_current_time()
        self._beat("")

    def _failed(self, error: Exception) -> float:
        self._failures += 1
        if isinstance(error, Unavailable | Rejected):
            kind = type(error).__name__.lower()
            if str(error) != self._problem:
                self._log.warning(kind, error=str(error), failures=self._failures)
        else:
            kind = "crashed"
            self._log.error("tick_crashed", error=repr(error), failures=self._failures, exc_info=True)
        self._problem, self._failed_at = str(error), int(time.time())
        TICKS.labels(self.name, kind).inc()
        self._beat(self._problem, force=self._failures == 1)
        return backoff_seconds(self._failures, self._interval, self._longest_backoff, random.random())

    def _beat(self, problem: str, force: bool = False) -> None:
        now = time.monotonic()
        if now - self._health_written < HEALTH_SECONDS and not force:
            return
        self._health_written, self._told_problem = now, problem
        self._write_health()

    def _write_health(self) -> None:
        if self._health_file is None:
            return
        state = {"daemon": self.name, "pid": os.getpid(), "at": int(time.time()), "failures": self._failures}
        told = {} if self._activity is None else {"activity": self._activity.told()}
        problem = {"problem": self._told_problem, "problem_at": self._failed_at}
        temporary = self._health_file.with_suffix(".part")
        with self._writing, contextlib.suppress(OSError):  # an outdated file shows the same
            temporary.write_text(json.dumps(state | problem | told) + "\n")
            temporary.replace(self._health_file)

    def _listen(self) -> None:
        """Installs signal handlers in the main thread; the owner stops a daemon in another thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        drains = self._drain is not None and self._drain.most_seconds > 0
        if number == signal.SIGTERM and drains and not self._told_to_drain:
            self._told_to_drain = True
            self.wake.set()
        else:
            self.stop()


def backoff_seconds(failures: int, interval: float, longest: float, draw: float) -> float:
    """Returns the pause after consecutive failures: doubled from the interval, capped, jittered by ``draw`` in [0, 1).

    Half of the pause is fixed and half random (equal jitter), so that nodes that lost the same peer do not all return
    at the same time.
    """
    ceiling = min(longest, max(interval, 0.05) * 2.0 ** min(failures - 1, 30))
    return ceiling * (0.5 + 0.5 * draw)
