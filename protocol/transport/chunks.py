"""A directory of verified chunks and signed manifests, used by origins, relays and clients.

    chunks/<2 hex>/<64 hex>             a chunk under its BLAKE3-256
    runs/<run>/<version>-<root>.json    a signed manifest, canonical; version in 10 digits, root in 64 hex digits
    incoming/                           files being written; renamed into place when whole

Several processes may share one store: names are content hashes, and files appear only when complete. Files are not
fsynced, because every read verifies: a file torn by a power cut is detected, dropped and fetched again.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

from protocol.errors import Rejected, Unavailable, accessing
from protocol.wire.manifest import Chunk, Manifest, SignedManifest, hash_chunk, parse_signed

BLOCK_BYTES = 256 << 10
"""Bytes that are hashed at once."""

STALE_SECONDS = 3600
"""A file under ``incoming`` that is older was left by a process that died."""


class ChunkStore:
    """Chunks and signed manifests under ``directory``, which is created if missing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._parsed: dict[Path, tuple[SignedManifest, frozenset[bytes]]] = {}
        for name in ("chunks", "runs", "incoming"):
            (directory / name).mkdir(parents=True, exist_ok=True)

    def has(self, digest: bytes) -> bool:
        """Returns whether the chunk is stored."""
        return self._chunk_path(digest).exists()

    def read(self, digest: bytes) -> bytes | None:
        """Returns the verified chunk, or None if it is absent. A damaged chunk is dropped and counts as absent."""
        path = self._chunk_path(digest)
        with accessing(f"read from the chunk store {self.directory}", Unavailable):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                return None
        if hash_chunk(data) != digest:
            path.unlink(missing_ok=True)
            return None
        return data

    def verified(self, digest: bytes) -> Path | None:
        """Returns the file of the verified chunk, or None if it is absent; unlike `read` it takes little memory."""
        path = self._chunk_path(digest)
        with accessing(f"read from the chunk store {self.directory}", Unavailable):
            try:
                with path.open("rb") as file:
                    found = _hash(file)
            except FileNotFoundError:
                return None
        if found != digest:
            path.unlink(missing_ok=True)
            return None
        return path

    def put(self, digest: bytes, data: bytes) -> None:
        """Stores a chunk; raises `Rejected` if ``data`` does not hash to ``digest``."""
        if hash_chunk(data) != digest:
            raise Rejected(f"a chunk does not hash to {digest.hex()}")
        if not self.has(digest):
            self._write(self._chunk_path(digest), data)

    def put_manifest(self, signed: SignedManifest) -> None:
        """Stores a signed manifest whose signature the caller has verified. Its chunks may follow later."""
        path = self._manifest_path(signed.run, signed.manifest.version, signed.manifest.root)
        if not path.exists():
            self._write(path, signed.canonical)

    def checkpoints(self, run: int) -> list[tuple[int, bytes]]:
        """Returns (version, manifest root) of every manifest stored for ``run``, ascending by version."""
        return sorted(_named(path) for path in self._manifest_paths(run))

    def latest(self, run: int) -> int | None:
        """Returns the newest version stored for ``run``, or None."""
        held = self.checkpoints(run)
        return held[-1][0] if held else None

    def changed_at(self, run: int) -> int:
        """Returns a number that changes whenever the manifests of ``run`` do; cheap enough to poll."""
        try:
            return os.stat(self._run_path(run)).st_mtime_ns
        except FileNotFoundError:
            return 0

    def manifest(self, run: int, version: int, root: bytes | None = None) -> SignedManifest | None:
        """Returns a stored manifest, or None; without ``root`` the latest to arrive of that version."""
        if root is not None:
            return self._load(self._manifest_path(run, version, root))
        paths = self._run_path(run).glob(f"{version:010d}-*.json")
        newest = max(paths, key=lambda path: path.stat().st_mtime_ns, default=None)
        return self._load(newest) if newest else None

    def missing(self, manifest: Manifest) -> list[Chunk]:
        """Returns the chunks of ``manifest`` that are not stored, in order, each hash once."""
        wanted = {chunk.hash: chunk for chunk in reversed(list(manifest.chunks()))}
        return [chunk for chunk in reversed(wanted.values()) if not self.has(chunk.hash)]

    def expects(self, digest: bytes) -> bool:
        """Returns whether a stored manifest names this chunk, so that it will arrive."""
        return any(digest in hashes for _, hashes in self._all_parsed())

    def manifest_file(self, signed: SignedManifest) -> Path:
        """Returns the file with the canonical JSON of a stored manifest."""
        return self._manifest_path(signed.run, signed.manifest.version, signed.manifest.root)

    def retain(self, run: int, versions: int) -> None:
        """Drops all but the newest ``versions`` versions of ``run``, and chunks that no manifest names."""
        newest = sorted({version for version, _ in self.checkpoints(run)})[-versions:]
        dropped = [path for path in self._manifest_paths(run) if _named(path)[0] not in newest]
        for path in dropped:
            path.unlink(missing_ok=True)
            self._parsed.pop(path, None)
        if dropped:
            self._drop_unnamed()
        for path in (self.directory / "incoming").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - STALE_SECONDS:
                    path.unlink()

    def _drop_unnamed(self) -> None:
        named = {digest for _, hashes in self._all_parsed() for digest in hashes}
        for path in (self.directory / "chunks").glob("??/*"):
            if bytes.fromhex(path.name) not in named:
                path.unlink(missing_ok=True)

    def _all_parsed(self) -> Iterator[tuple[SignedManifest, frozenset[bytes]]]:
        for path in (self.directory / "runs").glob("*/*.json"):
            if self._load(path) is not None:
                yield self._parsed[path]

    def _load(self, path: Path) -> SignedManifest | None:
        """Parses a manifest once; a file whose content does not match its name counts as absent."""
        if path not in self._parsed:
            try:
                signed = parse_signed(path.read_bytes())
            except (FileNotFoundError, Rejected):
                return None
            if (signed.manifest.version, signed.manifest.root) != _named(path):
                return None
            self._parsed[path] = signed, frozenset(chunk.hash for chunk in signed.manifest.chunks())
        return self._parsed[path][0]

    def _write(self, path: Path, data: bytes) -> None:
        incoming = self.directory / "incoming" / uuid.uuid4().hex
        with accessing(f"write to the chunk store {self.directory}", Unavailable), contextlib.ExitStack() as cleanup:
            cleanup.callback(incoming.unlink, missing_ok=True)
            incoming.write_bytes(data)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(incoming, path)

    def _chunk_path(self, digest: bytes) -> Path:
        name = digest.hex()
        return self.directory / "chunks" / name[:2] / name

    def _run_path(self, run: int) -> Path:
        return self.directory / "runs" / str(run)

    def _manifest_path(self, run: int, version: int, root: bytes) -> Path:
        return self._run_path(run) / f"{version:010d}-{root.hex()}.json"

    def _manifest_paths(self, run: int) -> list[Path]:
        return list(self._run_path(run).glob("*.json"))


def _hash(file: BinaryIO) -> bytes:
    digest = blake3()
    while block := file.read(BLOCK_BYTES):
        digest.update(block)
    return digest.digest()


def _named(path: Path) -> tuple[int, bytes]:
    version, _, root = path.stem.partition("-")
    return int(version), bytes.fromhex(root)
