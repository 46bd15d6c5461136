"""Artifacts fetched from the submitted URIs: several at once, and repeatedly until the round is dropped.

Every node has threads of its own, so that a store which drips bytes delays no other node's artifacts.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from protocol.errors import Rejected, Unavailable
from protocol.transport.artifacts import Denied, NoHolder, fetch_artifact
from protocol.transport.blobs import GRACE_SECONDS, BlobStores
from protocol.transport.node_pools import NodeFetch, NodePools
from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from validator.judging.claims import Claim
from validator.retrying import RetriedFetch

FETCHES_PER_NODE = 8
"""So many that those which are cut off for slowness leave time to try the others before a vote."""
LONGEST_PAUSE_SECONDS = 3.0


class Absence(Enum):
    """The outcome of a fetch that may end otherwise next time: no holder answered, or one did, without the bytes."""

    SILENT = "silent"
    DENIED = "denied"


@dataclass(slots=True)
class _ArtifactFetch(RetriedFetch[bytes | Finding | Absence]):
    """One artifact on its way: when it was last asked for, and whether a holder answered without it."""

    looked_at: float = 0.0
    denied: bool = False


class Fetching:
    """Fetches artifacts of rounds in progress. Used by one thread at a time; fetches run in threads of their own."""

    def __init__(
        self,
        stores: BlobStores,
        clock: Callable[[], float] = time.monotonic,
        restore: Callable[[Claim, str, bytes], None] | None = None,
    ) -> None:
        """``restore`` is called, in a fetch's thread, with each holder that lacks what another has."""
        self._stores, self._clock, self._restore = stores, clock, restore
        self._pools = NodePools("artifacts", FETCHES_PER_NODE)
        self._fetches: dict[Claim, _ArtifactFetch] = {}

    def look(self, claim: Claim, limit: int) -> bytes | Finding | None:
        """Returns the blob of ``claim``'s artifact, or None if it has not arrived; starts the fetch if needed.

        A signed file of more than ``limit`` bytes and an invalid URI are findings. A store that does not answer, or
        that sends other bytes, is asked again; the caller decides when its silence counts.
        """
        now = self._clock()
        if claim not in self._fetches:
            self._fetches[claim] = _ArtifactFetch(self._start(claim, limit), now)
        fetch = self._fetches[claim]
        fetch.looked_at = now
        if not fetch.future.done():
            return None
        found = fetch.future.result()
        if isinstance(found, Absence):
            fetch.denied = fetch.denied or found is Absence.DENIED
            fetch.retry(now, LONGEST_PAUSE_SECONDS, lambda: self._start(claim, limit))
            return None
        return found

    def expected(self, claim: Claim, seconds: float) -> bool:
        """Returns whether the first attempt is not over, and was begun or queued less than ``seconds`` ago."""
        fetch = self._fetches[claim]
        return fetch.attempts == 1 and not fetch.future.done() and self._clock() - fetch.since < seconds

    def tried(self, claim: Claim) -> bool:
        """Returns whether an attempt has failed, or has gone on for longer than the run's stores may take to answer."""
        fetch = self._fetches.get(claim)
        return fetch is not None and fetch.tried(GRACE_SECONDS * max(1, len(claim.stores)))

    def denied(self, claim: Claim) -> bool:
        """Returns whether a holder has answered without the artifact."""
        fetch = self._fetches.get(claim)
        return fetch is not None and fetch.denied

    def keep(self, rounds: Collection[int]) -> None:
        """Forgets what was fetched for other rounds, and ends their fetches."""
        self.forget([claim for claim in self._fetches if claim.round not in rounds])

    def keep_recent(self, seconds: float) -> None:
        """Forgets what was not looked at for so long, and ends its fetches."""
        oldest = self._clock() - seconds
        self.forget([claim for claim, fetch in self._fetches.items() if fetch.looked_at < oldest])

    def forget(self, claims: Iterable[Claim]) -> None:
        """Forgets these claims' artifacts, and ends their fetches."""
        for claim in claims:
            if (fetch := self._fetches.pop(claim, None)) is not None:
                fetch.attempt.cancel()
        self._pools.keep({claim.node for claim in self._fetches})

    def close(self) -> None:
        """Ends the fetches."""
        self.forget(list(self._fetches))
        self._stores.close()

    def _start(self, claim: Claim, limit: int) -> NodeFetch[bytes | Finding | Absence]:
        return self._pools.submit(claim.node, functools.partial(self._fetch, claim, limit))

    def _fetch(self, claim: Claim, limit: int) -> bytes | Finding | Absence:
        lacking: list[str] = []
        found = fetch_once(self._stores, claim, limit, lacking.append)
        if isinstance(found, bytes) and self._restore is not None:
            for place in lacking:
                self._restore(claim, place, found)
        return found


def fetch_once(
    stores: BlobStores, claim: Claim, limit: int, lacks: Callable[[str], object] = lambda holder: None
) -> bytes | Finding | Absence:
    """Returns the blob, a finding if there can be none, or how it is absent this time.

    ``lacks`` is called with each holder that answers without it.
    """
    try:
        return fetch_artifact(stores, claim.holders, claim.root, limit, claim.ports, lacks)
    except NoHolder:
        return Finding(Reason.UNAVAILABLE, "the submission names no public store: expected http(s)://host")
    except Denied:
        return Absence.DENIED
    except Unavailable:
        return Absence.SILENT
    except Rejected as error:
        return Finding(Reason.SHAPE, str(error))
