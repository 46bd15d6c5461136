"""The model directories a node holds on disk: fetched through relays, verified against chain and rules, a few kept."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import TextIO

from protocol.errors import Misconfigured, Unavailable
from protocol.files import lock
from protocol.transport.chunks import ChunkStore
from protocol.transport.shardcast import Authority, fetch_checkpoint, fetch_manifest, reading
from protocol.transport.sources import Sources
from protocol.wire.pins import UnfitCheckpoint, check_contents, check_sizes
from protocol.wire.rules import Rules

KEPT = 6
"""Versions kept at least."""

WAIT_SECONDS = 60.0
"""Longest wait for another process that fetches into the same folder."""

SPARE = 3
"""Versions kept beyond those that rounds in flight may still name."""

NEEDED = 2
"""Versions kept at least beyond the async level: the newest, and one being fetched."""


class Checkpoints:
    """Holds the model directories of one run under ``folder``.

    Threads may share it. Several may hold one folder, in one process or in several: their fetches wait for one another.

        folder/chunks/…                       chunks and manifests of every run
        folder/run-RUN/VERSION-ROOT/          a model directory, ROOT being the first 16 digits of its manifest root
        folder/run-RUN.lock                   locked while a model directory is written or removed

    The root tells versions of two branches apart: after a reorganisation the same number may mean other weights.
    """

    def __init__(
        self, sources: Sources, run: int, authority: Authority, folder: Path, rules: Rules, most_bytes: int = 0
    ) -> None:
        """Keeps ``KEPT`` versions, or more if the run's ``rules`` let rounds use older ones.

        With ``most_bytes`` it keeps only as many as fit into them, each once as chunks and once as files, and removes
        what is too many before it fetches.
        """
        self.sources, self.run, self.authority, self.pins = sources, run, authority, rules.pins
        self.kept = max(KEPT, rules.async_level + SPARE)
        self._needed = rules.async_level + NEEDED
        self.folder = folder / f"run-{run}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.store = ChunkStore(folder / "chunks")
        self._most_bytes = most_bytes
        self._fetching = threading.Lock()
        self._verified: set[Path] = set()
        self._unfit: dict[Path, str] = {}

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
        directory = self.folder / f"{version:010d}-{root.hex()[:16]}"
        with self._fetching:
            if directory in self._unfit:
                raise UnfitCheckpoint(self._unfit[directory])
            if directory not in self._verified or not directory.is_dir():
                with self._alone():
                    self._fetch(version, root, directory)
        return directory

    def newest(self) -> int | None:
        """Returns the newest version held, or None."""
        return max((_version(path) for path in self._held()), default=None)

    def _alone(self) -> TextIO:
        try:
            return lock(self.folder.with_suffix(".lock"), WAIT_SECONDS)
        except BlockingIOError as error:
            raise Unavailable(f"another process is fetching into {self.folder}") from error

    def _fetch(self, version: int, root: bytes, directory: Path) -> None:
        place = (self.authority, self.store, directory)
        try:
            self._check_pins(version, root, directory)
            older = [path for path in self._held() if path != directory]
            fetch_checkpoint(self.sources, self.run, version, root, *place, older[-1:], self.kept)
        except UnfitCheckpoint as error:
            self._unfit[directory] = (
                f"version {version} is no checkpoint of run {self.run}, by its trainer's fault: {error}"
            )
            shutil.rmtree(directory, ignore_errors=True)
            raise UnfitCheckpoint(self._unfit[directory]) from error
        self._verified.add(directory)
        self._remove_others(version, directory)

    def _check_pins(self, version: int, root: bytes, directory: Path) -> None:
        """Raises ``UnfitCheckpoint`` if the version is not what the rules pin."""
        manifest = fetch_manifest(self.sources, self.run, version, root, self.authority, self.store).manifest
        self._fit(version, sum(file.size for file in manifest.files))
        check_sizes(self.pins, {file.name: file.size for file in manifest.files})
        if self._most_bytes:
            self._make_room(version, directory)
        check_contents(self.pins, reading(self.sources, manifest, self.store, directory))

    def _fit(self, version: int, size: int) -> None:
        """Keeps only as many versions of ``size`` bytes as the cap has room for.

        Raises:
            Misconfigured: there is no room for those that the run's async level needs.
        """
        if not self._most_bytes:
            return
        room = self._most_bytes // (2 * size)
        if room < self._needed:
            raise Misconfigured(
                f"version {version} of run {self.run} takes {_gib(2 * size)} on disk, as chunks and as files, and "
                f"{self._needed} versions are needed, {_gib(2 * size * self._needed)}; "
                f"the cap is {_gib(self._most_bytes)}: raise it"
            )
        self.kept = min(self.kept, room)

    def _make_room(self, version: int, directory: Path) -> None:
        """Removes files and chunks of others, so that with ``version`` no more than ``kept`` are held."""
        self._remove_others(version, directory)
        newest = sorted({held for held, _ in self.store.checkpoints(self.run)})[-self.kept :]
        self.store.retain(self.run, self.kept if version in newest else self.kept - 1)

    def _remove_others(self, version: int, directory: Path) -> None:
        """Removes all but ``directory`` and the newest others, and what a crash left half written.

        If another root of ``version`` is held, a reorganisation replaced it, and all later versions with it.
        """
        others = [path for path in self._held() if path != directory]
        if any(_version(path) == version for path in others):
            others = [path for path in others if _version(path) < version]
        kept = {directory, *others[max(0, len(others) - (self.kept - 1)) :]}
        for path in self.folder.iterdir():
            if path.is_dir() and path not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def _held(self) -> list[Path]:
        """Model directories, oldest version first."""
        return sorted(path for path in self.folder.iterdir() if path.is_dir() and path.name[0].isdigit())


def _version(directory: Path) -> int:
    return int(directory.name.partition("-")[0])


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
