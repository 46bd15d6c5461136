"""Blobs: bytes kept and fetched under a 32-byte root (artifacts and evidence).

    DirectoryBlobs   <directory>/<2 hex>/<64 hex>; on disk for good before `put` returns
    HttpBlobs        GET <base URL>/0x<64 hex>, bounded in size and time

A root binds what the bytes mean, not how they were compressed, so neither checks it: whoever reads decodes and does.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from pathlib import Path

import httpx

from protocol.errors import Rejected, Unavailable
from protocol.transport.urls import is_http

LONGEST_FETCH_SECONDS = 120.0


class DirectoryBlobs:
    """Blobs in a directory of this machine, which is made where it is missing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def put(self, root: bytes, data: bytes) -> None:
        """Keeps ``data`` under ``root``: flushed to disk, then renamed, so that no partial file is ever visible.

        What is there already stays: the first to arrive under a root is kept. Raises `Unavailable` where the disk
        fails.
        """
        path = self._path(root)
        incoming = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                return
            with incoming.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(incoming, path)
            _flush_directory(path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                incoming.unlink()
            raise Unavailable(f"the blob store cannot be written: {error.strerror}") from error

    def get(self, root: bytes) -> bytes | None:
        """Returns the bytes under ``root``, or None."""
        try:
            return self._path(root).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(f"the blob store cannot be read: {error.strerror}") from error

    def has(self, root: bytes) -> bool:
        """Is there a blob under ``root``?"""
        return self._path(root).exists()

    def drop(self, root: bytes) -> None:
        """Forgets the blob under ``root``, if there is one."""
        self._path(root).unlink(missing_ok=True)

    def _path(self, root: bytes) -> Path:
        name = root.hex()
        return self.directory / name[:2] / name


class HttpBlobs:
    """Fetches blobs from the URIs that submissions name. One keep-alive client; threads may share it."""

    def __init__(self, timeout_seconds: float = 10.0) -> None:
        self._client = httpx.Client(timeout=httpx.Timeout(timeout_seconds, connect=3.0), follow_redirects=False)

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def get(self, base_uri: str, root: bytes, limit: int) -> bytes:
        """Returns the blob ``root`` under ``base_uri``, which ends in a slash.

        Raises `Rejected` where the URI is none or more than ``limit`` bytes come (they are not read on), `Unavailable`
        for everything else: that a blob is not there now proves nothing. Redirects are not followed.
        """
        if not is_http(base_uri):
            raise Rejected(f"{base_uri[:100]!r} is no place to fetch from: it needs http:// or https:// and a host")
        try:
            return self._read(f"{base_uri}0x{root.hex()}", limit)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # ValueError: a host no resolver takes
            raise Unavailable(f"{base_uri[:100]} does not answer: {type(error).__name__}") from error

    def _read(self, url: str, limit: int) -> bytes:
        started, data = time.monotonic(), bytearray()
        with self._client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
            if response.status_code != 200:
                raise Unavailable(f"{url[:160]} answered {response.status_code}")
            for piece in response.iter_raw():
                data += piece
                if len(data) > limit:
                    raise Rejected(f"{url[:160]} has more than the {limit} bytes allowed")
                if time.monotonic() - started > LONGEST_FETCH_SECONDS:
                    raise Unavailable(f"{url[:160]} is too slow")
        return bytes(data)


def _flush_directory(directory: Path) -> None:
    """Makes a rename in ``directory`` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
