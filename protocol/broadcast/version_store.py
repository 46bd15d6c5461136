"""A directory of versions of weights, used by origins, relays and clients. Each byte is kept once.

    runs/RUN/VERSION-ROOT.json       a signed manifest, canonical; version in 10 digits, root in 64 hex digits
    runs/RUN/VERSION-ROOT/           its files, whole: a model directory
    runs/RUN/VERSION-ROOT.partial/   the same while chunks arrive: files of their final size, with holes
    runs/RUN/deltas/                 deltas that make its versions, in the same way: their frames are chunks

A chunk is written at its place in its file once its hash is verified, and read from there. Several processes may share
a store: a directory appears only when it is whole, and what two of them write into a partial one is the same. Files are
not fsynced: a store verifies what an earlier process left before it counts as held, and whoever receives a chunk
verifies it again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from protocol.errors import Rejected, Unavailable, accessing
from protocol.files import write_atomically
from protocol.wire import delta_manifest, manifest
from protocol.wire.delta_manifest import DeltaManifest, SignedDelta
from protocol.wire.manifest import Chunk, Manifest, SignedManifest, hash_chunk, hash_ranges
from protocol.wire.pins import UnfitCheckpoint

DEFAULT_VERSIONS_KEPT = 9
"""So many that the newest can be made from the one 8 before it."""
SPARE_BYTES = 64 << 20
"""Bytes of the disk that are left to others: journals must be written still."""

STALE_SECONDS = 3600
"""What is being written and is older was left by a process that died."""

_FICLONE = 0x40049409
_PARTIAL, _DELTAS = ".partial", "deltas"

Signed = SignedManifest | SignedDelta
"""What a store holds: a version, or a delta that makes one."""


@dataclass(slots=True)
class _Stored:
    """A stored manifest: where its chunks lie, and which of them a partial directory holds."""

    signed: Signed
    folder: Path
    places: dict[bytes, list[Chunk]]
    held: set[bytes] = field(default_factory=set)
    opened: bool = False
    verified: bool = False

    @property
    def partial(self) -> Path:
        return self.folder.with_name(self.folder.name + _PARTIAL)

    def where(self, digest: bytes) -> tuple[Path, Chunk] | None:
        """Returns the directory that holds a chunk, and its place in it; None if the chunk has not arrived."""
        place = self.places.get(digest)
        if place is None:
            return None
        if digest in self.held:
            return (self.folder if self.folder.exists() else self.partial), place[0]
        return (self.folder, place[0]) if self.folder.exists() else None


class VersionStore:
    """Versions of weights under ``directory``, which is created if missing. Threads may share it."""

    def __init__(self, directory: Path, took: Callable[[int], None] | None = None) -> None:
        """``took`` is called with the bytes of each chunk that is put into the store, by any thread."""
        self.directory = directory
        self._took = took
        self._versions: dict[Path, _Stored] = {}
        self._lock = threading.RLock()
        (directory / "runs").mkdir(parents=True, exist_ok=True)

    # Manifests

    def put_manifest(self, signed: Signed) -> None:
        """Stores a signed manifest whose signature the caller has verified. Its chunks may follow later."""
        path = self.manifest_file(signed)
        if path.exists():
            return
        with self._writing():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, signed.canonical)

    def checkpoints(self, run: int) -> list[tuple[int, bytes]]:
        """Returns (version, manifest root) of every manifest stored for ``run``, ascending by version."""
        return sorted(_named(path) for path in self._run_path(run).glob("[0-9]*.json"))

    def versions(self, run: int) -> list[SignedManifest]:
        """Returns every version stored for ``run``, whole or not, the oldest first."""
        stored = [self.manifest(run, *named) for named in self.checkpoints(run)]
        return [signed for signed in stored if signed is not None]

    def deltas(self, run: int) -> list[SignedDelta]:
        """Returns every delta stored for ``run``, ascending by the version that it makes."""
        found = [self._load(path) for path in self._delta_paths(run)]
        deltas = [each.signed for each in found if each is not None and isinstance(each.signed, SignedDelta)]
        return sorted(deltas, key=lambda signed: (signed.delta.version, signed.delta.base_version))

    def stored(self, run: int) -> list[Signed]:
        """Returns every version and delta stored for ``run``."""
        return [*self.versions(run), *self.deltas(run)]

    def delta(self, run: int, root: bytes) -> SignedDelta | None:
        """Returns the stored delta with this root, or None."""
        return next((signed for signed in self.deltas(run) if signed.delta.root == root), None)

    def latest(self, run: int) -> int | None:
        """Returns the newest version stored for ``run``, or None."""
        held = self.checkpoints(run)
        return held[-1][0] if held else None

    def changed_at(self, run: int) -> int:
        """Returns a number that changes whenever the manifests of ``run`` do; cheap enough to poll."""
        changed = 0
        for folder in (self._run_path(run), self._run_path(run) / _DELTAS):
            with contextlib.suppress(FileNotFoundError):
                changed += os.stat(folder).st_mtime_ns
        return changed

    def manifest(self, run: int, version: int, root: bytes | None = None) -> SignedManifest | None:
        """Returns a stored manifest, or None; without ``root`` the latest to arrive of that version."""
        if root is not None:
            path: Path | None = self._manifest_path(run, version, root)
        else:
            paths = self._run_path(run).glob(f"{version:010d}-*.json")
            path = max(paths, key=lambda path: path.stat().st_mtime_ns, default=None)
        found = self._load(path) if path else None
        return found.signed if found is not None and isinstance(found.signed, SignedManifest) else None

    def manifest_file(self, signed: Signed) -> Path:
        """Returns the file with the canonical JSON of a stored manifest."""
        path = self._manifest_path(signed.run, signed.manifest.version, signed.manifest.root)
        return path.parent / _DELTAS / path.name if isinstance(signed, SignedDelta) else path

    # Whole versions

    def folder(self, signed: Signed) -> Path:
        """Returns the directory of a version or delta, which exists once it is whole."""
        return self.manifest_file(signed).with_suffix("")

    def take(self, signed: Signed, directory: Path) -> None:
        """Takes a whole version or delta from a directory that its manifest describes: links or copies its files."""
        folder = self.folder(signed)
        if not folder.exists():
            incoming = folder.with_name(f".{uuid.uuid4().hex}")
            with self._writing(), contextlib.ExitStack() as cleanup:
                cleanup.callback(shutil.rmtree, incoming, ignore_errors=True)
                incoming.mkdir(parents=True)
                for name in signed.manifest.sizes:
                    _clone(directory / name, incoming / name)
                _rename(incoming, folder)
        self.put_manifest(signed)

    def finish(self, signed: Signed) -> Path:
        """Gives a version whose chunks have all arrived its final name, and returns its directory.

        Raises:
            Unavailable: chunks are missing.
        """
        version = self._opened(signed)
        with self._lock:
            if not version.folder.exists():
                if missing := version.places.keys() - version.held:
                    raise Unavailable(f"version {signed.manifest.version} lacks {len(missing)} chunks")
                with self._writing():
                    _rename(version.partial, version.folder)
                version.verified = True
        shutil.rmtree(version.partial, ignore_errors=True)
        return version.folder

    def verify(self, signed: Signed, again: bool = False) -> bool:
        """Returns whether a version is whole, byte for byte. A damaged one becomes partial, without the damage.

        Its files are read once in each process, or ``again``.
        """
        version = self._opened(signed)
        if not version.folder.exists():
            return False
        if version.verified and not again:
            return True
        with self._reading():
            names = {path.name for path in version.folder.iterdir() if not path.name.startswith(".")}
        found = _held(version.folder, signed.manifest)
        expected = signed.manifest.sizes.keys()
        if found == version.places.keys() and names == expected:
            version.verified = True
            return True
        with self._lock, self._writing():
            shutil.rmtree(version.partial, ignore_errors=True)
            os.replace(version.folder, version.partial)
            for name in names - expected:
                (version.partial / name).unlink()
            _lay_out(version.partial, signed.manifest)
            version.held, version.verified = found, False
        return False

    # Chunks

    def held_bytes(self, signed: Signed) -> int:
        """Returns the bytes of a version that are there, without a look into its files."""
        version = self._load(self.manifest_file(signed))
        if version is None:
            return 0
        if version.folder.exists():
            return signed.manifest.size
        with self._lock:
            held = list(version.held)
        return sum(chunk.size for digest in held for chunk in version.places[digest])

    def missing(self, signed: Signed) -> list[Chunk]:
        """Returns the chunks that a version still lacks, in order, each hash once.

        What other versions in the store hold of it is taken over first.
        """
        version = self._opened(signed)
        if version.folder.exists():
            return []
        return [places[0] for digest, places in version.places.items() if digest not in version.held]

    def has(self, digest: bytes) -> bool:
        """Returns whether a version in the store holds the chunk."""
        return bool(self._all_places(digest))

    def expects(self, digest: bytes) -> bool:
        """Returns whether a stored manifest names this chunk, so that it will arrive."""
        return any(digest in version.places for version in self._known())

    def open(self, digest: bytes) -> tuple[IO[bytes], Chunk] | None:
        """Opens the file that holds a chunk, and returns it with the chunk's place; None if it is absent.

        The bytes were verified when they came into the store.
        """
        for _ in range(2):  # a partial directory may get its final name meanwhile
            for folder, chunk in self._all_places(digest):
                with self._reading(), contextlib.suppress(FileNotFoundError):
                    return (folder / chunk.file).open("rb", buffering=0), chunk
        return None

    def read(self, digest: bytes) -> bytes | None:
        """Returns the verified chunk, or None if it is absent, or damaged wherever it is."""
        while True:
            for folder, chunk in self._all_places(digest):
                with self._reading(), contextlib.suppress(FileNotFoundError), (folder / chunk.file).open("rb") as file:
                    data = os.pread(file.fileno(), chunk.size, chunk.offset)
                    if hash_chunk(data) == digest:
                        return data
            if not self._read_manifests():
                return None

    def put(self, signed: Signed, digest: bytes, data: bytes | memoryview) -> None:
        """Writes a chunk at its places in a partial version, and in no other, whose manifest may lie about it.

        Raises:
            Rejected: ``data`` does not hash to ``digest``.
            UnfitCheckpoint: the manifest says that the chunk has another size.
            Unavailable: it cannot be written.
        """
        if hash_chunk(data) != digest:
            raise Rejected(f"a chunk does not hash to {digest.hex()}")
        version = self._opened(signed)
        if digest not in version.held:
            self._write(version, digest, data)
        if self._took is not None:
            self._took(len(data))

    def _write(self, version: _Stored, digest: bytes, data: bytes | memoryview) -> None:
        if version.folder.exists():
            return
        for chunk in version.places[digest]:
            if len(data) != chunk.size:
                raise UnfitCheckpoint(
                    f"chunk {digest.hex()[:16]} of {chunk.file} has {len(data)} bytes, the manifest says {chunk.size}"
                )
        with self._writing():
            for chunk in version.places[digest]:
                with (version.partial / chunk.file).open("r+b", buffering=0) as file:
                    _write_at(file, data, chunk.offset)
        with self._lock:
            version.held.add(digest)

    def _all_places(self, digest: bytes) -> list[tuple[Path, Chunk]]:
        """Returns the directories that hold a chunk, and its places; also if another process has just written it."""
        return self._places(digest) or (self._places(digest) if self._read_manifests() else [])

    def _places(self, digest: bytes) -> list[tuple[Path, Chunk]]:
        return [found for version in self._known() if (found := version.where(digest)) is not None]

    # Retention

    def kept(self, run: int, versions: int, most_bytes: int = 0) -> list[int]:
        """Returns the newest ``versions`` versions of ``run``, as many of them as ``most_bytes`` have room for.

        The newest is always among them; 0 bytes are no bound.
        """
        kept: list[int] = []
        room, deltas = most_bytes, self.deltas(run) if most_bytes else []
        for signed in reversed(self.versions(run)):
            version, root = signed.manifest.version, signed.manifest.root
            room -= signed.manifest.size + sum(each.delta.size for each in deltas if each.delta.target == root)
            if version in kept:
                continue
            if kept and (len(kept) == versions or (most_bytes and room < 0)):
                break
            kept.append(version)
        return kept

    def retain(self, run: int, versions: int, most_bytes: int = 0) -> None:
        """Drops what is older than what is ``kept`` of ``run``, and what processes that died left unfinished.

        Deltas go with the version that they make.
        """
        oldest = min(self.kept(run, versions, most_bytes), default=0)
        for path in (*self._run_path(run).glob("[0-9]*.json"), *self._delta_paths(run)):
            if _named(path)[0] < oldest:
                self._forget(path)
        for left in (*self._run_path(run).glob(".*"), *(self._run_path(run) / _DELTAS).glob(".*")):
            with contextlib.suppress(FileNotFoundError):
                if left.stat().st_mtime < time.time() - STALE_SECONDS:
                    shutil.rmtree(left) if left.is_dir() else left.unlink()

    def remove(self, signed: Signed) -> None:
        """Removes a version or delta, manifest and files."""
        self._forget(self.manifest_file(signed))

    def _forget(self, path: Path) -> None:
        with self._lock:
            path.unlink(missing_ok=True)
            self._versions.pop(path, None)
            folder = path.with_suffix("")
            for left in (folder, folder.with_name(folder.name + _PARTIAL)):
                removed = left.with_name(f".{left.name}.removed")  # never a folder that has only some of its files
                shutil.rmtree(removed, ignore_errors=True)
                with contextlib.suppress(FileNotFoundError):
                    left.rename(removed)
                shutil.rmtree(removed, ignore_errors=True)

    # Manifests in memory

    def _opened(self, signed: Signed) -> _Stored:
        """Returns a stored version or delta, ready to take chunks: laid out, with what is held of it known."""
        version = self._load(self.manifest_file(signed))
        if version is None:
            raise Unavailable(f"version {signed.manifest.version} of run {signed.run} is no longer stored here")
        with self._lock:
            if version.folder.exists() or (version.opened and version.partial.exists()):
                version.opened = True
                return version
            version.held, version.verified = set(), False
            with self._writing():
                if version.partial.exists():
                    version.held = _held(version.partial, signed.manifest)
                else:
                    check_room(self.directory, signed.manifest.size)
                    version.partial.mkdir()
                _lay_out(version.partial, signed.manifest)
            version.opened = True
        self._adopt(version)
        return version

    def _adopt(self, version: _Stored) -> None:
        """Takes over what other versions hold of this one."""
        self._read_manifests()
        for digest in version.places.keys() - version.held:
            if self._places(digest) and (data := self.read(digest)) is not None:
                self._write(version, digest, data)

    def _known(self) -> list[_Stored]:
        """The versions whose manifests were read."""
        with self._lock:
            return list(self._versions.values())

    def _read_manifests(self) -> bool:
        """Reads manifests that other processes have written; returns whether there was one."""
        before = len(self._versions)
        for pattern in ("*/[0-9]*.json", f"*/{_DELTAS}/[0-9]*.json"):
            for path in (self.directory / "runs").glob(pattern):
                self._load(path)
        return len(self._versions) > before

    def _load(self, path: Path) -> _Stored | None:
        """Parses a manifest once; a file whose content does not match its name counts as absent."""
        with self._lock:
            if path not in self._versions:
                parse = delta_manifest.parse_signed if path.parent.name == _DELTAS else manifest.parse_signed
                try:
                    signed: Signed = parse(path.read_bytes())
                except (FileNotFoundError, Rejected):
                    return None
                if (signed.manifest.version, signed.manifest.root) != _named(path):
                    return None
                places: dict[bytes, list[Chunk]] = {}
                for chunk in signed.manifest.chunks():
                    places.setdefault(chunk.hash, []).append(chunk)
                self._versions[path] = _Stored(signed, path.with_suffix(""), places)
            return self._versions[path]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with accessing(f"read from {self.directory}", Unavailable):
            yield

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with accessing(f"write to {self.directory}", Unavailable):
            yield

    def _run_path(self, run: int) -> Path:
        return self.directory / "runs" / str(run)

    def _manifest_path(self, run: int, version: int, root: bytes) -> Path:
        return self._run_path(run) / f"{version:010d}-{root.hex()}.json"

    @contextlib.contextmanager
    def workplace(self, run: int) -> Iterator[Path]:
        """Yields an empty directory on the store's disk, which is removed afterwards."""
        path = self._run_path(run) / f".{uuid.uuid4().hex}"
        with self._writing():
            path.mkdir(parents=True)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _delta_paths(self, run: int) -> list[Path]:
        return list((self._run_path(run) / _DELTAS).glob("[0-9]*.json"))


def check_room(directory: Path, needed: int) -> None:
    """Raises ``Unavailable`` if ``directory`` has no room for so many bytes and `SPARE_BYTES`."""
    with accessing(f"write to {directory}", Unavailable):
        free = shutil.disk_usage(directory).free
    if needed + SPARE_BYTES > free:
        raise Unavailable(
            f"a version needs {needed} bytes in {directory}, where {free} are free: make room, or move the state folder"
        )


def _held(folder: Path, manifest: Manifest | DeltaManifest) -> set[bytes]:
    """Returns the chunks that are at all their places in a directory, by hash."""
    found, damaged = set[bytes](), set[bytes]()
    by_file: dict[str, list[Chunk]] = {name: [] for name in manifest.sizes}
    for chunk in manifest.chunks():
        by_file[chunk.file].append(chunk)
    for name, chunks in by_file.items():
        path = folder / name
        whole = path.is_file() and path.stat().st_size == manifest.sizes[name]
        hashes = [b""] * len(chunks)
        with contextlib.suppress(OSError):  # what cannot be read counts as damaged
            if whole:
                hashes = hash_ranges(path, [(chunk.offset, chunk.size) for chunk in chunks])
        for chunk, actual in zip(chunks, hashes, strict=True):
            (found if chunk.hash == actual else damaged).add(chunk.hash)
    return found - damaged


def _lay_out(folder: Path, manifest: Manifest | DeltaManifest) -> None:
    """Makes the files of a version, each of its size; what is not written yet is a hole."""
    for name, size in manifest.sizes.items():
        with (folder / name).open("ab") as opened:
            opened.truncate(size)


def _clone(source: Path, target: Path) -> None:
    """Makes ``target`` a second name or a copy of ``source``, whichever takes no room if the disk can."""
    with source.open("rb") as given, target.open("xb") as made, contextlib.suppress(OSError):
        fcntl.ioctl(made.fileno(), _FICLONE, given.fileno())
        return
    target.unlink()
    try:
        os.link(source, target)
    except OSError:  # on another disk, or one without links
        shutil.copyfile(source, target)


def _rename(source: Path, target: Path) -> None:
    """Gives a directory its final name, unless another process was faster."""
    try:
        os.rename(source, target)
    except OSError:
        if not target.exists():
            raise


def _write_at(file: IO[bytes], data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file.fileno(), view, offset)
        view, offset = view[written:], offset + written


def _named(path: Path) -> tuple[int, bytes]:
    version, _, root = path.stem.partition("-")
    return int(version), bytes.fromhex(root)
