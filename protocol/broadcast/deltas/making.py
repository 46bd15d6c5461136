"""Deltas between two versions that are whole on this disk, encoded frame by frame.

Only safetensors files are encoded: a tensor is made from the one of the same name, format and size in the base,
whichever file holds it. Files of other kinds are small or never change, and are fetched as they are.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from protocol.broadcast.deltas.frames import SPAN_BYTES, Bytes, SharedRange, encode
from protocol.broadcast.version_store import VersionStore
from protocol.errors import Rejected, Unavailable, accessing
from protocol.files import read_at
from protocol.wire import delta_manifest
from protocol.wire.auth import Signer
from protocol.wire.delta_manifest import FRAMES_FILE, DeltaFrame, DeltaManifest, SignedDelta
from protocol.wire.manifest import HASHING_THREADS, Authority, Chunk, Manifest, SignedManifest, hash_chunk
from protocol.wire.safetensors_header import LENGTH_BYTES, WIDTHS, StoredTensor, head_bytes, parse_head

SPANS = (1, 2, 4, 8)
"""Versions that a delta leads on: a node that is k behind needs at most as many deltas as k has binary digits."""
LARGEST_SHARE = 0.75
"""A delta that is larger than this share of what it makes is not worth a second way to fetch it."""
SHIFTS = {"BF16": 7, "F16": 10, "F32": 23, "F64": 55, "F8_E4M3": 3, "F8_E5M2": 2}
"""Bits of the mantissa by format, or as many as leave a class below 256."""
ONE_CLASS = 63


class ThreadMemory:
    """Memory that each thread uses again: the system takes longer to give new pages than a frame to be applied."""

    def __init__(self) -> None:
        self._local = threading.local()

    def of(self, size: int) -> Bytes:
        """Returns ``size`` bytes of no meaning, which are the thread's until it asks again."""
        memory: Bytes | None = getattr(self._local, "memory", None)
        if memory is None or len(memory) < size:
            memory = self._local.memory = np.empty(size, np.uint8)
        return memory[:size]


class WholeVersion:
    """A version whose files are whole in a directory."""

    def __init__(self, manifest: Manifest, directory: Path) -> None:
        self.manifest, self.directory, self._memory = manifest, directory, ThreadMemory()

    def read(self, file: int, offset: int, size: int) -> Bytes:
        """Returns bytes of a file, counted by name, which are the thread's until its next call.

        Raises:
            Unavailable: the file has fewer.
        """
        path = self.directory / self.manifest.files[file].name
        data = self._memory.of(size)
        with accessing(f"read {path}", Unavailable), path.open("rb", buffering=0) as opened:
            if read_at(opened.fileno(), data.data, offset) < size:
                raise Unavailable(f"{path} is shorter than its manifest says")
        return data

    def heads(self) -> Iterator[tuple[int, int, dict[str, StoredTensor]]]:
        """Yields the index of every file of tensors, the bytes of its header, and its tensors by name.

        A file whose header is not valid is left out.
        """
        for index, file in enumerate(self.manifest.files):
            if not file.name.endswith(".safetensors") or file.size < LENGTH_BYTES:
                continue
            try:
                size = head_bytes(self.read(index, 0, LENGTH_BYTES).tobytes(), file.size)
                held = parse_head(self.read(index, 0, size).tobytes(), file.size, WIDTHS)
            except Rejected:
                continue
            yield index, size, held


def make_delta(
    store: VersionStore,
    base: SignedManifest,
    target: SignedManifest,
    directory: Path,
    authority: Authority,
    signer: Signer,
    largest_share: float = LARGEST_SHARE,
) -> SignedDelta | None:
    """Makes the delta that leads from a version in ``store`` to the one in ``directory``, and puts it into ``store``.

    Returns None, and keeps nothing, if it would be larger than ``largest_share`` of the version or no tensor changed.

    Raises:
        Unavailable: the base is no longer in the store, or the disk is full.
    """
    before, after = WholeVersion(base.manifest, store.folder(base)), WholeVersion(target.manifest, directory)
    with store.workplace(target.run) as folder:
        with accessing(f"write to {folder}", Unavailable), (folder / FRAMES_FILE).open("xb") as made:
            frames = []
            limit = largest_share * target.manifest.size
            for frame, data in _frames(before, after):
                frames.append(frame)
                limit -= made.write(data)
                if limit < 0:
                    return None
        if not frames:
            return None
        delta = DeltaManifest(
            target.manifest.version, target.manifest.root, base.manifest.version, base.manifest.root, tuple(frames)
        )
        signed = delta_manifest.sign(delta, target.run, authority.chain_id, authority.market, signer)
        store.take(signed, folder)
    return signed


def _frames(before: WholeVersion, after: WholeVersion) -> Iterator[tuple[DeltaFrame, bytes]]:
    """Yields the frames of a delta in order, each with its bytes; several threads encode."""
    parts = _shared_parts(before, after)
    known = {chunk.hash for chunk in before.manifest.chunks()}

    def encoded(group: tuple[int, int, list[Chunk]]) -> tuple[DeltaFrame, bytes]:
        index, first, chunks = group
        start, end = chunks[0].offset, chunks[-1].offset + chunks[-1].size
        data = encode(after.read(index, start, end - start), start, parts[index], before.read)
        return DeltaFrame(chunks[0].file, first, len(chunks), len(data), hash_chunk(data)), data

    with ThreadPoolExecutor(HASHING_THREADS, "encoding") as pool:
        begun: deque[Future[tuple[DeltaFrame, bytes]]] = deque()
        for group in _groups(after.manifest, parts, known):
            begun.append(pool.submit(encoded, group))
            if len(begun) > 2 * HASHING_THREADS:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


def _groups(
    manifest: Manifest, parts: Mapping[int, list[SharedRange]], known: set[bytes]
) -> Iterator[tuple[int, int, list[Chunk]]]:
    """Yields what one frame makes: a file's index, the index of the first chunk, and the chunks."""
    each = max(1, SPAN_BYTES // manifest.chunk_bytes)
    for index in parts:
        chunks = list(manifest.chunks_of(manifest.files[index]))
        for first in range(0, len(chunks), each):
            group = chunks[first : first + each]
            if any(chunk.hash not in known for chunk in group):
                yield index, first, group


def _shared_parts(before: WholeVersion, after: WholeVersion) -> dict[int, list[SharedRange]]:
    """Returns the parts of each file of ``after``, by its index, that headers and tensors of ``before`` lead to."""
    heads: dict[tuple[str, int], int] = {}
    tensors: dict[tuple[str, str, int], tuple[int, int]] = {}
    for index, head, held in before.heads():
        heads[before.manifest.files[index].name, head] = index
        for name, tensor in held.items():
            tensors[name, tensor.dtype, tensor.size] = index, head + tensor.data_offsets[0]
    found: dict[int, list[SharedRange]] = {}
    for index, head, held in after.heads():
        parts = found[index] = []
        if (base := heads.get((after.manifest.files[index].name, head))) is not None:
            parts.append(SharedRange(0, head, base, 0, 1, ONE_CLASS))
        for name, tensor in held.items():
            place = tensors.get((name, tensor.dtype, tensor.size))
            if place is not None and tensor.size:
                width, shift = WIDTHS[tensor.dtype], SHIFTS.get(tensor.dtype, ONE_CLASS)
                parts.append(SharedRange(head + tensor.data_offsets[0], tensor.size, *place, width, shift))
    return {index: list(_joined(parts)) for index, parts in found.items() if parts}


def _joined(parts: Iterable[SharedRange]) -> Iterator[SharedRange]:
    """Joins parts that follow each other in both versions, so that a frame of many small tensors is one section."""
    last: SharedRange | None = None
    for part in parts:
        if last is not None and part == SharedRange(
            last.start + last.size, part.size, last.file, last.offset + last.size, last.width, last.shift
        ):
            last = SharedRange(last.start, last.size + part.size, last.file, last.offset, last.width, last.shift)
            continue
        if last is not None:
            yield last
        last = part
    if last is not None:
        yield last
