"""Download of one version into a folder of a person's choice: checked as a worker checks it, resumed after a kill.

DIRECTORY           the model directory, which appears whole or not at all
.DIRECTORY.chunks   verified chunks and the manifest, until then; the next attempt goes on with them
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Protocol

from protocol.errors import Misconfigured, accessing
from protocol.files import lock
from protocol.transport.chunks import ChunkStore
from protocol.transport.shardcast import Authority, fetch_checkpoint, fetch_manifest, reading
from protocol.transport.sources import Sources
from protocol.wire import manifest as manifests
from protocol.wire.manifest import Manifest
from protocol.wire.pins import PinnedFile, UnfitCheckpoint, check_contents, check_sizes


class Meter(Protocol):
    """Counts what a download has; both methods may be called by any thread."""

    def begin(self, total: int, held: int) -> None:
        """Takes the bytes of the version, and those that an earlier attempt left."""

    def took(self, size: int) -> None:
        """Takes the bytes of one more chunk, verified."""


class MeteredStore(ChunkStore):
    """A chunk store that tells of every chunk that is put into it."""

    def __init__(self, directory: Path, took: Callable[[int], None]) -> None:
        super().__init__(directory)
        self._took = took

    def put(self, digest: bytes, data: bytes) -> None:
        """Stores a chunk; raises `Rejected` if ``data`` does not hash to ``digest``."""
        super().put(digest, data)
        self._took(len(data))


def download(
    sources: Sources,
    run: int,
    version: int,
    root: bytes,
    authority: Authority,
    pins: tuple[PinnedFile, ...],
    destination: Path,
    meter: Meter,
) -> Manifest:
    """Fetches a version into ``destination`` and returns its manifest; a directory that holds it already stays.

    ``root`` is its manifest root on chain, ``pins`` are the files of every checkpoint, from the run's rules.

    Raises:
        Misconfigured: ``destination`` holds anything else, or another process fetches into it.
        UnfitCheckpoint: the version is not what the rules pin; its weights are not fetched.
        Rejected: every source offers other bytes than the root promises.
        Unavailable: no source has the version or one of its chunks, or the disk has no room.
    """
    folder = destination.with_name(f".{destination.name}.chunks")
    with accessing(f"write to {destination.parent}"):
        destination.parent.mkdir(parents=True, exist_ok=True)
        store = MeteredStore(folder, meter.took)
        try:
            held = lock(folder / "lock")
        except BlockingIOError as error:
            raise Misconfigured(f"another process is fetching into {destination}: wait for it, or end it") from error
    with closing(held):
        manifest = fetch_manifest(sources, run, version, root, authority, store).manifest
        _check_free(destination, manifest)
        missing = _missing_bytes(store, manifest)
        _check_pins(sources, run, manifest, store, destination, pins)
        total = sum({chunk.hash: chunk.size for chunk in manifest.chunks()}.values())
        meter.begin(total, total - missing)
        meter.took(missing - _missing_bytes(store, manifest))  # came with the pinned files and headers
        fetch_checkpoint(sources, run, version, root, authority, store, destination, versions_kept=1)
        shutil.rmtree(folder, ignore_errors=True)
    return manifest


def _missing_bytes(store: ChunkStore, manifest: Manifest) -> int:
    return sum(chunk.size for chunk in store.missing(manifest))


def _check_free(destination: Path, manifest: Manifest) -> None:
    """Raises ``Misconfigured`` unless ``destination`` is missing, empty, or holds the version itself."""
    if not destination.exists() or (destination.is_dir() and not any(destination.iterdir())):
        return
    sizes = {path.name: path.stat().st_size for path in destination.iterdir()} if destination.is_dir() else {}
    if sizes == {file.name: file.size for file in manifest.files} and _is(destination, manifest):
        return
    raise Misconfigured(
        f"{destination} holds something else than version {manifest.version}: expected a folder that is new or empty"
    )


def _is(directory: Path, manifest: Manifest) -> bool:
    return manifests.from_directory(directory, manifest.version, manifest.chunk_bytes) == manifest


def _check_pins(
    sources: Sources, run: int, manifest: Manifest, store: ChunkStore, held: Path, pins: tuple[PinnedFile, ...]
) -> None:
    """Raises ``UnfitCheckpoint`` if the version is not what the run's rules pin."""
    try:
        check_sizes(pins, {file.name: file.size for file in manifest.files})
        check_contents(pins, reading(sources, manifest, store, held))
    except UnfitCheckpoint as error:
        raise UnfitCheckpoint(
            f"version {manifest.version} is no checkpoint of run {run}, by its trainer's fault: {error}"
        ) from error
