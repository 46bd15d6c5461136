"""Versions in an object store (``protocol.transport.objects``).

    runs/RUN/list                         CheckpointList
    runs/RUN/checkpoints/VERSION/0xROOT   signed manifest, canonical JSON
    runs/RUN/deltas/0xROOT                signed delta, canonical JSON
    chunks/HASH                           bytes of a chunk or frame

It is a source like any other, and trusted as little.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection

from protocol.broadcast.listing import listed
from protocol.broadcast.ranges import RangeBuffer
from protocol.broadcast.version_store import Signed, VersionStore
from protocol.errors import Rejected, Unavailable
from protocol.transport.objects import Objects
from protocol.wire.delta_manifest import SignedDelta

PIECE_BYTES = 1 << 20
"""Bytes that are asked for in one range."""
LOOK_SECONDS = 1.0
"""Time between two looks at a list that somebody waits for."""


class ObjectStore(Objects):
    """A source of versions. Threads may share it."""

    def get(self, path: str, limit: int, known: str | None = None) -> tuple[bytes, str] | None:
        """Returns a small object and its ETag; None if it still has the ETag ``known``, after the time a path waits.

        Raises:
            NotThere: there is no such object.
            Unavailable: the store does not answer.
            Rejected: the object has more than ``limit`` bytes.
        """
        key, wait = _key(path)
        give_up = time.monotonic() + wait
        while (found := self.head(key)).tag == known:
            if time.monotonic() >= give_up:
                return None
            time.sleep(min(LOOK_SECONDS, max(0.0, give_up - time.monotonic())))
        if found.size > limit:
            raise Rejected(f"{self.url}/{key} has more than {limit} bytes")
        return self.read(key), found.tag

    def receive(self, path: str, part: RangeBuffer, arrived: Callable[[int], None]) -> None:
        """Receives what ``part`` lacks of the object at ``path``; ``arrived`` is told of each piece's bytes.

        Raises:
            NotThere, Unavailable: as ``get``; what arrived stays in ``part``.
        """
        key, _ = _key(path)
        while part.filled < len(part.memory):
            data = self.read_range(key, part.filled, min(part.filled + PIECE_BYTES, len(part.memory)))
            if not data:
                raise Unavailable(f"{self.url}/{key} is shorter than its manifest says")
            part.memory[part.filled : part.filled + len(data)] = data
            part.add(len(data))
            arrived(len(data))


def mirror(store: VersionStore, runs: Collection[int], objects: ObjectStore) -> int:
    """Puts what ``store`` holds whole of these ``runs`` into ``objects``, and removes all else; returns bytes written.

    Chunks come before the manifests that name them, and manifests before the list, so that readers find what it lists.

    Raises:
        Unavailable: the object store fails; the next call goes on.
    """
    whole = {run: [signed for signed in store.stored(run) if store.folder(signed).is_dir()] for run in runs}
    chunks = {chunk.hash for held in whole.values() for signed in held for chunk in signed.manifest.chunks()}
    before, written = objects.keys("chunks"), 0
    for digest in chunks:
        key = f"chunks/{digest.hex()}"
        if key not in before and (data := store.read(digest)) is not None:
            objects.put(key, data)
            written += len(data)
    for run, held in whole.items():
        keys, there = {_name(signed): signed.canonical for signed in held}, objects.keys(f"runs/{run}")
        for key in keys.keys() - there:
            objects.put(key, keys[key])
        names = {signed.manifest.root for signed in held}
        every = listed(store, run)
        told = every.model_copy(
            update={
                "checkpoints": [each for each in every.checkpoints if each.root in names],
                "deltas": [each for each in every.deltas if each.delta in names],
            }
        )
        objects.put(_list_key(run), told.model_dump_json().encode())
        objects.delete(there - keys.keys() - {_list_key(run)})
    objects.delete(before - {f"chunks/{digest.hex()}" for digest in chunks})
    return written


def _list_key(run: int) -> str:
    return f"runs/{run}/list"


def _name(signed: Signed) -> str:
    root = f"0x{signed.manifest.root.hex()}"
    if isinstance(signed, SignedDelta):
        return f"runs/{signed.run}/deltas/{root}"
    return f"runs/{signed.run}/checkpoints/{signed.manifest.version}/{root}"


def _key(path: str) -> tuple[str, float]:
    """Returns the key of a server's path, and the seconds for which it waits for a change."""
    plain, _, query = path.lstrip("/").partition("?")
    if found := re.fullmatch(r"root=(0x[0-9a-f]{64})", query):
        return f"{plain}/{found[1]}", 0.0
    if run := re.fullmatch(r"runs/(\d+)/checkpoints", plain):
        wait = re.fullmatch(r"wait=([0-9.]+)", query)
        return _list_key(int(run[1])), float(wait[1]) if wait else 0.0
    return plain, 0.0
