"""A relay: fetches the checkpoints that upstreams list, verifies them, and serves each chunk while the rest arrives.

One thread per run and upstream long-polls the list of checkpoints. A manifest enters the store once the trainer's
signature is verified, so that requests for its chunks wait for them; a chunk enters once its hash is verified. Nothing
unverified is ever served.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import structlog
from prometheus_client import Counter, Gauge

from protocol.broadcast.deltas.applying import catch_up
from protocol.broadcast.deltas.making import SPANS
from protocol.broadcast.fetching import OtherDelta, fetch_chunks, fetch_delta, fetch_manifest, list_from
from protocol.broadcast.object_store import ObjectStore, mirror
from protocol.broadcast.sources import Sources
from protocol.broadcast.traffic import CHUNKS, FRAMES, Traffic
from protocol.broadcast.version_store import DEFAULT_VERSIONS_KEPT, Signed, VersionStore
from protocol.errors import Rejected, Unavailable
from protocol.wire.api import CheckpointEntry, CheckpointList, DeltaEntry, PeerTraffic, StoredVersion, StoreStatus
from protocol.wire.delta_manifest import SignedDelta
from protocol.wire.manifest import Authority, SignedManifest
from protocol.wire.pins import UnfitCheckpoint

LIST_WAIT_SECONDS = 10.0
"""Longest time an upstream may wait for its list to change before it answers."""
SCRUB_SECONDS = 3600.0
"""Time between two checks of everything on disk."""
PEERS_TOLD = 20
LISTED = Gauge("assize_relay_listed_version", "Newest version that an upstream lists", ["run"])
HELD = Gauge("assize_relay_held_version", "Newest version that the relay holds whole; -1 before any", ["run"])
RECEIVED = Counter("assize_relay_received_bytes", "Bytes received from upstreams")
UPSTREAM_UP = Gauge("assize_relay_upstream_up", "1 while an upstream answers, by its place among them", ["upstream"])
DAMAGED = Counter("assize_relay_damaged", "Versions and deltas found damaged on disk")

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
        most_bytes: int = 0,
        traffic: Traffic | None = None,
        objects: ObjectStore | None = None,
    ) -> None:
        """Keeps no more versions of a run than fit into ``most_bytes``, but always the newest; 0 is no bound.

        What it holds is written to ``objects`` too, which nobody else may write to.
        """
        self._store, self._sources, self._authorities = store, sources, authorities
        self._versions_kept, self._list_wait_seconds = versions_kept, list_wait_seconds
        self._most_bytes, self._traffic = most_bytes, traffic or Traffic()
        self._objects, self._written, self._writing = objects, list[int](), threading.Lock()
        self._scrubbed_at: float | None = None
        self._damaged = 0
        self._counted, self._counting = 0, threading.Lock()
        self._log = structlog.get_logger("relay")
        self._taking = {run: threading.Lock() for run in authorities}
        self._unfit: set[tuple[int, bytes]] = set()
        self._refused: set[bytes] = set()
        self._beyond: set[tuple[int, bytes]] = set()
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=(run, url), name=f"relay-{run}", daemon=True)
            for run in authorities
            for url in sources.urls
        ]
        self._threads.append(threading.Thread(target=self._keep_scrubbing, name="scrub", daemon=True))

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
        self._show(run, listed)
        newest = sorted(listed.checkpoints, key=lambda entry: entry.version, reverse=True)
        for entry in newest[: self._versions_kept]:
            with self._taking[run]:
                if (run, entry.root) not in self._unfit | self._beyond and not self._has(run, entry, listed):
                    self._take_fit(run, entry, listed)
        with self._taking[run]:
            self._store.retain(run, self._versions_kept, self._most_bytes)
            self._write_objects()
        self._show(run, listed)

    def _show(self, run: int, listed: CheckpointList) -> None:
        """Shows to those who watch how far the relay has come, against what an upstream lists."""
        if listed.checkpoints:
            LISTED.labels(str(run)).set(max(entry.version for entry in listed.checkpoints))
        versions = [each.manifest for each in self._store.versions(run) if self._is_whole(each)]
        HELD.labels(str(run)).set(max((manifest.version for manifest in versions), default=-1))
        with self._counting:
            RECEIVED.inc(self._sources.received - self._counted)
            self._counted = self._sources.received

    def _is_whole(self, signed: SignedManifest) -> bool:
        return self._store.held_bytes(signed) >= signed.manifest.size

    def status(self, with_peers: bool) -> StoreStatus:
        """Returns what the relay holds and has moved, ``with_peers`` those that took the most."""
        versions = []
        for run in self._authorities:
            bases = [(signed.delta.target, signed.delta.base_version) for signed in self._store.deltas(run)]
            for signed in self._store.versions(run):
                version, root, size = signed.manifest.version, signed.manifest.root, signed.manifest.size
                held, deltas = self._store.held_bytes(signed), [base for target, base in bases if target == root]
                versions.append(StoredVersion(run=run, version=version, root=root, size=size, held=held, deltas=deltas))
        peers = self._traffic.peers(PEERS_TOLD) if with_peers else []
        return StoreStatus(
            versions=versions,
            received=self._sources.received,
            sent_chunks=self._traffic.by_kind[CHUNKS],
            sent_frames=self._traffic.by_kind[FRAMES],
            scrubbed_at=self._scrubbed_at,
            damaged=self._damaged,
            peers=[PeerTraffic(peer=peer, sent=sent) for peer, sent in peers],
        )

    def scrub(self) -> int:
        """Reads everything in the store again, fetches anew what is damaged, and returns how much of it was."""
        damaged = 0
        for run in self._authorities:
            for signed in self._store.stored(run):
                with self._taking[run]:
                    if self._is_damaged(signed):
                        damaged += 1
                        self._damaged += 1
                        DAMAGED.inc()
                        self._mend(signed)
        self._scrubbed_at = time.time()
        return damaged

    def _is_damaged(self, signed: Signed) -> bool:
        return self._store.folder(signed).is_dir() and not self._store.verify(signed, again=True)

    def _mend(self, signed: Signed) -> None:
        """Fetches what was damaged; what nobody has stays missing until the next list that names it."""
        self._log.warning("damaged", run=signed.run, version=signed.manifest.version)
        try:
            fetch_chunks(self._sources, signed, self._store)
            self._store.finish(signed)
        except (Rejected, Unavailable) as error:
            self._log.warning("not_mended", run=signed.run, version=signed.manifest.version, error=str(error))

    def _keep_scrubbing(self) -> None:
        while not self._stopped.wait(SCRUB_SECONDS):
            try:
                self.scrub()
            except Exception as error:  # the outermost loop of this thread: the next round tries again
                self._log.warning("scrub_failed", error=repr(error))

    def _take_fit(self, run: int, entry: CheckpointEntry, listed: CheckpointList) -> None:
        """Fetches a version; one that no bytes can fit is given up, so that others come through."""
        try:
            self._take_one(run, entry, listed)
        except UnfitCheckpoint as error:
            self._unfit.add((run, entry.root))
            self._log.warning("checkpoint_unfit", run=run, version=entry.version, error=str(error))

    def _take_one(self, run: int, entry: CheckpointEntry, listed: CheckpointList) -> None:
        """Fetches a version and the trainer's deltas that make it, which enter the store before it does.

        Whoever finds the version here finds them too, as soon as they are listed upstream. A version that would not be
        kept, by its age or for want of room, leaves nothing behind but its name among those not asked for again.
        """
        deltas = self._take_deltas(run, entry, listed)
        signed = fetch_manifest(self._sources, run, entry.version, entry.root, self._authorities[run], self._store)
        if entry.version not in self._store.kept(run, self._versions_kept, self._most_bytes):
            self._beyond.add((run, entry.root))
            self._store.retain(run, self._versions_kept, self._most_bytes)
            return
        if not self._store.verify(signed):
            catch_up(self._sources, signed, self._authorities[run], self._store, listed)
            fetch_chunks(self._sources, signed, self._store)
            self._store.finish(signed)
            self._log.info("checkpoint_relayed", run=run, version=entry.version, bytes=signed.manifest.size)
        for delta in deltas:
            self._complete(delta)
        authority = self._authorities[run]
        for other in self._store.deltas(run):  # which it has used itself
            strange = other.maker(authority.chain_id, authority.market).lower() != authority.trainer.lower()
            if strange and other.delta.target == entry.root:
                self._store.remove(other)
        self._store.retain(run, self._versions_kept, self._most_bytes)
        self._write_objects()  # before older versions are fetched

    def _write_objects(self) -> None:
        """Brings the object store up to date, if there is one; after a failure, the next time."""
        if self._objects is None:
            return
        changed = [self._store.changed_at(run) for run in self._authorities]
        if changed == self._written:
            return
        try:
            with self._writing:
                size = mirror(self._store, self._authorities.keys(), self._objects)
            self._written = changed
            self._log.info("objects_written", bytes=size)
        except Unavailable as error:
            self._log.warning("objects_not_written", error=str(error))

    def _complete(self, delta: SignedDelta) -> None:
        """Fetches the frames that the relay did not need itself; gives a delta up that upstreams have no longer."""
        try:
            if not self._store.verify(delta):
                fetch_chunks(self._sources, delta, self._store)
                self._store.finish(delta)
        except Unavailable as error:
            self._store.remove(delta)
            self._refused.add(delta.delta.root)
            self._log.warning("delta_not_there", run=delta.run, version=delta.delta.version, error=str(error))

    def _take_deltas(self, run: int, entry: CheckpointEntry, listed: CheckpointList) -> list[SignedDelta]:
        """Puts the manifests of the listed deltas to a version into the store, if its trainer signed them.

        Others may be anybody's, and as many as anybody likes: who wants them fetches them from who has them.
        """
        taken: list[SignedDelta] = []
        for offer in self._offers(entry, listed):
            authority = self._authorities[run]
            try:
                signed = fetch_delta(self._sources, run, offer, authority, self._store, authority.trainer)
            except (Rejected, Unavailable) as error:
                if isinstance(error, Rejected | OtherDelta):
                    self._refused.add(offer.delta)
                self._log.warning("delta_not_there", run=run, version=entry.version, error=str(error))
                continue
            held = self._store.delta(run, offer.delta)
            if held is not None and held != signed:  # the same frames under another signature
                self._store.remove(held)
            self._store.put_manifest(signed)
            taken.append(signed)
        return taken

    def _offers(self, entry: CheckpointEntry, listed: CheckpointList) -> list[DeltaEntry]:
        """Returns the listed deltas to a version that were not refused before."""
        offers = [offer for offer in listed.deltas if (offer.version, offer.target) == (entry.version, entry.root)]
        return [offer for offer in offers if offer.delta not in self._refused][: 2 * len(SPANS)]

    def _has(self, run: int, entry: CheckpointEntry, listed: CheckpointList) -> bool:
        """Returns whether the version is there with all deltas to it, byte for byte."""
        stored: list[Signed | None] = [self._store.manifest(run, entry.version, entry.root)]
        stored += [self._store.delta(run, offer.delta) for offer in self._offers(entry, listed)]
        return all(
            signed is not None and self._store.folder(signed).is_dir() and self._store.verify(signed)
            for signed in stored
        )

    def _follow(self, run: int, url: str) -> None:
        """Loops until stopped, backing off after a failure of this upstream; other upstreams are unaffected."""
        up = UPSTREAM_UP.labels(str(self._sources.urls.index(url) + 1))
        known: str | None = None
        listed = CheckpointList(checkpoints=[])
        backoff = FIRST_BACKOFF_SECONDS
        while not self._stopped.is_set():
            try:
                answered = False
                answer = list_from(self._sources, url, run, self._list_wait_seconds, known)
                answered = True
                up.set(1)
                if answer is not None:
                    listed, known = answer
                self.take(run, listed)
                backoff = FIRST_BACKOFF_SECONDS
            except Exception as error:  # the outermost loop of this thread: any failure is retried
                if self._stopped.is_set():
                    return
                known = None
                up.set(answered)  # one that lists versions answers, whatever becomes of their chunks
                self._log.warning("upstream_failed", run=run, upstream=url, error=repr(error))
                self._stopped.wait(backoff)
                backoff = min(backoff * 2, LONGEST_BACKOFF_SECONDS)
