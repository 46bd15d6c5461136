"""Availability of a worker for new jobs: quiet hours, and draining.

In a drain the worker hands in what it was assigned, takes nothing new, and ends with exit code 0. One that a person
asks for is a file in the state folder, which survives a restart until it is done; one by SIGTERM is the process's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import time
from pathlib import Path

from protocol.chain.reading.client import Chain
from protocol.errors import Misconfigured, Rejected, Unavailable, accessing
from protocol.node.activity import read_health, runs

DRAIN_FILE = "drain"
RECENT_BLOCKS = 10
_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Hours of each day, in this machine's time, in which no new jobs are taken; they may span midnight. PURE."""

    start: time
    end: time

    @classmethod
    def parse(cls, text: str) -> QuietHours | None:
        """Reads hours such as 22:00-06:00; empty text is None.

        Raises:
            Misconfigured: the text has another form, or both times are the same.
        """
        if not text:
            return None
        match = _HOURS.fullmatch(text.strip())
        times = [int(part) for part in match.groups()] if match else []
        if not times or times[:2] == times[2:]:
            raise Misconfigured(f"invalid quiet hours {text!r}: expected two different times, such as 22:00-06:00")
        return cls(time(times[0], times[1]), time(times[2], times[3]))

    def include(self, moment: time) -> bool:
        """Returns whether a time of day is in them; the end is not."""
        if self.start < self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end


class Drain:
    """The drain of one worker: its state folder's, or this process's own after ``begin``."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / DRAIN_FILE
        self._begun = False

    @property
    def asked(self) -> bool:
        """True while a drain is asked for."""
        return self._begun or self._file.exists()

    def begin(self) -> None:
        """Drains this process, and not those that start after it."""
        self._begun = True

    def ask(self) -> int:
        """Asks the running worker to drain; returns its process id.

        Raises:
            Rejected: no worker runs in this state folder.
            Misconfigured: the folder is another daemon's.
        """
        pid = self._running()
        if pid is None:
            raise Rejected(f"no worker runs with the state folder {self._file.parent}: there is nothing to drain")
        with accessing(f"write {self._file}"):
            self._file.touch()
        return pid

    def end(self) -> None:
        """Takes the drain back, or notes that it is done."""
        self._file.unlink(missing_ok=True)

    def _running(self) -> int | None:
        try:
            pid = int(read_health(self._file.parent, "worker")["pid"])
        except (Unavailable, KeyError, TypeError, ValueError):
            return None
        return pid if runs(pid) else None


def recent_block_seconds(chain: Chain) -> float:
    """Returns the mean time between the newest ``RECENT_BLOCKS`` blocks."""
    head = chain.head()
    blocks = min(RECENT_BLOCKS, head.number - chain.deployment.start_block)
    return (head.timestamp - chain.block(head.number - blocks).timestamp) / blocks if blocks > 0 else 0.0
