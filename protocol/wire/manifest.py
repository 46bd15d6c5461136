"""Manifests: what the weights of one version are, to the byte.

Canonical JSON (sorted keys, no spaces, ASCII), files in ascending order of their names:

    {"chunk_bytes":C,"files":[FILE,…],"format":"assize/manifest/1","version":V}
    FILE = {"bytes":N,"chunks":["<64 hex>",…],"name":"…"}

    chunk hash = BLAKE3-256 of the chunk       chunk i of a file = its bytes [i·C, min((i + 1)·C, N))
    root       = keccak(canonical JSON)        on chain, and signed by the trainer key as EIP-712 `Checkpoint`

A signed manifest travels as {"manifest":{…},"run":R,"signature":"0x…"}, canonical as well. Bytes that do not come out
again exactly as they went in are refused, so that a root has one preimage. Names are flat: nothing in a manifest can
point outside the directory into which it is fetched. PURE but for reading the directory it is asked to describe.
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
"""About 400 thousand chunks, 400 GB of weights in chunks of 1 MiB."""
MAX_FILES = 1024
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 1 << 10, 64 << 20
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SIGNATURE = re.compile(r"0x[0-9a-f]{130}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of one file: where it lies in the file, its size in bytes and its BLAKE3-256."""

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
        """The 32 bytes that stand on chain."""
        return keccak(self.canonical)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def chunks(self) -> Iterator[Chunk]:
        """Every chunk of every file, in order."""
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
        """The JSON bytes that travel."""
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
    """Describes the model in ``path``. Subdirectories and dot files are no part of it.

    Raises `Misconfigured` where there is no file, or one whose name cannot travel.
    """
    if not path.is_dir():
        raise Misconfigured(f"{path} is not a directory; give the directory that holds the model's files")
    names = sorted(entry.name for entry in path.iterdir() if entry.is_file() and not entry.name.startswith("."))
    odd = [name for name in names if not _NAME.fullmatch(name)]
    if odd or not names:
        problem = f"has a file named {odd[0]!r}" if odd else "holds no files"
        raise Misconfigured(f"{path} {problem}; a model's files have names of letters, digits, dot, - and _")
    return Manifest(version, chunk_bytes, tuple(_describe(path / name, chunk_bytes) for name in names))


def parse(data: bytes) -> Manifest:
    """Returns the manifest whose canonical JSON is ``data``; raises `Rejected` for any other bytes."""
    manifest = _manifest(_load(data))
    if manifest.canonical != data:
        raise Rejected("the manifest is not in its canonical form")
    return manifest


def parse_signed(data: bytes) -> SignedManifest:
    """Returns the signed manifest in ``data``, its signature not yet verified; raises `Rejected` unless canonical."""
    value = _load(data)
    if set(value) != {"manifest", "run", "signature"} or not isinstance(value["manifest"], dict):
        raise Rejected("a signed manifest has manifest, run and signature")
    signature = value["signature"]
    if not isinstance(signature, str) or not _SIGNATURE.fullmatch(signature):
        raise Rejected("a manifest's signature is 0x and 130 hex digits")
    run = _number(value["run"], 0, (1 << 256) - 1, "run")
    signed = SignedManifest(_manifest(value["manifest"]), run, bytes.fromhex(signature[2:]))
    if signed.canonical != data:
        raise Rejected("the signed manifest is not in its canonical form")
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
        raise Rejected(f"the manifest has {len(data)} bytes, more than the {MAX_MANIFEST_BYTES} allowed")
    try:
        value = from_json(data)  # bounds its own depth, whatever the interpreter's recursion limit was raised to
    except ValueError as error:
        raise Rejected("the manifest is not JSON") from error
    if not isinstance(value, dict):
        raise Rejected("the manifest is not a JSON object")
    return value


def _manifest(value: dict[str, Any]) -> Manifest:
    if set(value) != {"chunk_bytes", "files", "format", "version"} or value["format"] != FORMAT:
        raise Rejected(f"a manifest of format {FORMAT} has chunk_bytes, files, format and version")
    chunk_bytes = _number(value["chunk_bytes"], MIN_CHUNK_BYTES, MAX_CHUNK_BYTES, "chunk size")
    if not isinstance(value["files"], list) or not 0 < len(value["files"]) <= MAX_FILES:
        raise Rejected(f"a manifest has 1 to {MAX_FILES} files")
    files = tuple(_file(file, chunk_bytes) for file in value["files"])
    names = [file.name for file in files]
    if names != sorted(set(names)):
        raise Rejected("a manifest's files ascend by name, each once")
    return Manifest(_number(value["version"], 0, (1 << 32) - 1, "version"), chunk_bytes, files)


def _file(value: Any, chunk_bytes: int) -> ManifestFile:
    if not isinstance(value, dict) or set(value) != {"bytes", "chunks", "name"}:
        raise Rejected("a manifest's file has bytes, chunks and name")
    name, chunks = value["name"], value["chunks"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Rejected(f"a manifest names a file {str(name)[:100]!r}; names are flat: letters, digits, dot, - and _")
    size = _number(value["bytes"], 0, 1 << 50, "file size")
    if not isinstance(chunks, list) or len(chunks) != -(-size // chunk_bytes):
        raise Rejected(f"{name} has another number of chunks than its size needs")
    if not all(isinstance(chunk, str) and _HASH.fullmatch(chunk) for chunk in chunks):
        raise Rejected(f"{name} has a chunk hash that is not 64 hex digits")
    return ManifestFile(name, size, tuple(bytes.fromhex(chunk) for chunk in chunks))


def _number(value: Any, least: int, most: int, name: str) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Rejected(f"a manifest's {name} is a whole number from {least} to {most}")
    return value
