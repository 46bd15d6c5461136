"""Manifests: the exact bytes of one version's weights, by hash.

Canonical JSON (sorted keys, no spaces, ASCII), files in ascending order of their names:

    {"chunk_bytes":C,"files":[FILE,…],"format":"assize/manifest/1","version":V}
    FILE = {"bytes":N,"chunks":["<64 hex>",…],"name":"…"}

    chunk hash = BLAKE3-256 of the chunk       chunk i of a file = its bytes [i·C, min((i + 1)·C, N))
    root       = keccak(canonical JSON)        on chain, and signed by the trainer key as EIP-712 `Checkpoint`

A signed manifest is sent as {"manifest":{…},"run":R,"signature":"0x…"}, canonical as well. Bytes that do not encode
back to themselves are refused, so that a root has one preimage. Names are flat: no manifest can point outside the
directory into which it is fetched. PURE, except that ``from_directory`` reads the directory it describes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from blake3 import blake3
from eth_utils import keccak
from pydantic import Field

from protocol.errors import Misconfigured, Rejected
from protocol.files import read_at
from protocol.wire import auth
from protocol.wire.canonical import Canonical, InHex, Signature

CHUNK_BYTES = 4 << 20
"""Large enough that the cost of a request does not count, small enough that a tree of slow relays passes on much of a
version while it arrives."""
MAX_MANIFEST_BYTES = 32 << 20
"""Room for about 400 thousand chunks: 1.6 TB of weights in chunks of 4 MiB."""
HASHING_THREADS = min(4, os.cpu_count() or 1)
MAX_FILES = 1024
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 1 << 10, 64 << 20
_NAME = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$"
FileName = Annotated[str, Field(pattern=_NAME)]


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of one file: its offset and size in bytes, and its BLAKE3-256."""

    file: str
    offset: int
    size: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A file: its flat name, its size in bytes, and the hashes of its chunks in order (none for an empty file)."""

    name: FileName
    size: Annotated[int, Field(ge=0, le=1 << 50, alias="bytes")]
    chunks: tuple[Annotated[bytes, InHex("^[0-9a-f]{64}$", prefix="")], ...]


@dataclass(frozen=True)  # without slots, so that its root is hashed once
class Manifest:
    """The files of one version, ascending by name."""

    version: Annotated[int, Field(ge=0, lt=1 << 32)]
    chunk_bytes: Annotated[int, Field(ge=MIN_CHUNK_BYTES, le=MAX_CHUNK_BYTES)]
    files: Annotated[tuple[ManifestFile, ...], Field(min_length=1, max_length=MAX_FILES)]
    format: Literal["assize/manifest/1"] = "assize/manifest/1"

    @property
    def canonical(self) -> bytes:
        """The JSON bytes whose keccak is the root."""
        return _MANIFEST.encode(self)

    @cached_property
    def root(self) -> bytes:
        """The 32 bytes on chain."""
        return keccak(self.canonical)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by name, ascending."""
        return {file.name: file.size for file in self.files}

    def chunks(self) -> Iterator[Chunk]:
        """Yields every chunk of every file, in order."""
        for file in self.files:
            yield from self.chunks_of(file)

    def chunks_of(self, file: ManifestFile) -> Iterator[Chunk]:
        """Yields every chunk of one file, in order."""
        for index, digest in enumerate(file.chunks):
            offset = index * self.chunk_bytes
            yield Chunk(file.name, offset, min(self.chunk_bytes, file.size - offset), digest)


@dataclass(frozen=True, slots=True)
class Authority:
    """Signer of a run's manifests: the ``trainer`` address of a run of this ``market`` on this chain."""

    chain_id: int
    market: str
    trainer: str


@dataclass(frozen=True, slots=True)
class SignedManifest:
    """A manifest, the run it belongs to, and the trainer key's 65-byte signature over run, version and root."""

    manifest: Manifest
    run: Annotated[int, Field(ge=0, lt=1 << 256)]
    signature: Signature

    @property
    def canonical(self) -> bytes:
        """The JSON bytes that are sent."""
        return _SIGNED.encode(self)

    def verify(self, chain_id: int, market: str, trainer: str) -> None:
        """Raises `Rejected` unless ``trainer`` signed exactly this manifest for this run on this chain."""
        message = auth.checkpoint(chain_id, market, self.run, self.manifest.version, self.manifest.root)
        auth.check(message, self.signature, trainer, f"version {self.manifest.version}", "the trainer")


def sign(manifest: Manifest, run: int, chain_id: int, market: str, signer: auth.Signer) -> SignedManifest:
    """Returns ``manifest`` signed by the trainer key for ``run``."""
    message = auth.checkpoint(chain_id, market, run, manifest.version, manifest.root)
    return SignedManifest(manifest, run, signer.sign_typed(message))


def hash_chunk(data: bytes | memoryview) -> bytes:
    """Returns the BLAKE3-256 of a chunk."""
    return blake3(data).digest()


def from_directory(path: Path, version: int, chunk_bytes: int = CHUNK_BYTES) -> Manifest:
    """Returns the manifest of the model in ``path``, without subdirectories and dot files.

    Raises:
        Misconfigured: There is no file, or one whose name a manifest cannot hold.
    """
    if not path.is_dir():
        raise Misconfigured(f"invalid model directory {path}: expected the directory that holds the model's files")
    names = sorted(entry.name for entry in path.iterdir() if entry.is_file() and not entry.name.startswith("."))
    odd = [name for name in names if not re.fullmatch(_NAME, name, re.ASCII)]
    if odd or not names:
        problem = f"invalid file name {odd[0]!r}" if odd else "no files"
        raise Misconfigured(f"{problem} in {path}: expected names of letters, digits, dot, - and _")
    return Manifest(version, chunk_bytes, tuple(_describe(path / name, chunk_bytes) for name in names))


def hash_ranges(path: Path, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Returns the BLAKE3-256 of each range (offset, size) of a file, hashed by several threads.

    What lies beyond the end of the file counts as absent. Each thread reads into memory of its own: a mapped file would
    end the process if somebody cut it meanwhile.
    """
    with path.open("rb", buffering=0) as file:
        threads = min(HASHING_THREADS, len(ranges))
        if threads < 2:
            return list(_hash_each(file.fileno(), ranges))
        with ThreadPoolExecutor(threads, "hashing") as pool:
            parts = [ranges[first::threads] for first in range(threads)]
            hashed = [pool.submit(lambda part: list(_hash_each(file.fileno(), part)), part) for part in parts]
            by_thread = [iter(each.result()) for each in hashed]
        return [next(by_thread[index % threads]) for index in range(len(ranges))]


def hashes_of_pieces(pieces: Iterable[memoryview], chunk_bytes: int) -> list[bytes]:
    """Returns the BLAKE3-256 of each chunk of a file that comes in pieces of any size, in order."""
    hashes: list[bytes] = []
    hasher, room = blake3(), chunk_bytes
    for piece in pieces:
        while piece:
            part, piece = piece[:room], piece[room:]
            hasher.update(part)
            room -= len(part)
            if room == 0:
                hashes.append(hasher.digest())
                hasher, room = blake3(), chunk_bytes
    return hashes if room == chunk_bytes else [*hashes, hasher.digest()]


def _hash_each(descriptor: int, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    buffer = memoryview(bytearray(max((size for _, size in ranges), default=0)))
    for offset, size in ranges:
        yield hash_chunk(buffer[: read_at(descriptor, buffer[:size], offset)])


def parse(data: bytes) -> Manifest:
    """Returns the manifest whose canonical JSON is ``data``; raises `Rejected` for any other bytes."""
    manifest = _MANIFEST.decode(data)
    _check(manifest)
    return manifest


def parse_signed(data: bytes) -> SignedManifest:
    """Returns the signed manifest in ``data``, its signature not yet verified; raises `Rejected` unless canonical."""
    signed = _SIGNED.decode(data)
    _check(signed.manifest)
    return signed


def _describe(path: Path, chunk_bytes: int) -> ManifestFile:
    size = path.stat().st_size
    ranges = [(offset, min(chunk_bytes, size - offset)) for offset in range(0, size, chunk_bytes)]
    return ManifestFile(path.name, size, tuple(hash_ranges(path, ranges)))


def _check(manifest: Manifest) -> None:
    names = [file.name for file in manifest.files]
    if names != sorted(set(names)):
        raise Rejected("invalid manifest: expected files in ascending order of names, each once")
    for file in manifest.files:
        if len(file.chunks) != (count := -(-file.size // manifest.chunk_bytes)):
            raise Rejected(f"invalid chunks of {file.name}: expected {count} for its size")


_MANIFEST = Canonical(Manifest, "manifest", MAX_MANIFEST_BYTES)
_SIGNED = Canonical(SignedManifest, "signed manifest", MAX_MANIFEST_BYTES)
