"""Artifacts fetched from the submitted URIs: several at once, and repeatedly until the round is dropped.

Every node has threads of its own, so that a store which drips bytes delays no other node's artifacts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor

from protocol.errors import Rejected, Unavailable
from protocol.transport.artifacts import NoHolder, fetch_artifact
from protocol.transport.blobs import BlobStores
from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from validator.judging.claims import Claim
from validator.retrying import RetriedFetch

FETCHES_PER_NODE = 2
LONGEST_PAUSE_SECONDS = 3.0


class Fetching:
    """Fetches artifacts of rounds in progress. Used from one thread; fetches run in threads of their own."""

    def __init__(self, stores: BlobStores | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stores, self._clock = stores or BlobStores(), clock
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._fetches: dict[tuple[int, int, int, bytes], RetriedFetch[bytes | Finding | None]] = {}

    def look(self, claim: Claim, limit: int) -> bytes | Finding | None:
        """Returns the blob of ``claim``'s artifact, or None if it has not arrived; starts the fetch if needed.

        A signed file of more than ``limit`` bytes and an invalid URI are findings. A store that does not answer, or
        that sends other bytes, is asked again; the caller decides when its silence counts.
        """
        key = (claim.round, claim.node, claim.job, claim.root)
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
        """Forgets what was fetched for other rounds; fetches of theirs that have not begun never do."""
        for key in [key for key in self._fetches if key[0] not in rounds]:
            self._fetches.pop(key).future.cancel()
        nodes = {node for _, node, _, _ in self._fetches}
        for node in self._pools.keys() - nodes:
            self._pools.pop(node).shutdown(wait=False)

    def close(self) -> None:
        """Ends the fetches; those in progress fail on their closed client."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._stores.close()

    def _start(self, claim: Claim, limit: int) -> Future[bytes | Finding | None]:
        if claim.node not in self._pools:
            self._pools[claim.node] = ThreadPoolExecutor(FETCHES_PER_NODE, f"artifacts-{claim.node}")
        return self._pools[claim.node].submit(fetch_once, self._stores, claim, limit)


def fetch_once(stores: BlobStores, claim: Claim, limit: int) -> bytes | Finding | None:
    """Returns the blob, a finding if there can be none, or None if no holder has it this time."""
    try:
        return fetch_artifact(stores, claim.holders, claim.root, limit)
    except NoHolder:
        return Finding(Reason.UNAVAILABLE, "the submission has an invalid URI: expected http(s)://host")
    except Unavailable:
        return None
    except Rejected as error:
        return Finding(Reason.SHAPE, str(error))
