"""A relay: fetches the checkpoints that upstreams list, verifies them, and serves each chunk while the rest arrives.

One thread per run and upstream long-polls the list of checkpoints. A manifest enters the store once the trainer's
signature is verified, so that requests for its chunks wait for them; a chunk enters once its hash is verified. Nothing
unverified is ever served.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import structlog

from protocol.broadcast.delta_making import SPANS
from protocol.broadcast.deltas import catch_up
from protocol.broadcast.fetching import fetch_chunks, fetch_delta, fetch_manifest, list_from
from protocol.broadcast.sources import Sources
from protocol.broadcast.version_store import DEFAULT_VERSIONS_KEPT, VersionStore
from protocol.errors import Rejected, Unavailable
from protocol.wire.api import CheckpointEntry, CheckpointList
from protocol.wire.delta_manifest import SignedDelta
from protocol.wire.manifest import Authority
from protocol.wire.pins import UnfitCheckpoint

LIST_WAIT_SECONDS = 10.0
"""Longest time an upstream may wait for its list to change before it answers."""
FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 0.1, 2.0
"""Pauses after failures of one upstream: the whole tree behind a relay waits for a version as long as it does."""


class Relay:
    """Keeps ``store`` at the newest ``versions_kept`` versions of each run that ``authorities`` names."""

    def __init__(
        self,
        store: VersionStore,
        sources: Sources,
        authorities: Mapping[int, Authority],
        versions_kept: int = DEFAULT_VERSIONS_KEPT,
        list_wait_seconds: float = LIST_WAIT_SECONDS,
    ) -> None:
        self._store, self._sources, self._authorities = store, sources, authorities
        self._versions_kept, self._list_wait_seconds = versions_kept, list_wait_seconds
        self._log = structlog.get_logger("relay")
        self._taking = threading.Lock()
        self._unfit: set[tuple[int, bytes]] = set()
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=(run, url), name=f"relay-{run}", daemon=True)
            for run in authorities
            for url in sources.urls
        ]

    def start(self) -> None:
        """Starts to follow every upstream."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the threads. Another relay over the same store resumes unfinished fetches."""
        self._stopped.set()
        self._sources.close()
        for thread in self._threads:
            thread.join(1.0)  # a thread waiting for an upstream ends with the process

    def take(self, run: int, listed: CheckpointList) -> None:
        """Fetches the listed versions that are among the newest ``versions_kept``, newest first."""
        newest = sorted(listed.checkpoints, key=lambda entry: entry.version, reverse=True)
        for entry in newest[: self._versions_kept]:
            with self._taking:
                held = {version for version, _ in self._store.checkpoints(run)}
                if len({version for version in held if version > entry.version}) < self._versions_kept:
                    self._take_fit(run, entry, listed)

    def _take_fit(self, run: int, entry: CheckpointEntry, listed: CheckpointList) -> None:
        """Fetches a version; one that no bytes can fit is given up, so that others come through."""
        if (run, entry.root) in self._unfit:
            return
        try:
            self._take_one(run, entry, listed)
        except UnfitCheckpoint as error:
            self._unfit.add((run, entry.root))
            self._log.warning("checkpoint_unfit", run=run, version=entry.version, error=str(error))

    def _take_one(self, run: int, entry: CheckpointEntry, listed: CheckpointList) -> None:
        """Fetches a version and the trainer's deltas that make it, which enter the store before it does.

        Whoever finds the version here finds them too, as soon as they are listed upstream.
        """
        deltas = self._take_deltas(run, entry, listed)
        signed = fetch_manifest(self._sources, run, entry.version, entry.root, self._authorities[run], self._store)
        if not self._store.verify(signed):
            catch_up(self._sources, signed, self._authorities[run], self._store, listed)
            fetch_chunks(self._sources, signed, self._store)
            self._store.finish(signed)
            self._log.info("checkpoint_relayed", run=run, version=entry.version, bytes=signed.manifest.size)
        for delta in deltas:
            self._complete(delta)
        self._store.retain(run, self._versions_kept)

    def _complete(self, delta: SignedDelta) -> None:
        """Fetches the frames that the relay did not need itself; gives a delta up that upstreams have no longer."""
        try:
            if not self._store.verify(delta):
                fetch_chunks(self._sources, delta, self._store)
                self._store.finish(delta)
        except Unavailable as error:
            self._store.remove(delta)
            self._log.warning("delta_not_there", run=delta.run, version=delta.delta.version, error=str(error))

    def _take_deltas(self, run: int, entry: CheckpointEntry, listed: CheckpointList) -> list[SignedDelta]:
        """Puts the manifests of the listed deltas to a version into the store, if its trainer signed them.

        Others may be anybody's, and as many as anybody likes: who wants them fetches them from who has them.
        """
        taken: list[SignedDelta] = []
        for offer in listed.deltas:
            if (offer.version, offer.target) != (entry.version, entry.root) or len(taken) == len(SPANS):
                continue
            try:
                signed, maker = fetch_delta(self._sources, run, offer, self._authorities[run], self._store)
            except (Rejected, Unavailable) as error:
                self._log.warning("delta_not_there", run=run, version=entry.version, error=str(error))
                continue
            if maker.lower() == self._authorities[run].trainer.lower():
                self._store.put_manifest(signed)
                taken.append(signed)
        return taken

    def _follow(self, run: int, url: str) -> None:
        """Loops until stopped, backing off after a failure of this upstream; other upstreams are unaffected."""
        known: str | None = None
        listed = CheckpointList(checkpoints=[])
        backoff = FIRST_BACKOFF_SECONDS
        while not self._stopped.is_set():
            try:
                answer = list_from(self._sources, url, run, self._list_wait_seconds, known)
                if answer is not None:
                    listed, known = answer
                self.take(run, listed)
                backoff = FIRST_BACKOFF_SECONDS
            except Exception as error:  # the outermost loop of this thread: any failure is retried
                if self._stopped.is_set():
                    return
                known = None
                self._log.warning("upstream_failed", run=run, upstream=url, error=repr(error))
                self._stopped.wait(backoff)
                backoff = min(backoff * 2, LONGEST_BACKOFF_SECONDS)
