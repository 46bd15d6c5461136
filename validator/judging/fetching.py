"""Artifacts on their way from where the submissions say they lie: several at once, and again until told to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor

from protocol.errors import Rejected, Unavailable
from protocol.transport.blobs import BlobStores
from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from validator.judging.claims import Claim
from validator.retrying import RetriedFetch

PARALLEL_FETCHES = 8
LONGEST_PAUSE_SECONDS = 3.0


class Fetching:
    """What was fetched for the claims of rounds in progress. Used from one thread; fetches run in their own."""

    def __init__(self, stores: BlobStores | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stores, self._clock = stores or BlobStores(), clock
        self._pool = ThreadPoolExecutor(PARALLEL_FETCHES, "artifacts")
        self._fetches: dict[tuple[int, int, bytes], RetriedFetch[bytes | Finding | None]] = {}

    def look(self, claim: Claim, limit: int) -> bytes | Finding | None:
        """Returns what has come for ``claim``, starting the fetch where none is under way; None: nothing yet.

        More than ``limit`` bytes, or a place that is no URI, are findings. A place that does not answer is asked again:
        that proves nothing, until whoever waits decides it does.
        """
        key = (claim.round, claim.job, claim.root)
        fetch = self._fetches.get(key)
        if fetch is None:
            self._fetches[key] = RetriedFetch(self._start(claim, limit), self._clock())
            return None
        if not fetch.future.done():
            return None
        found = fetch.future.result()
        if found is None:
            fetch.retry(self._clock(), LONGEST_PAUSE_SECONDS, lambda: self._start(claim, limit))
        return found

    def keep(self, rounds: Collection[int]) -> None:
        """Lets go of everything fetched for other rounds than these."""
        self._fetches = {key: fetch for key, fetch in self._fetches.items() if key[0] in rounds}

    def close(self) -> None:
        """Ends the fetches; those under way run into their closed client."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._stores.close()

    def _start(self, claim: Claim, limit: int) -> Future[bytes | Finding | None]:
        return self._pool.submit(fetch_once, self._stores, claim, limit)


def fetch_once(stores: BlobStores, claim: Claim, limit: int) -> bytes | Finding | None:
    """Returns the bytes, a finding if there can be none, or None if the store does not have them this time."""
    try:
        store = stores.open_public(claim.uri)
    except Rejected:
        return Finding(Reason.UNAVAILABLE, "the submission names no place to fetch from")
    try:
        return store.get(claim.root, limit)
    except Unavailable:
        return None
    except Rejected as error:
        return Finding(Reason.SHAPE, str(error))
