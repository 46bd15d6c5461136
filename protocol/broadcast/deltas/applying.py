"""Catching up by deltas: from a version that is held to the one that is wanted, over those between if that is shorter.

Nothing here is trusted. A delta's frames are verified by their hashes, so that a source cannot spoil them, and what
they make by the wanted version's manifest, so that nobody can: a chunk that comes out wrong is fetched as it is. Its
maker, who signed the delta, is not believed again, unless the base was damaged on this disk.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from itertools import count

import structlog

from protocol.broadcast.deltas.frames import SPAN_BYTES, available, decode
from protocol.broadcast.deltas.making import ThreadMemory, WholeVersion
from protocol.broadcast.fetching import fetch_chunks, fetch_delta, fetch_list, fetch_manifest
from protocol.broadcast.sources import Sources
from protocol.broadcast.version_store import VersionStore
from protocol.errors import Rejected, Unavailable
from protocol.wire.api import CheckpointList, DeltaEntry
from protocol.wire.delta_manifest import SignedDelta
from protocol.wire.manifest import Authority, Chunk, SignedManifest

log = structlog.get_logger("deltas")


MOST_STEPS, MOST_ATTEMPTS = 4, 3
"""Deltas one after another, which lead over as many versions as 4 binary digits can name; and ways that are tried."""


class FalseDelta(Rejected):
    """A delta that does not make what its maker signed."""


def planned(held: Collection[bytes], target: bytes, offers: Iterable[DeltaEntry], most: int) -> list[DeltaEntry]:
    """Returns the deltas, at most `MOST_STEPS`, that lead from a held version to ``target`` in the fewest bytes.

    Args:
        held: manifest roots of whole versions.
        target: manifest root of the wanted version.
        offers: deltas that sources have; a lie among them costs only what is fetched for it.
        most: bytes that a way must be below.

    Returns:
        The deltas in order of use; an empty list if there is no way.
    """
    leading: dict[bytes, list[DeltaEntry]] = {}
    for offer in offers:
        leading.setdefault(offer.base, []).append(offer)
    order = count()  # ways of the same size are never compared further
    ways: list[tuple[int, int, bytes, list[DeltaEntry]]] = [(0, next(order), root, []) for root in sorted(held)]
    seen: set[tuple[bytes, int]] = set()
    while ways:
        size, _, root, way = heapq.heappop(ways)
        if root == target:
            return way
        if (root, len(way)) in seen or len(way) == MOST_STEPS:
            continue
        seen.add((root, len(way)))
        for offer in leading.get(root, ()):
            if size + offer.size < most:
                heapq.heappush(ways, (size + offer.size, next(order), offer.target, [*way, offer]))
    return []


def catch_up(
    sources: Sources,
    signed: SignedManifest,
    authority: Authority,
    store: VersionStore,
    listed: CheckpointList | None = None,
    most_bytes: int | None = None,
) -> None:
    """Makes what a version lacks from versions in ``store`` and deltas, if that needs fewer bytes than its chunks.

    What it leaves out, for whatever reason, is still missing afterwards. ``listed`` is what a source has, if known,
    ``most_bytes`` the room for deltas.
    """
    if not store.missing(signed) or not _held(store, signed):
        return
    try:
        offers = list((fetch_list(sources, signed.run) if listed is None else listed).deltas)
    except (Rejected, Unavailable) as error:
        log.warning("no_list", run=signed.run, version=signed.manifest.version, error=str(error))
        return
    if most_bytes is not None:  # there is no room for versions between
        offers = [offer for offer in offers if offer.target == signed.manifest.root]
    for _ in range(MOST_ATTEMPTS):
        most = sum(chunk.size for chunk in store.missing(signed))
        most = most if most_bytes is None else min(most, most_bytes)
        held = _held(store, signed)
        way = planned(held.keys(), signed.manifest.root, offers, most)
        if way and not available():  # asked last: the answer takes half a second
            return
        for entry in way:
            try:
                held[entry.target] = _step(sources, entry, held[entry.base], signed, authority, store, most)
            except (Rejected, Unavailable) as error:
                log.warning("delta_failed", run=signed.run, version=entry.version, error=str(error))
                offers = [offer for offer in offers if offer != entry]
                break
        else:
            return


def _step(
    sources: Sources,
    entry: DeltaEntry,
    base: SignedManifest,
    wanted: SignedManifest,
    authority: Authority,
    store: VersionStore,
    most: int,
) -> SignedManifest:
    """Applies one delta of a way to ``wanted``, and returns the version that it leads to, which is whole if not wanted.

    Raises:
        Unavailable: a version between lacks more than ``most`` bytes that the delta does not make, or the delta failed.
        Rejected: as ``apply``.
    """
    if entry.target == wanted.manifest.root:
        apply(sources, entry, base, wanted, authority, store)
        return wanted
    between = fetch_manifest(sources, wanted.run, entry.version, entry.target, authority, store)
    try:
        apply(sources, entry, base, between, authority, store)
        if entry.size + sum(chunk.size for chunk in store.missing(between)) >= most:
            raise Unavailable(f"version {entry.version} lacks more than the delta to it makes")
        fetch_chunks(sources, between, store)
        store.finish(between)
    except BaseException:
        store.remove(between)
        raise
    return between


def apply(
    sources: Sources,
    entry: DeltaEntry,
    base: SignedManifest,
    target: SignedManifest,
    authority: Authority,
    store: VersionStore,
) -> None:
    """Fetches the frames that ``target`` needs, and puts the chunks they make into ``store``, as each arrives.

    Raises:
        FalseDelta: it does not make what its maker signed. The chunks that came out right are in ``store``.
        Rejected, Unavailable: no source has the delta or one of its frames, or its maker was wrong before.
    """
    delta = fetch_delta(sources, target.run, entry, authority, store)
    maker = delta.maker(authority.chain_id, authority.market)
    if sources.doubted(maker):
        raise Rejected(f"the delta 0x{entry.delta.hex()} is by {maker}, who has signed a false one")
    if not store.verify(base):
        raise Unavailable(f"version {base.manifest.version} was damaged on this disk")
    try:
        applying = Applying(delta, base, target, store)
        store.put_manifest(delta)
        lacking = {chunk.hash for chunk in store.missing(delta)}
        needed = applying.needed()
        for frame in needed:
            if frame.hash not in lacking and (data := store.read(frame.hash)) is not None:
                applying.take(frame, memoryview(data))
        fetch_chunks(sources, delta, store, [frame for frame in needed if frame.hash in lacking], applying.take)
    except FalseDelta as error:
        store.remove(delta)
        if not store.verify(base, again=True):
            raise Unavailable(f"version {base.manifest.version} was damaged on this disk: {error}") from error
        sources.doubt(maker)
        raise FalseDelta(f"{error}; it is signed by {maker}") from error


class Applying:
    """The application of one delta. Threads may share it.

    Raises:
        FalseDelta: a frame makes chunks that the target does not have, or more of them than memory is given to.
    """

    def __init__(self, signed: SignedDelta, base: SignedManifest, target: SignedManifest, store: VersionStore) -> None:
        if (signed.delta.base, signed.delta.target) != (base.manifest.root, target.manifest.root):
            raise Unavailable("a delta between other versions")  # nobody signed that it leads from one to the other
        self._target, self._store, self._made = target, store, ThreadMemory()
        self._base = WholeVersion(base.manifest, store.folder(base))
        self._sizes = [file.size for file in base.manifest.files]
        files = {file.name: list(target.manifest.chunks_of(file)) for file in target.manifest.files}
        self._makes: dict[bytes, list[list[Chunk]]] = {}
        self._frames: dict[bytes, Chunk] = {}
        for frame, chunk in zip(signed.delta.frames, signed.delta.chunks(), strict=True):
            chunks = files.get(frame.file, [])[frame.first : frame.first + frame.count]
            most = max(SPAN_BYTES, target.manifest.chunk_bytes)
            if len(chunks) != frame.count or sum(each.size for each in chunks) > most:
                raise FalseDelta(f"invalid delta: {frame.count} chunks of {frame.file} from {frame.first} on")
            self._makes.setdefault(chunk.hash, []).append(chunks)
            self._frames.setdefault(chunk.hash, chunk)

    def needed(self) -> list[Chunk]:
        """Returns the frames, as chunks of the delta, that make a chunk the target lacks; each hash once."""
        missing = {chunk.hash for chunk in self._store.missing(self._target)}
        return [
            frame
            for frame in self._frames.values()
            if any(chunk.hash in missing for chunks in self._makes[frame.hash] for chunk in chunks)
        ]

    def take(self, frame: Chunk, data: memoryview) -> None:
        """Decodes a verified frame, and puts the chunks that it makes into the store.

        Raises:
            FalseDelta: the frame is not valid, or makes other chunks.
            Unavailable: the disk failed.
        """
        for chunks in self._makes[frame.hash]:
            made = self._made.of(sum(chunk.size for chunk in chunks))
            try:
                decode(data, made, self._sizes, self._base.read)
                for chunk in chunks:
                    start = chunk.offset - chunks[0].offset
                    self._store.put(self._target, chunk.hash, made.data[start : start + chunk.size])
            except Rejected as error:
                raise FalseDelta(f"a frame of the delta does not make what it should: {error}") from error


def _held(store: VersionStore, wanted: SignedManifest) -> dict[bytes, SignedManifest]:
    """Returns the versions of the run, other than ``wanted``, whose files are there, by manifest root."""
    whole = [each for each in store.versions(wanted.run) if store.folder(each).is_dir()]
    return {each.manifest.root: each for each in whole if each.manifest.root != wanted.manifest.root}
