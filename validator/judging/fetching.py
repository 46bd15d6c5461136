"""Artifacts fetched from the submitted URIs: several at once, and repeatedly until the round is dropped."""

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
    """Fetches artifacts of rounds in progress. Used from one thread; fetches run in threads of their own."""

    def __init__(self, stores: BlobStores | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stores, self._clock = stores or BlobStores(), clock
        self._pool = ThreadPoolExecutor(PARALLEL_FETCHES, "artifacts")
        self._fetches: dict[tuple[int, int, bytes], RetriedFetch[bytes | Finding | None]] = {}

    def look(self, claim: Claim, limit: int) -> bytes | Finding | None:
        """Returns the artifact of ``claim``, or None if it has not arrived; starts the fetch if needed.

        More than ``limit`` bytes and an invalid URI are findings. A store that does not answer is asked again; the
        caller decides when its silence counts.
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
        """Forgets what was fetched for other rounds."""
        self._fetches = {key: fetch for key, fetch in self._fetches.items() if key[0] in rounds}

    def close(self) -> None:
        """Ends the fetches; those in progress fail on their closed client."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._stores.close()

    def _start(self, claim: Claim, limit: int) -> Future[bytes | Finding | None]:
        return self._pool.submit(fetch_once, self._stores, claim, limit)


def fetch_once(stores: BlobStores, claim: Claim, limit: int) -> bytes | Finding | None:
    """Returns the bytes, a finding if there can be none, or None if the store does not have them this time."""
    try:
        store = stores.open_public(claim.uri)
    except Rejected:
        return Finding(Reason.UNAVAILABLE, "the submission has an invalid URI: expected http(s)://host")
    try:
        return store.get(claim.root, limit)
    except Unavailable:
        return None
    except Rejected as error:
        return Finding(Reason.SHAPE, str(error))
