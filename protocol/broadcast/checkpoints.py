"""The model directories a node holds on disk: fetched through relays, verified against chain and rules, a few kept."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from protocol.broadcast.deltas.applying import catch_up
from protocol.broadcast.fetching import fetch_chunks, fetch_file, fetch_manifest, reading
from protocol.broadcast.sources import Sources
from protocol.broadcast.version_store import VersionStore
from protocol.errors import Misconfigured, Unavailable
from protocol.files import lock
from protocol.wire.manifest import Authority, SignedManifest
from protocol.wire.pins import UnfitCheckpoint, check_contents, check_sizes
from protocol.wire.rules import Rules


@dataclass(slots=True)
class FetchRecord:
    """Versions that this process fetched, the bytes received for them, and the bytes of their files."""

    versions: int = 0
    received: int = 0
    whole: int = 0


KEPT = 6
"""Versions kept, more than are needed, while they are small: rounds that are judged late find theirs on disk."""

SPARE_BYTES = 2 << 30
"""Most bytes of versions kept beyond need."""

WAIT_SECONDS = 60.0
"""Longest wait for another process that fetches into the same folder."""

SPARE = 3
"""Versions kept beyond those that rounds in flight may still name."""

NEEDED = 2
"""Versions kept at least beyond the async level: the newest, and one being fetched."""


Progress = Callable[[int, int, int, float], None]
"""Takes a version that is being fetched, the bytes of it that have come, those of its files, and the seconds so far.

At the end of a fetch, whether it succeeded or not, the two numbers of bytes are the same.
"""


class Checkpoints:
    """Holds the model directories of one run under ``folder``; ``progress`` is told of what arrives, by any thread.

    Threads may share it. Several may hold one folder, in one process or in several: their fetches wait for one another.

        folder/runs/RUN/VERSION-ROOT/    a model directory, and the rest of a ``VersionStore``
        folder/run-RUN.lock              locked while a version is written or removed

    The root tells versions of two branches apart: after a reorganisation the same number may mean other weights.
    """

    def __init__(
        self, sources: Sources, run: int, authority: Authority, folder: Path, rules: Rules, most_bytes: int = 0
    ) -> None:
        """Keeps ``KEPT`` versions of a small model, or as many as the run's ``rules`` let rounds use.

        With ``most_bytes`` it keeps only as many as fit into them.
        """
        self.sources, self.run, self.authority, self.pins = sources, run, authority, rules.pins
        self.kept = max(KEPT, rules.async_level + SPARE)
        self._needed = rules.async_level + NEEDED
        self.store = VersionStore(folder, self._took)
        self.progress: Progress = lambda version, done, total, seconds: None
        self._arriving = 0, 0, 0, 0.0
        self._lock_file = folder / f"run-{run}.lock"
        self._most_bytes = most_bytes
        self._fetching = threading.Lock()
        self.fetched = FetchRecord()
        self._verified: dict[tuple[int, bytes], Path] = {}
        self._unfit: dict[tuple[int, bytes], str] = {}

    def directory(self, version: int, root: bytes) -> Path:
        """Returns the directory of ``version``, fetched if it is missing and verified once in this process.

        Args:
            version: version of the run's weights.
            root: its manifest root, 32 bytes, as the chain names it.

        Raises:
            Unavailable: no source has it, or another process is still fetching into the folder.
            Rejected: every source that answers offers other bytes than ``root`` promises.
            UnfitCheckpoint: the version is not what the run's rules pin. Its weights are not fetched.
        """
        named = version, root
        with self._fetching:
            if named in self._unfit:
                raise UnfitCheckpoint(self._unfit[named])
            if named not in self._verified or not self._verified[named].is_dir():
                with self._alone():
                    self._verified[named] = self._fetch(version, root)
            return self._verified[named]

    def file(self, version: int, root: bytes, name: str, most_bytes: int) -> bytes | None:
        """Returns one file of ``version``, verified, without the rest; None if the version has no such file.

        Raises:
            Unavailable: no source has it.
            Rejected: it has more than ``most_bytes``, or other bytes than ``root`` promises.
        """
        with tempfile.TemporaryDirectory() as folder:
            store = VersionStore(Path(folder))
            signed = fetch_manifest(self.sources, self.run, version, root, self.authority, store)
        return fetch_file(self.sources, signed, name, most_bytes)

    def newest(self) -> int | None:
        """Returns the newest version held, or None."""
        return max((signed.manifest.version for signed in self._held()), default=None)

    def _alone(self) -> TextIO:
        try:
            return lock(self._lock_file, WAIT_SECONDS)
        except BlockingIOError as error:
            raise Unavailable(f"another process is fetching into {self.store.directory}") from error

    def _fetch(self, version: int, root: bytes) -> Path:
        before = self.sources.received
        signed = fetch_manifest(self.sources, self.run, version, root, self.authority, self.store)
        self._arriving = version, 0, signed.manifest.size, time.monotonic()
        try:
            self._check_pins(signed)
            most = max(self.kept, len(self.store.checkpoints(self.run)))  # what is too many is removed below
            if not self.store.verify(signed):
                fetch_chunks(self.sources, signed, self.store)
            directory = self.store.finish(signed)
            self.store.retain(self.run, most)
        except UnfitCheckpoint as error:
            words = f"version {version} is no checkpoint of run {self.run}, by its trainer's fault: {error}"
            self._unfit[version, root] = words
            self.store.remove(signed)
            raise UnfitCheckpoint(words) from error
        finally:
            self._arrived()
        self.fetched.versions += 1
        self.fetched.received += self.sources.received - before
        self.fetched.whole += signed.manifest.size
        self._remove_others(signed)
        for delta in self.store.deltas(self.run):
            self.store.remove(delta)
        return directory

    def _arrived(self) -> None:
        """Tells that nothing more arrives: parts that were there before were not counted."""
        version, _, total, began = self._arriving
        self.progress(version, total, total, time.monotonic() - began)

    def _took(self, size: int) -> None:
        version, done, total, began = self._arriving
        self._arriving = version, min(done + size, total), total, began
        self.progress(version, self._arriving[1], total, time.monotonic() - began)

    def _check_pins(self, signed: SignedManifest) -> None:
        """Raises ``UnfitCheckpoint`` if the version is not what the rules pin."""
        manifest = signed.manifest
        self._fit(manifest.version, manifest.size)
        check_sizes(self.pins, {file.name: file.size for file in manifest.files})
        self._make_room(signed)
        if not self.store.verify(signed):
            room = self._most_bytes - self.kept * manifest.size if self._most_bytes else None
            catch_up(self.sources, signed, self.authority, self.store, most_bytes=room)
        check_contents(self.pins, reading(self.sources, signed, self.store))

    def _fit(self, version: int, size: int) -> None:
        """Keeps only as many versions of ``size`` bytes as the cap has room for.

        Raises:
            Misconfigured: there is no room for those that the run's async level needs.
        """
        if self.kept * size > SPARE_BYTES:
            self.kept = self._needed
        if not self._most_bytes:
            return
        room = self._most_bytes // size
        if room < self._needed:
            raise Misconfigured(
                f"version {version} of run {self.run} takes {_gib(size)} on disk, and {self._needed} versions are "
                f"needed, {_gib(size * self._needed)}; the cap is {_gib(self._most_bytes)}: raise it"
            )
        self.kept = min(self.kept, room)

    def _make_room(self, signed: SignedManifest) -> None:
        """Removes what is too many beside a version that is fetched next: unfinished ones first, then the oldest.

        Never the newest whole version, from which others may be made, and none for being of another branch: this
        version may not come.
        """
        others = [each for each in self.store.versions(self.run) if each.manifest.root != signed.manifest.root]
        whole = [each for each in others if self.store.folder(each).is_dir()]
        unfinished = [each for each in others if each not in whole]
        for each in [*unfinished, *whole[:-1]][: max(0, len(others) - (self.kept - 1))]:
            self.store.remove(each)

    def _remove_others(self, signed: SignedManifest) -> None:
        """Removes all but this version and the newest others.

        If another root of it is held, a reorganisation replaced it, and all later versions with it.
        """
        version = signed.manifest.version
        others = [each for each in self.store.versions(self.run) if each.manifest.root != signed.manifest.root]
        standing = others
        if any(each.manifest.version == version for each in others):
            standing = [each for each in others if each.manifest.version < version]
        kept = standing[max(0, len(standing) - (self.kept - 1)) :]
        for each in others:
            if each not in kept:
                self.store.remove(each)

    def _held(self) -> list[SignedManifest]:
        """Whole versions, the oldest first."""
        return [signed for signed in self.store.versions(self.run) if self.store.folder(signed).is_dir()]


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
