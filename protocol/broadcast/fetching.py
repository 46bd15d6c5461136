"""Requests to the sources of a run: lists, manifests, deltas and chunks, each verified before it is kept.

A file takes no more bytes than its manifest says, however often that names a chunk, and nothing is begun that the disk
has no room for.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from protocol.broadcast.chunk_queue import ChunkQueue, TakenChunk
from protocol.broadcast.ranges import RangeBuffer
from protocol.broadcast.sources import Sources
from protocol.broadcast.version_store import Signed, VersionStore
from protocol.errors import Rejected, Unavailable
from protocol.wire import delta_manifest
from protocol.wire import manifest as manifests
from protocol.wire.api import CheckpointList, DeltaEntry
from protocol.wire.canonical import validating
from protocol.wire.delta_manifest import SignedDelta
from protocol.wire.manifest import MAX_MANIFEST_BYTES, Authority, Chunk, SignedManifest
from protocol.wire.pins import Read, UnfitCheckpoint

LIST_BYTES = 1 << 20

_T = TypeVar("_T")
Arrived = Callable[[Chunk, memoryview], object]
"""Takes a chunk and its verified bytes, which are valid during the call."""


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
        signed = _from_any(sources, lambda url: _manifest_from(sources, url, run, version, root, authority))
        store.put_manifest(signed)
    return signed


class OtherDelta(Unavailable):
    """A delta that is not what a list says of it, or not by the maker that is asked for: the list's fault."""


def fetch_delta(
    sources: Sources, run: int, entry: DeltaEntry, authority: Authority, store: VersionStore, maker: str | None = None
) -> SignedDelta:
    """Returns the delta that ``entry`` lists, by ``maker`` if given, from ``store`` or a source; does not store it.

    Raises:
        Rejected: every source that answered sent another delta, or nobody has signed it.
        Unavailable: none sent a valid one, and some did not answer; or the list says of it what is not so.
    """

    def checked(signed: SignedDelta) -> SignedDelta:
        found = signed.maker(authority.chain_id, authority.market)
        if maker is not None and found.lower() != maker.lower():
            raise OtherDelta(f"the delta 0x{entry.delta.hex()} is signed by {found}, not by {maker}")
        delta = signed.delta
        if (delta.version, delta.target, delta.base, delta.size) != (
            entry.version,
            entry.target,
            entry.base,
            entry.size,
        ):
            raise OtherDelta(f"the delta 0x{entry.delta.hex()} is not what a list says of it")
        return signed

    held = store.delta(run, entry.delta)
    if held is not None:
        with suppress(OtherDelta):
            return checked(held)
    return _from_any(sources, lambda url: checked(_delta_from(sources, url, run, entry.delta)))


def fetch_list(sources: Sources, run: int) -> CheckpointList:
    """Returns the versions and deltas that one of the sources has now.

    Raises:
        Rejected: every source that answered sent an invalid list.
        Unavailable: none sent a valid one, and some did not answer.
    """
    answer = _from_any(sources, lambda url: list_from(sources, url, run))
    return CheckpointList(checkpoints=[]) if answer is None else answer[0]


def list_from(
    sources: Sources, url: str, run: int, wait_seconds: float = 0.0, known: str | None = None
) -> tuple[CheckpointList, str] | None:
    """Returns a source's list and its ETag, or None if it still has the ETag ``known`` after ``wait_seconds``."""
    answer = sources.get(url, f"/runs/{run}/checkpoints?wait={wait_seconds}", LIST_BYTES, known)
    if answer is None:
        return None
    with validating(f"{url} sent an invalid list of checkpoints"):
        return CheckpointList.model_validate_json(answer[0]), answer[1]


def _from_any(sources: Sources, load: Callable[[str], _T]) -> _T:
    """Returns what the first source has that ``load`` can get a valid answer from."""
    tried: list[str] = []
    faults: list[Rejected | Unavailable] = []
    while (url := sources.choose(tried)) is not None:
        tried.append(url)
        try:
            return load(url)
        except Rejected as fault:
            sources.lied(url)
            faults.append(fault)
        except Unavailable as fault:
            faults.append(fault)
    unreached = [fault for fault in faults if isinstance(fault, Unavailable)]
    raise (unreached or faults)[0]


def fetch_chunks(
    sources: Sources,
    signed: Signed,
    store: VersionStore,
    wanted: Sequence[Chunk] | None = None,
    arrived: Arrived = lambda chunk, data: None,
) -> None:
    """Fetches the missing chunks of a version or delta into ``store``, in order, several at once.

    A source that is much slower than the others is overtaken: its chunk is asked of another one, and whichever comes
    first counts. ``wanted`` names the chunks, if not all are; ``arrived`` is called with each that is in the store.

    Raises:
        Unavailable: no source has one of the chunks, or the disk has no room.
        UnfitCheckpoint: a chunk has another size than the manifest says.
    """
    missing = store.missing(signed) if wanted is None else wanted
    if not missing:
        return
    queue = ChunkQueue(missing, len(sources.urls), sources.all_objects)
    work = partial(_work, queue, sources, signed, store, arrived)
    for _ in range(queue.threads):
        threading.Thread(target=work, name="shardcast", daemon=True).start()
    queue.wait()


def _work(queue: ChunkQueue, sources: Sources, signed: Signed, store: VersionStore, arrived: Arrived) -> None:
    buffer = bytearray()
    while (taken := queue.take()) is not None:
        try:
            buffer = buffer or bytearray(queue.largest)
            arrived(taken.chunk, _fetch_chunk(sources, signed, store, buffer, taken))
        except BaseException as error:  # raised again by the thread that waits
            queue.failed(taken, error)
        else:
            queue.fetched(taken)


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


def fetch_file(sources: Sources, signed: SignedManifest, name: str, most_bytes: int) -> bytes | None:
    """Returns one file of a version, verified, without the rest; None if the version has no such file.

    Raises:
        Unavailable: no source has it.
        Rejected: it has more than ``most_bytes``, or other bytes than the manifest promises.
    """
    file = next((each for each in signed.manifest.files if each.name == name), None)
    if file is None:
        return None
    if file.size > most_bytes:
        version = signed.manifest.version
        raise Rejected(f"{name} of version {version} has {file.size} bytes, expected at most {most_bytes}")
    alone = replace(signed, manifest=replace(signed.manifest, files=(file,)))  # room is made for this file only
    with tempfile.TemporaryDirectory() as folder:
        store = VersionStore(Path(folder))
        store.put_manifest(alone)
        return reading(sources, alone, store)(name, 0, file.size)


def _read_chunk(sources: Sources, signed: SignedManifest, chunk: Chunk, store: VersionStore) -> bytes:
    data = store.read(chunk.hash)
    if data is None:
        fetch_chunks(sources, signed, store, [chunk])
        data = store.read(chunk.hash)
    if data is None:
        raise Unavailable(f"chunk {chunk.hash.hex()[:16]} is damaged on disk and must be fetched again")
    return data


def _fetch_chunk(
    sources: Sources, signed: Signed, store: VersionStore, buffer: bytearray, taken: TakenChunk
) -> memoryview:
    """Fetches the chunk that was taken into ``store`` through ``buffer``, and returns its part of the buffer.

    If a source breaks off, the next resumes where it stopped.
    """
    chunk, tried = taken.chunk, set[str]() if taken.avoided is None else {taken.avoided}
    part = RangeBuffer(memoryview(buffer)[: chunk.size])
    fault: Exception = Unavailable("no source")
    while (url := sources.choose(tried)) is not None:
        tried.add(url)
        taken.url = url
        whole = part.filled == 0
        try:
            sources.download(url, f"/chunks/{chunk.hash.hex()}", part)
            store.put(signed, chunk.hash, part.received)
            return part.received
        except UnfitCheckpoint:
            raise
        except Rejected as error:
            fault = error
            part.restart()
            if whole:
                sources.lied(url)
            else:
                tried.discard(url)  # the wrong part may be from an earlier source: ask this one for the whole chunk
        except Unavailable as error:
            fault = error
            if part.filled >= chunk.size:
                part.restart()  # broken off after the last byte: no range is left to request from the next source
    raise Unavailable(f"no source has chunk {chunk.hash.hex()[:16]} of {chunk.file}: {fault}")


def _manifest_from(
    sources: Sources, url: str, run: int, version: int, root: bytes, authority: Authority
) -> SignedManifest:
    path = f"/runs/{run}/checkpoints/{version}?root=0x{root.hex()}"
    answer = sources.get(url, path, MAX_MANIFEST_BYTES)
    signed = manifests.parse_signed(answer[0] if answer else b"")
    if (signed.run, signed.manifest.version) != (run, version):
        raise Rejected(f"{url} sent the manifest of run {signed.run} version {signed.manifest.version} for {path}")
    if signed.manifest.root != root:
        raise Rejected(f"{url} sent a manifest with root {signed.manifest.root.hex()}, on chain is {root.hex()}")
    signed.verify(authority.chain_id, authority.market, authority.trainer)
    return signed


def _delta_from(sources: Sources, url: str, run: int, root: bytes) -> SignedDelta:
    answer = sources.get(url, f"/runs/{run}/deltas/0x{root.hex()}", MAX_MANIFEST_BYTES)
    signed = delta_manifest.parse_signed(answer[0] if answer else b"")
    if (signed.run, signed.delta.root) != (run, root):
        raise Rejected(f"{url} sent another delta than 0x{root.hex()}")
    return signed
