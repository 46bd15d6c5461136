"""Download of one version into a folder of a person's choice: checked as a worker checks it, resumed after a kill.

DIRECTORY            the model directory, which appears whole or not at all
.DIRECTORY.partial   a store of versions that holds the verified chunks until then; the next attempt goes on with them
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Protocol

from protocol.broadcast.fetching import fetch_manifest, reading
from protocol.broadcast.sources import Sources
from protocol.broadcast.version_store import VersionStore
from protocol.broadcast.versions import fetch_checkpoint
from protocol.errors import Misconfigured, accessing
from protocol.files import lock
from protocol.wire import manifest as manifests
from protocol.wire.manifest import Authority, Manifest, ManifestFile, SignedManifest
from protocol.wire.pins import TENSORS, PinnedFile, UnfitCheckpoint, check_contents, check_sizes


class Meter(Protocol):
    """Counts what a download has; both methods may be called by any thread."""

    def begin(self, total: int, held: int) -> None:
        """Takes the bytes of the version, and those that an earlier attempt left."""

    def took(self, size: int) -> None:
        """Takes the bytes of one more chunk, verified."""


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
    folder = destination.with_name(f".{destination.name}.partial")
    with accessing(f"write to {destination.parent}"):
        destination.parent.mkdir(parents=True, exist_ok=True)
        store = VersionStore(folder, meter.took)
        try:
            held = lock(folder / "lock")
        except BlockingIOError as error:
            raise Misconfigured(f"another process is fetching into {destination}: wait for it, or end it") from error
    with closing(held):
        signed = fetch_manifest(sources, run, version, root, authority, store)
        manifest = signed.manifest
        if _is_free(destination, manifest):
            missing = _missing_bytes(store, signed)
            _check_pins(sources, run, signed, store, pins)
            total = sum({chunk.hash: chunk.size for chunk in manifest.chunks()}.values())
            meter.begin(total, total - missing)
            meter.took(missing - _missing_bytes(store, signed))  # came with the pinned files and headers
            made = fetch_checkpoint(sources, run, version, root, authority, store, versions_kept=1)
            with contextlib.suppress(FileNotFoundError):
                destination.rmdir()
            os.rename(made, destination)
        shutil.rmtree(folder, ignore_errors=True)
    return manifest


def download_without_tensors(
    sources: Sources,
    run: int,
    version: int,
    root: bytes,
    authority: Authority,
    pins: tuple[PinnedFile, ...],
    destination: Path,
) -> Manifest:
    """Fetches a version's files into ``destination``, a new folder, except those of tensors; returns its manifest.

    Raises:
        UnfitCheckpoint, Rejected, Unavailable: as ``download``.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = VersionStore(Path(folder))
        signed = fetch_manifest(sources, run, version, root, authority, store)
        _check_pins(sources, run, signed, store, pins)
        read = reading(sources, signed, store)
        with accessing(f"write to {destination}"):
            destination.mkdir(parents=True)
            for file in signed.manifest.files:
                if not file.name.endswith(TENSORS):
                    (destination / file.name).write_bytes(read(file.name, 0, file.size))
    return signed.manifest


def differences(
    sources: Sources, run: int, version: int, root: bytes, authority: Authority, directory: Path
) -> list[str]:
    """Returns a clause for each file in which ``directory`` differs from a version, by a source's manifest.

    Raises:
        Rejected: every source offers another manifest than ``root``.
        Unavailable: no source has it.
    """
    with tempfile.TemporaryDirectory() as folder:
        expected = fetch_manifest(sources, run, version, root, authority, VersionStore(Path(folder))).manifest
    held = manifests.from_directory(directory, version, expected.chunk_bytes)
    ours, theirs = ({file.name: file for file in manifest.files} for manifest in (held, expected))
    missing = [f"{name} is missing" for name in theirs.keys() - ours.keys()]
    more = [f"{name} is not part of it" for name in ours.keys() - theirs.keys()]
    return sorted(missing + more) + [
        _difference(file, ours[name], expected.chunk_bytes)
        for name, file in theirs.items()
        if name in ours and ours[name] != file
    ]


def _difference(expected: ManifestFile, held: ManifestFile, chunk_bytes: int) -> str:
    if held.size != expected.size:
        return f"{held.name} has {held.size} bytes, expected {expected.size}"
    wrong = [index for index, pair in enumerate(zip(held.chunks, expected.chunks, strict=True)) if pair[0] != pair[1]]
    first = wrong[0] * chunk_bytes
    return f"{held.name} differs in {len(wrong)} of {len(held.chunks)} chunks, first at byte {first} or after"


def _missing_bytes(store: VersionStore, signed: SignedManifest) -> int:
    return sum(chunk.size for chunk in store.missing(signed))


def _is_free(destination: Path, manifest: Manifest) -> bool:
    """Returns whether ``destination`` is missing or empty; False if it holds the version itself.

    Raises:
        Misconfigured: it holds anything else.
    """
    if not destination.exists() or (destination.is_dir() and not any(destination.iterdir())):
        return True
    sizes = {path.name: path.stat().st_size for path in destination.iterdir()} if destination.is_dir() else {}
    if sizes == {file.name: file.size for file in manifest.files} and _is(destination, manifest):
        return False
    raise Misconfigured(
        f"{destination} holds something else than version {manifest.version}: expected a folder that is new or empty"
    )


def _is(directory: Path, manifest: Manifest) -> bool:
    return manifests.from_directory(directory, manifest.version, manifest.chunk_bytes) == manifest


def _check_pins(
    sources: Sources, run: int, signed: SignedManifest, store: VersionStore, pins: tuple[PinnedFile, ...]
) -> None:
    """Raises ``UnfitCheckpoint`` if the version is not what the run's rules pin."""
    manifest = signed.manifest
    try:
        check_sizes(pins, {file.name: file.size for file in manifest.files})
        check_contents(pins, reading(sources, signed, store))
    except UnfitCheckpoint as error:
        raise UnfitCheckpoint(
            f"version {manifest.version} is no checkpoint of run {run}, by its trainer's fault: {error}"
        ) from error
