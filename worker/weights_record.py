"""Record of the versions of weights that a worker fetched and loaded: bytes, and time from chain to use."""

from __future__ import annotations

import statistics
from collections import deque
from typing import Any

from prometheus_client import Counter, Histogram

from protocol.broadcast.checkpoints import FetchRecord

RECEIVED = Counter("assize_worker_weights_received_bytes", "Bytes received for versions of weights")
WHOLE = Counter(
    "assize_worker_weights_whole_bytes", "Bytes of the files of the versions received, as they are without deltas"
)
SECONDS = Histogram("assize_worker_weights_seconds", "Seconds from a version's appearance on chain to its use")
PAUSE = Histogram("assize_worker_weights_pause_seconds", "Seconds in which a swap of weights kept the worker from work")
REMEMBERED = 64
"""Versions whose times count for the medians."""


class WeightsRecord:
    """Figures of one process. Times are in seconds."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._pauses: deque[float] = deque(maxlen=REMEMBERED)
        self._told = FetchRecord()

    def loaded(self, seconds: float, pause: float) -> None:
        """Notes a version that is in use ``seconds`` after it was seen on chain, with a ``pause`` for its swap."""
        self._seconds.append(seconds)
        self._pauses.append(pause)
        SECONDS.observe(seconds)
        PAUSE.observe(pause)

    def figures(self, fetched: FetchRecord) -> dict[str, Any]:
        """Returns the figures for the health file: versions, bytes received and of whole files, median times."""
        RECEIVED.inc(fetched.received - self._told.received)
        WHOLE.inc(fetched.whole - self._told.whole)
        self._told = FetchRecord(fetched.versions, fetched.received, fetched.whole)
        medians = (round(statistics.median(times), 3) for times in (self._seconds, self._pauses) if times)
        figures = {"versions": fetched.versions, "received": fetched.received, "whole": fetched.whole}
        return figures | dict(zip(("seconds", "pause"), medians, strict=False))
