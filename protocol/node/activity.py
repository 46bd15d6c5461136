"""A daemon's present activity, for people who look: published in its health file as soon as it changes.

    doing, why      the activity, such as "generating", and its object, or what it waits for
    since, started  unix seconds of this activity, and of the process
    seconds         seconds spent in each activity since the start
    …               figures of the service

Threads may share it. Writing a change costs a tenth of a millisecond, and a change happens a few times a round.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from protocol.errors import Misconfigured, Unavailable
from protocol.times import clock, spell

WAITING = "waiting"
"""The activity of a daemon that has nothing to do; all others count as work."""
STARTING = "starting"
HEALTH_FILE = "health.json"


class Activity:
    """Activity and figures of one process. ``changed`` is called after each change, by any thread."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._doing, self._why, self._started = STARTING, "", clock()
        self._since = self._started
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._figures: dict[str, Any] = {}
        self.changed: Callable[[], None] = lambda: None

    def doing(self, what: str, why: str = "") -> None:
        """Begins an activity, or keeps it going."""
        with self._lock:
            if (what, why) == (self._doing, self._why):
                return
            now = self._clock()
            self._seconds[self._doing] += max(0.0, now - self._since)
            self._doing, self._why, self._since = what, why, now
        self.changed()

    def note(self, **figures: Any) -> None:
        """Sets figures of the service."""
        with self._lock:
            if all(self._figures.get(name, figures) == value for name, value in figures.items()):
                return
            self._figures |= figures
        self.changed()

    def told(self) -> dict[str, Any]:
        """Returns the activity as it stands in the health file."""
        with self._lock:
            seconds = dict(self._seconds)
            seconds[self._doing] = seconds.get(self._doing, 0.0) + max(0.0, self._clock() - self._since)
            return {
                "doing": self._doing,
                "why": self._why,
                "since": int(self._since),
                "started": int(self._started),
                "seconds": {name: round(spent, 3) for name, spent in seconds.items()},
                **self._figures,
            }


def read_health(state_dir: Path, service: str | None = None) -> dict[str, Any]:
    """Returns the health file of a daemon of ``service``, or of any.

    Raises:
        Unavailable: it has not written one yet, or only half of one.
        Misconfigured: the folder is another daemon's.
    """
    path = state_dir / HEALTH_FILE
    try:
        state = json.loads(path.read_bytes())
    except OSError as error:
        raise Unavailable(
            f"no {service or 'daemon'} has run with the state folder {state_dir}: {path.name} is not there"
        ) from error
    except ValueError as error:
        raise Unavailable(f"{path} is not a health file") from error
    daemon = state.get("daemon") if isinstance(state, dict) else None
    if daemon is None or service not in (None, daemon):
        raise Misconfigured(f"{state_dir} is not the state folder of a {service or 'daemon'}: name another")
    return dict(state)


def duty_cycle(seconds: dict[str, float]) -> float | None:
    """Returns the share of the time since the start that was spent working; None if none has passed. PURE."""
    whole = sum(spent for name, spent in seconds.items() if name != STARTING)
    return (whole - seconds.get(WAITING, 0.0)) / whole if whole else None


@dataclass(frozen=True, slots=True)
class Doing:
    """A daemon's activity in words; ``since`` is None where no time is counted."""

    words: str
    tone: Literal["", "bad", "busy"]
    since: int | None

    def lasting(self, now: float) -> str:
        """Returns the words and for how long it has lasted."""
        return self.words if self.since is None else f"{self.words}, {spell(max(0, int(now) - self.since))}"


def doing_of(health: Mapping[str, Any], alive: bool) -> Doing:
    """Returns the activity of a daemon from its health file. PURE."""
    activity = health.get("activity", {})
    if not alive:
        return Doing(f"not running; last sign of life at {clock(int(health['at']))}", "bad", None)
    doing, why, since = activity.get("doing", STARTING), activity.get("why", ""), activity.get("since")
    if health.get("problem") and (since or 0) <= health.get("problem_at", 0):  # else it goes on: the tick is a long one
        return Doing(f"retrying: {health['problem']}", "bad", None)
    if doing == WAITING:
        return Doing(f"waiting {why}", "", since)
    return Doing(f"{doing}: {why}" if why else doing, "busy", since)


def runs(pid: int) -> bool:
    """Returns whether a process of this machine runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
