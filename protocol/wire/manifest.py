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

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3
from eth_utils import keccak
from pydantic_core import from_json

from protocol.errors import Misconfigured, Rejected
from protocol.wire import auth

FORMAT = "assize/manifest/1"
CHUNK_BYTES = 1 << 20
MAX_MANIFEST_BYTES = 32 << 20
"""Room for about 400 thousand chunks: 400 GB of weights in chunks of 1 MiB."""
MAX_FILES = 1024
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 1 << 10, 64 << 20
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SIGNATURE = re.compile(r"0x[0-9a-f]{130}", re.ASCII)


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

    name: str
    size: int
    chunks: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of one version, ascending by name."""

    version: int
    chunk_bytes: int
    files: tuple[ManifestFile, ...]

    @property
    def canonical(self) -> bytes:
        """The JSON bytes whose keccak is the root."""
        return _dump(_manifest_json(self))

    @property
    def root(self) -> bytes:
        """The 32 bytes on chain."""
        return keccak(self.canonical)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def chunks(self) -> Iterator[Chunk]:
        """Yields every chunk of every file, in order."""
        for file in self.files:
            for index, digest in enumerate(file.chunks):
                offset = index * self.chunk_bytes
                yield Chunk(file.name, offset, min(self.chunk_bytes, file.size - offset), digest)


@dataclass(frozen=True, slots=True)
class SignedManifest:
    """A manifest, the run it belongs to, and the trainer key's 65-byte signature over run, version and root."""

    manifest: Manifest
    run: int
    signature: bytes

    @property
    def canonical(self) -> bytes:
        """The JSON bytes that are sent."""
        return _dump(
            {"manifest": _manifest_json(self.manifest), "run": self.run, "signature": "0x" + self.signature.hex()}
        )

    def verify(self, chain_id: int, market: str, trainer: str) -> None:
        """Raises `Rejected` unless ``trainer`` signed exactly this manifest for this run on this chain."""
        message = auth.checkpoint(chain_id, market, self.run, self.manifest.version, self.manifest.root)
        signed_by = auth.recover(message, self.signature)
        if signed_by.lower() != trainer.lower():
            raise Rejected(f"version {self.manifest.version} is signed by {signed_by}, not by the trainer {trainer}")


def sign(manifest: Manifest, run: int, chain_id: int, market: str, signer: auth.Signer) -> SignedManifest:
    """Returns ``manifest`` signed by the trainer key for ``run``."""
    message = auth.checkpoint(chain_id, market, run, manifest.version, manifest.root)
    return SignedManifest(manifest, run, signer.sign_typed(message))


def hash_chunk(data: bytes) -> bytes:
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
    odd = [name for name in names if not _NAME.fullmatch(name)]
    if odd or not names:
        problem = f"invalid file name {odd[0]!r}" if odd else "no files"
        raise Misconfigured(f"{problem} in {path}: expected names of letters, digits, dot, - and _")
    return Manifest(version, chunk_bytes, tuple(_describe(path / name, chunk_bytes) for name in names))


def parse(data: bytes) -> Manifest:
    """Returns the manifest whose canonical JSON is ``data``; raises `Rejected` for any other bytes."""
    manifest = _manifest(_load(data))
    if manifest.canonical != data:
        raise Rejected("invalid manifest: not in canonical form")
    return manifest


def parse_signed(data: bytes) -> SignedManifest:
    """Returns the signed manifest in ``data``, its signature not yet verified; raises `Rejected` unless canonical."""
    value = _load(data)
    if set(value) != {"manifest", "run", "signature"} or not isinstance(value["manifest"], dict):
        raise Rejected("invalid signed manifest: expected the fields manifest, run and signature")
    signature = value["signature"]
    if not isinstance(signature, str) or not _SIGNATURE.fullmatch(signature):
        raise Rejected("invalid signature of a manifest: expected 0x and 130 hex digits")
    run = _number(value["run"], 0, (1 << 256) - 1, "run")
    signed = SignedManifest(_manifest(value["manifest"]), run, bytes.fromhex(signature[2:]))
    if signed.canonical != data:
        raise Rejected("invalid signed manifest: not in canonical form")
    return signed


def _describe(path: Path, chunk_bytes: int) -> ManifestFile:
    chunks, size = [], 0
    with path.open("rb") as file:
        while chunk := file.read(chunk_bytes):
            chunks.append(hash_chunk(chunk))
            size += len(chunk)
    return ManifestFile(path.name, size, tuple(chunks))


def _manifest_json(manifest: Manifest) -> dict[str, Any]:
    files = [
        {"bytes": file.size, "chunks": [chunk.hex() for chunk in file.chunks], "name": file.name}
        for file in manifest.files
    ]
    return {"chunk_bytes": manifest.chunk_bytes, "files": files, "format": FORMAT, "version": manifest.version}


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _load(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_MANIFEST_BYTES:
        raise Rejected(f"invalid manifest of {len(data)} bytes: expected at most {MAX_MANIFEST_BYTES}")
    try:
        value = from_json(data)  # has a depth limit of its own, unlike json
    except ValueError as error:
        raise Rejected("invalid manifest: not JSON") from error
    if not isinstance(value, dict):
        raise Rejected("invalid manifest: not a JSON object")
    return value


def _manifest(value: dict[str, Any]) -> Manifest:
    if set(value) != {"chunk_bytes", "files", "format", "version"} or value["format"] != FORMAT:
        raise Rejected(f"invalid manifest: expected chunk_bytes, files, format {FORMAT} and version")
    chunk_bytes = _number(value["chunk_bytes"], MIN_CHUNK_BYTES, MAX_CHUNK_BYTES, "chunk size")
    if not isinstance(value["files"], list) or not 0 < len(value["files"]) <= MAX_FILES:
        raise Rejected(f"invalid manifest: expected 1 to {MAX_FILES} files")
    files = tuple(_file(file, chunk_bytes) for file in value["files"])
    names = [file.name for file in files]
    if names != sorted(set(names)):
        raise Rejected("invalid manifest: expected files in ascending order of names, each once")
    return Manifest(_number(value["version"], 0, (1 << 32) - 1, "version"), chunk_bytes, files)


def _file(value: Any, chunk_bytes: int) -> ManifestFile:
    if not isinstance(value, dict) or set(value) != {"bytes", "chunks", "name"}:
        raise Rejected("invalid file in a manifest: expected bytes, chunks and name")
    name, chunks = value["name"], value["chunks"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Rejected(f"invalid file name {str(name)[:100]!r} in a manifest: expected letters, digits, dot, - and _")
    size = _number(value["bytes"], 0, 1 << 50, "file size")
    if not isinstance(chunks, list) or len(chunks) != -(-size // chunk_bytes):
        raise Rejected(f"invalid chunks of {name}: expected {-(-size // chunk_bytes)} for its size")
    if not all(isinstance(chunk, str) and _HASH.fullmatch(chunk) for chunk in chunks):
        raise Rejected(f"invalid chunk hash of {name}: expected 64 hex digits")
    return ManifestFile(name, size, tuple(bytes.fromhex(chunk) for chunk in chunks))


def _number(value: Any, least: int, most: int, name: str) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Rejected(f"invalid {name} in a manifest: expected a whole number from {least} to {most}")
    return value
