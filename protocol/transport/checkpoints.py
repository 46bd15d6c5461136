"""The checkpoints a node holds: fetched through relays when needed, a few kept, each with its root from the chain."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from protocol.transport.chunks import ChunkStore
from protocol.transport.shardcast import Authority, fetch_checkpoint
from protocol.transport.sources import Sources

KEPT = 6


class Checkpoints:
    """Model directories of one run under ``folder``. Threads may share it."""

    def __init__(self, sources: Sources, run: int, authority: Authority, folder: Path) -> None:
        self.sources, self.run, self.authority, self.folder = sources, run, authority, folder
        self.store = ChunkStore(folder / "chunks")
        self._fetching = threading.Lock()

    def directory(self, version: int, root: bytes) -> Path:
        """Returns the directory of ``version``, fetching it unless it is there.

        Raises `Unavailable` where no source has it, `Rejected` where all offer other bytes than ``root`` (32 bytes,
        from the chain) promises.
        """
        directory = self._path(version, root)
        with self._fetching:
            if not directory.exists():
                fetch_checkpoint(self.sources, self.run, version, root, self.authority, self.store, directory)
                self._prune()
        return directory

    def newest(self) -> int | None:
        """Returns the newest version held, None where there is none."""
        return max(self._held(), default=None)

    def _path(self, version: int, root: bytes) -> Path:
        return self.folder / f"{version}-{root.hex()[:16]}"

    def _held(self) -> dict[int, Path]:
        entries = [path for path in self.folder.iterdir() if path.is_dir() and path.name.partition("-")[0].isdigit()]
        return {int(path.name.partition("-")[0]): path for path in entries}

    def _prune(self) -> None:
        held = self._held()
        for version in sorted(held)[:-KEPT]:
            shutil.rmtree(held[version], ignore_errors=True)
