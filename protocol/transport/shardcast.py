"""SHARDCAST: weights from the trainer's origin through relays to compute nodes, every chunk verified at every hop.

    publish            model directory -> chunks and a signed manifest in a store (the trainer)
    fetch_checkpoint   sources -> chunks in a store -> a model directory (workers, validators, trainer)

Served by ``protocol.transport.shardcast_server``, relayed by ``protocol.transport.relay``:

    GET /runs/{run}/checkpoints/latest              LatestCheckpoint
    GET /runs/{run}/checkpoints?wait=S              CheckpointList; with If-None-Match, waits for a change
    GET /runs/{run}/checkpoints/{version}?root=0x…  signed manifest, canonical JSON
    GET /chunks/{hash}                              bytes, with Range

Sources are untrusted: the manifest must be signed by the trainer and have the root that is on chain, and each chunk
must match its hash before it is written to disk. Chunks kept from an interrupted fetch, or from an earlier version, are
not fetched again. A file takes no more bytes than its manifest says, however often that names a chunk, and nothing is
begun that the disk has no room for.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from protocol.errors import Rejected, Unavailable, accessing
from protocol.transport.chunks import ChunkStore
from protocol.transport.sources import Sources
from protocol.wire import manifest as manifests
from protocol.wire.auth import Signer
from protocol.wire.manifest import Chunk, Manifest, SignedManifest
from protocol.wire.pins import Read, UnfitCheckpoint

PARALLEL_REQUESTS = 4
DEFAULT_VERSIONS_KEPT = 8
SPARE_BYTES = 64 << 20
"""Bytes of the disk that are left to others: journals must be written still."""


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
    store: ChunkStore,
    chunk_bytes: int = manifests.CHUNK_BYTES,
    versions_kept: int = DEFAULT_VERSIONS_KEPT,
) -> SignedManifest:
    """Puts the model in ``directory`` into ``store`` and returns its signed manifest, whose root goes on chain.

    Chunks go in before the manifest, so that an origin over the same store lists only what it can serve. Idempotent.
    """
    manifest = manifests.from_directory(directory, version, chunk_bytes)
    for file in manifest.files:
        with (directory / file.name).open("rb") as stream:
            for digest in file.chunks:
                store.put(digest, stream.read(chunk_bytes))
    signed = manifests.sign(manifest, run, chain_id, market, signer)
    store.put_manifest(signed)
    store.retain(run, versions_kept)
    return signed


def fetch_checkpoint(
    sources: Sources,
    run: int,
    version: int,
    expected_root: bytes,
    authority: Authority,
    store: ChunkStore,
    destination: Path,
    old_directories: Sequence[Path] = (),
    versions_kept: int = DEFAULT_VERSIONS_KEPT,
) -> Path:
    """Fetches ``version`` into the directory ``destination``, which appears complete or not at all, and returns it.

    Chunks are taken from ``store``, then from ``old_directories`` (earlier versions, or the run's first model), then
    from ``sources``, several at once.

    Raises:
        Rejected: every source that answered sent another manifest than ``expected_root`` (32 bytes, from the chain), or
            one that the trainer did not sign.
        Unavailable: no source has the manifest, or one of the chunks; or the disk has no room for them.
        UnfitCheckpoint: a chunk has another size than the manifest says.
    """
    signed = fetch_manifest(sources, run, version, expected_root, authority, store)
    if not _holds(destination, signed.manifest):
        for directory in old_directories:
            _adopt(directory, signed.manifest, store)
        fetch_chunks(sources, signed.manifest, store)
        _assemble(signed.manifest, store, destination)
    store.retain(run, versions_kept)
    return destination


def restore(store: ChunkStore, run: int, version: int, root: bytes, destination: Path) -> Path:
    """Writes a version from ``store`` to ``destination``; raises `Unavailable` if the store has dropped it."""
    signed = store.manifest(run, version, root)
    if signed is None or store.missing(signed.manifest):
        raise Unavailable(f"the weights of version {version} of run {run} are no longer stored here")
    _assemble(signed.manifest, store, destination)
    return destination


def fetch_manifest(
    sources: Sources, run: int, version: int, root: bytes, authority: Authority, store: ChunkStore
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


def fetch_chunks(sources: Sources, manifest: Manifest, store: ChunkStore) -> None:
    """Fetches the missing chunks of ``manifest`` into ``store``, in order, several at once; raises `Unavailable`."""
    missing = store.missing(manifest)
    if not missing:
        return
    _check_room(store.directory, sum(chunk.size for chunk in missing))
    with ThreadPoolExecutor(min(PARALLEL_REQUESTS, len(missing)), "shardcast") as pool:
        futures = [pool.submit(fetch_chunk, sources, chunk, store) for chunk in missing]
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        pool.shutdown(cancel_futures=True)
    for future in done:
        future.result()


def reading(sources: Sources, manifest: Manifest, store: ChunkStore, held: Path) -> Read:
    """Returns a function that reads parts of a version's files, verified, fetching no more chunks than they lie in.

    Chunks are taken from ``store``, then from ``held``, a directory that may hold the version, then from ``sources``.
    """
    chunks: dict[str, list[Chunk]] = {file.name: [] for file in manifest.files}
    for chunk in manifest.chunks():
        chunks[chunk.file].append(chunk)

    def read(name: str, start: int, size: int) -> bytes:
        first, last = start // manifest.chunk_bytes, -(-(start + size) // manifest.chunk_bytes)
        parts = [_read_chunk(sources, chunk, store, held) for chunk in chunks[name][first:last]]
        offset = start - first * manifest.chunk_bytes
        return b"".join(parts)[offset : offset + size]

    return read


def _read_chunk(sources: Sources, chunk: Chunk, store: ChunkStore, held: Path) -> bytes:
    data = store.read(chunk.hash)
    if data is None:
        with contextlib.suppress(OSError), (held / chunk.file).open("rb") as file:
            file.seek(chunk.offset)
            if manifests.hash_chunk(data := file.read(chunk.size)) == chunk.hash:
                return _sized(data, chunk)
        fetch_chunk(sources, chunk, store)
    return _chunk(store, chunk)


def fetch_chunk(sources: Sources, chunk: Chunk, store: ChunkStore) -> None:
    """Fetches one chunk into ``store``. If a source breaks off, the next one resumes where it stopped."""
    tried: set[str] = set()
    data = bytearray()
    fault: Exception = Unavailable("no source")
    while (url := sources.choose(tried)) is not None:
        tried.add(url)
        whole = not data
        try:
            sources.download(url, f"/chunks/{chunk.hash.hex()}", data, chunk.size)
            store.put(chunk.hash, bytes(data))
            return
        except Rejected as error:
            fault = error
            data.clear()
            if whole:
                sources.lied(url)
            else:
                tried.discard(url)  # the wrong part may be from an earlier source: ask this one for the whole chunk
        except Unavailable as error:
            fault = error
            if len(data) >= chunk.size:
                data.clear()  # broken off after the last byte: no range is left to request from the next source
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


def _holds(directory: Path, manifest: Manifest) -> bool:
    """Returns whether ``directory`` holds exactly the files of ``manifest``, byte for byte."""
    if not directory.is_dir() or not any(directory.iterdir()):
        return False
    return manifests.from_directory(directory, manifest.version, manifest.chunk_bytes) == manifest


def _adopt(directory: Path, manifest: Manifest, store: ChunkStore) -> None:
    """Copies chunks shared with an earlier version; skips the rest of a file at its first chunk that differs."""
    missing = {chunk.hash for chunk in store.missing(manifest)}
    for file in manifest.files:
        if not missing.intersection(file.chunks) or not (directory / file.name).is_file():
            continue
        with (directory / file.name).open("rb") as stream:
            for digest in file.chunks:
                data = stream.read(manifest.chunk_bytes)
                if manifests.hash_chunk(data) != digest:
                    break
                store.put(digest, data)


def _assemble(manifest: Manifest, store: ChunkStore, destination: Path) -> None:
    """Writes the files beside ``destination``, then renames the directory into place."""
    mark = uuid.uuid4().hex
    partial = destination.with_name(f".{destination.name}.{mark}.partial")
    old = destination.with_name(f".{destination.name}.{mark}.old")
    with accessing(f"write {destination}", Unavailable), contextlib.ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, partial, ignore_errors=True)
        cleanup.callback(shutil.rmtree, old, ignore_errors=True)
        partial.mkdir(parents=True)
        _check_room(partial, manifest.size)
        for file in manifest.files:
            (partial / file.name).touch()
        for name, chunks in groupby(manifest.chunks(), attrgetter("file")):
            with (partial / name).open("wb") as stream:
                for chunk in chunks:
                    stream.write(_chunk(store, chunk))
        if destination.exists():
            os.replace(destination, old)
        os.replace(partial, destination)


def _chunk(store: ChunkStore, chunk: Chunk) -> bytes:
    data = store.read(chunk.hash)
    if data is None:
        raise Unavailable(f"chunk {chunk.hash.hex()[:16]} is damaged on disk and must be fetched again")
    return _sized(data, chunk)


def _sized(data: bytes, chunk: Chunk) -> bytes:
    """Returns verified bytes; raises ``UnfitCheckpoint`` if the manifest says that the chunk has another size."""
    if len(data) != chunk.size:
        raise UnfitCheckpoint(
            f"chunk {chunk.hash.hex()[:16]} of {chunk.file} has {len(data)} bytes, the manifest says {chunk.size}"
        )
    return data


def _check_room(directory: Path, needed: int) -> None:
    """Raises ``Unavailable`` if ``directory`` has no room for so many bytes and `SPARE_BYTES`."""
    with accessing(f"write to {directory}", Unavailable):
        free = shutil.disk_usage(directory).free
    if needed + SPARE_BYTES > free:
        raise Unavailable(
            f"a version needs {needed} bytes in {directory}, where {free} are free: make room, or move the state folder"
        )
