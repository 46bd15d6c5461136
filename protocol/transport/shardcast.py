"""SHARDCAST: weights from the trainer's origin through relays to compute nodes, every chunk verified at every hop.

    publish            model directory -> links and a signed manifest in a store (the trainer)
    fetch_checkpoint   sources -> a model directory in a store (workers, validators)

Served by ``protocol.transport.shardcast_server``, relayed by ``protocol.transport.relay``:

    GET /runs/{run}/checkpoints/latest              LatestCheckpoint
    GET /runs/{run}/checkpoints?wait=S              CheckpointList; with If-None-Match, waits for a change
    GET /runs/{run}/checkpoints/{version}?root=0x…  signed manifest, canonical JSON
    GET /chunks/{hash}                              bytes, with Range

Sources are untrusted: the manifest must be signed by the trainer and have the root that is on chain, and each chunk
must match its hash before it is written to disk, at its place in its file. Chunks kept from an interrupted fetch, or
from an earlier version, are not fetched again. A file takes no more bytes than its manifest says, however often that
names a chunk, and nothing is begun that the disk has no room for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import Rejected, Unavailable
from protocol.transport.ranges import RangeBuffer
from protocol.transport.sources import Sources
from protocol.transport.version_store import VersionStore
from protocol.wire import manifest as manifests
from protocol.wire.auth import Signer
from protocol.wire.manifest import Chunk, SignedManifest
from protocol.wire.pins import Read, UnfitCheckpoint

PARALLEL_REQUESTS = 4
DEFAULT_VERSIONS_KEPT = 8
OVERTAKE_SECONDS = 1.0
"""A chunk that takes longer than this, and than twice the usual time, is asked of another source too."""


@dataclass(frozen=True, slots=True)
class Authority:
    """Signer of a run's manifests: the ``trainer`` address of a run of this ``market`` on this chain."""

    chain_id: int
    market: str
    trainer: str


def publish(
    directory: Path,
    run: int,
    version: int,
    chain_id: int,
    market: str,
    signer: Signer,
    store: VersionStore,
    chunk_bytes: int = manifests.CHUNK_BYTES,
    versions_kept: int = DEFAULT_VERSIONS_KEPT,
) -> SignedManifest:
    """Puts the model in ``directory`` into ``store`` and returns its signed manifest, whose root goes on chain.

    The files are read once, to be hashed; the store links them, so that ``directory`` must not be changed in place.
    They go in before the manifest, so that an origin over the same store lists only what it can serve. Idempotent.
    """
    manifest = manifests.from_directory(directory, version, chunk_bytes)
    signed = manifests.sign(manifest, run, chain_id, market, signer)
    store.take(signed, directory)
    store.retain(run, versions_kept)
    return signed


def fetch_checkpoint(
    sources: Sources,
    run: int,
    version: int,
    expected_root: bytes,
    authority: Authority,
    store: VersionStore,
    versions_kept: int = DEFAULT_VERSIONS_KEPT,
) -> Path:
    """Fetches ``version`` into ``store`` and returns its directory there, which appears whole or not at all.

    One that is there already is verified, and what is damaged is fetched again. Chunks that other versions in ``store``
    hold are taken from these, the others from ``sources``, several at once.

    Raises:
        Rejected: every source that answered sent another manifest than ``expected_root`` (32 bytes, from the chain), or
            one that the trainer did not sign.
        Unavailable: no source has the manifest, or one of the chunks; or the disk has no room for them.
        UnfitCheckpoint: a chunk has another size than the manifest says.
    """
    signed = fetch_manifest(sources, run, version, expected_root, authority, store)
    if not store.verify(signed):
        fetch_chunks(sources, signed, store)
    directory = store.finish(signed)
    store.retain(run, versions_kept)
    return directory


def fetch_manifest(
    sources: Sources, run: int, version: int, root: bytes, authority: Authority, store: VersionStore
) -> SignedManifest:
    """Returns the signed manifest with this root from ``store``, else from a source; then it is in ``store``.

    Raises:
        Rejected: every source that answered sent another manifest, or one that the trainer did not sign.
        Unavailable: none sent a valid one, and some did not answer.
    """
    signed = store.manifest(run, version, root)
    if signed is None:
        signed = _manifest_from_any(sources, run, version, root, authority)
        store.put_manifest(signed)
    return signed


def _manifest_from_any(sources: Sources, run: int, version: int, root: bytes, authority: Authority) -> SignedManifest:
    tried: list[str] = []
    faults: list[Rejected | Unavailable] = []
    while (url := sources.choose(tried)) is not None:
        tried.append(url)
        try:
            return _manifest_from(sources, url, run, version, root, authority)
        except Rejected as fault:
            sources.lied(url)
            faults.append(fault)
        except Unavailable as fault:
            faults.append(fault)
    unreached = [fault for fault in faults if isinstance(fault, Unavailable)]
    raise (unreached or faults)[0]


def fetch_chunks(sources: Sources, signed: SignedManifest, store: VersionStore) -> None:
    """Fetches the missing chunks of a version into ``store``, in order, several at once.

    A source that is much slower than the others is overtaken: its chunk is asked of another one, and whichever comes
    first counts.

    Raises:
        Unavailable: no source has one of the chunks, or the disk has no room.
        UnfitCheckpoint: a chunk has another size than the manifest says.
    """
    missing = store.missing(signed)
    if not missing:
        return
    queue = _Queue(missing, overtake=len(sources.urls) > 1)
    for _ in range(min(PARALLEL_REQUESTS, len(missing))):
        threading.Thread(target=_work, args=(queue, sources, signed, store), name="shardcast", daemon=True).start()
    queue.wait()


def _work(queue: _Queue, sources: Sources, signed: SignedManifest, store: VersionStore) -> None:
    buffer = bytearray(queue.largest)
    while (taken := queue.take()) is not None:
        try:
            fetch_chunk(sources, signed, taken.chunk, store, buffer, taken)
        except BaseException as error:  # raised again by the thread that waits
            queue.failed(taken, error)
        else:
            queue.fetched(taken)


@dataclass(slots=True, eq=False)
class _Taken:
    """A chunk that is being fetched: when that began, from which source now, and by how many threads."""

    chunk: Chunk
    since: float
    threads: int = 1
    url: str | None = None
    avoided: str | None = None


class _Queue:
    """The chunks of one fetch: which are next, which are being fetched, and whether all are there."""

    def __init__(self, missing: Sequence[Chunk], overtake: bool) -> None:
        self.largest = max(chunk.size for chunk in missing)
        self._next, self._left, self._overtake = deque(missing), len(missing), overtake
        self._running: dict[bytes, _Taken] = {}
        self._seconds: list[float] = []
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def take(self) -> _Taken | None:
        """Returns the next chunk, or one whose source is slow; None once nothing is left to do."""
        with self._changed:
            while not self._over():
                if self._next:
                    chunk = self._next.popleft()
                    taken = self._running[chunk.hash] = _Taken(chunk, time.monotonic())
                    return taken
                if (slow := self._slowest()) is not None:
                    slow.threads += 1
                    return _Taken(slow.chunk, slow.since, avoided=slow.url)
                self._changed.wait(OVERTAKE_SECONDS / 4)
            return None

    def fetched(self, taken: _Taken) -> None:
        """Notes that a chunk is in the store."""
        with self._changed:
            if self._running.pop(taken.chunk.hash, None) is not None:
                self._left -= 1
                self._seconds.append(time.monotonic() - taken.since)
            self._changed.notify_all()

    def failed(self, taken: _Taken, error: BaseException) -> None:
        """Notes that a chunk did not come; another thread may still bring it."""
        with self._changed:
            running = self._running.get(taken.chunk.hash)
            if running is not None:
                running.threads -= 1
                if running.threads == 0:
                    self._error = self._error or error
                    del self._running[taken.chunk.hash]
            self._changed.notify_all()

    def wait(self) -> None:
        """Returns once all chunks are there; raises what prevented it, once no other chunk is on its way."""
        with self._changed:
            while self._left and not (self._error and not self._running):
                self._changed.wait()
        if self._error is not None:
            raise self._error

    def _over(self) -> bool:
        return self._left == 0 or self._error is not None

    def _slowest(self) -> _Taken | None:
        """Returns the chunk that has been on its way for much longer than others took, and by one thread only."""
        alone = [each for each in self._running.values() if each.threads == 1 and each.url is not None]
        if not self._overtake or not alone or not self._seconds:
            return None
        slowest = min(alone, key=lambda each: each.since)
        usual = max(OVERTAKE_SECONDS, 2 * sum(self._seconds) / len(self._seconds))
        return slowest if time.monotonic() - slowest.since > usual else None


def reading(sources: Sources, signed: SignedManifest, store: VersionStore) -> Read:
    """Returns a function that reads parts of a version's files, verified, fetching no more chunks than they lie in."""
    chunk_bytes = signed.manifest.chunk_bytes
    chunks: dict[str, list[Chunk]] = {file.name: [] for file in signed.manifest.files}
    for chunk in signed.manifest.chunks():
        chunks[chunk.file].append(chunk)
    store.verify(signed)  # makes the place for what is missing

    def read(name: str, start: int, size: int) -> bytes:
        first, last = start // chunk_bytes, -(-(start + size) // chunk_bytes)
        parts = [_read_chunk(sources, signed, chunk, store) for chunk in chunks[name][first:last]]
        offset = start - first * chunk_bytes
        return b"".join(parts)[offset : offset + size]

    return read


def _read_chunk(sources: Sources, signed: SignedManifest, chunk: Chunk, store: VersionStore) -> bytes:
    data = store.read(chunk.hash)
    if data is None:
        fetch_chunk(sources, signed, chunk, store, bytearray(chunk.size))
        data = store.read(chunk.hash)
    if data is None:
        raise Unavailable(f"chunk {chunk.hash.hex()[:16]} is damaged on disk and must be fetched again")
    return data


def fetch_chunk(
    sources: Sources,
    signed: SignedManifest,
    chunk: Chunk,
    store: VersionStore,
    buffer: bytearray,
    taken: _Taken | None = None,
) -> None:
    """Fetches a chunk of a version into ``store`` through ``buffer``.

    If a source breaks off, the next resumes where it stopped.
    """
    tried: set[str] = set() if taken is None or taken.avoided is None else {taken.avoided}
    part = RangeBuffer(memoryview(buffer)[: chunk.size])
    fault: Exception = Unavailable("no source")
    while (url := sources.choose(tried)) is not None:
        tried.add(url)
        if taken is not None:
            taken.url = url
        whole = part.filled == 0
        try:
            sources.download(url, f"/chunks/{chunk.hash.hex()}", part)
            return store.put(signed, chunk.hash, part.received)
        except UnfitCheckpoint:
            raise
        except Rejected as error:
            fault = error
            part.filled = 0
            if whole:
                sources.lied(url)
            else:
                tried.discard(url)  # the wrong part may be from an earlier source: ask this one for the whole chunk
        except Unavailable as error:
            fault = error
            if part.filled >= chunk.size:
                part.filled = 0  # broken off after the last byte: no range is left to request from the next source
    raise Unavailable(f"no source has chunk {chunk.hash.hex()[:16]} of {chunk.file}: {fault}")


def _manifest_from(
    sources: Sources, url: str, run: int, version: int, root: bytes, authority: Authority
) -> SignedManifest:
    path = f"/runs/{run}/checkpoints/{version}?root=0x{root.hex()}"
    answer = sources.get(url, path, manifests.MAX_MANIFEST_BYTES)
    signed = manifests.parse_signed(answer[0] if answer else b"")
    if (signed.run, signed.manifest.version) != (run, version):
        raise Rejected(f"{url} sent the manifest of run {signed.run} version {signed.manifest.version} for {path}")
    if signed.manifest.root != root:
        raise Rejected(f"{url} sent a manifest with root {signed.manifest.root.hex()}, on chain is {root.hex()}")
    signed.verify(authority.chain_id, authority.market, authority.trainer)
    return signed
