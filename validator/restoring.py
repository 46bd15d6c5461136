"""Artifacts put back into the coordinator's store where it lacks them, by a juror that has fetched them elsewhere.

It delays no judging: one thread of its own, and what cannot be delivered is dropped, since other jurors have it too.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import structlog

from protocol.errors import AssizeError
from protocol.transport.coordinator import CoordinatorClient
from protocol.transport.run_coordinators import RunCoordinators
from validator.judging.claims import Claim

MOST_WAITING = 64
"""Blobs that may wait at once: they are held in memory."""

MOST_REMEMBERED = 4096
"""Artifacts that are remembered as tried."""

log = structlog.get_logger()


class Restoring:
    """Puts artifacts back, each once, into the coordinators of the runs served; no other place is written to."""

    def __init__(self, coordinators: RunCoordinators) -> None:
        self._coordinators = coordinators
        self._pool = ThreadPoolExecutor(1, "restoring")
        self._lock, self._waiting = Lock(), 0
        self._tried: set[bytes] = set()

    def put(self, claim: Claim, place: str, blob: bytes) -> None:
        """Has ``blob``, the artifact of ``claim``, put back if ``place``, which lacks it, is a coordinator's."""
        client = self._coordinators.storing(place)
        if client is None:
            return
        with self._lock:
            if claim.root in self._tried or self._waiting >= MOST_WAITING:
                return
            if len(self._tried) >= MOST_REMEMBERED:
                self._tried.clear()
            self._tried.add(claim.root)
            self._waiting += 1
        self._pool.submit(self._put, client, claim, blob)

    def close(self) -> None:
        """Ends the deliveries; those that have not begun never do."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _put(self, client: CoordinatorClient, claim: Claim, blob: bytes) -> None:
        try:
            client.restore(claim.round, claim.job, blob)
        except AssizeError as error:
            log.debug("not_restored", round=claim.round, job=claim.job, error=str(error))
        else:
            log.info("restored", round=claim.round, job=claim.job)
        finally:
            with self._lock:
                self._waiting -= 1
