"""Blobs: bytes kept and fetched under a 32-byte root (artifacts and evidence), in stores named by URL.

    file:/path            DirectoryBlobs   <path>/<2 hex>/<64 hex>; durable before `put` returns
    (own objects)         ObjectBlobs      <name>/<2 hex>/<64 hex> in an object store; never named by another party
    http://… https://…    HttpBlobs        <URL>0x<64 hex>; the URL ends in a slash

No store verifies what it keeps: readers do, since a root commits to its blob's bytes.
To add a store, implement `Blobs` and register its URL scheme in `SCHEMES`.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import httpx

from protocol.certificates import certificate_authorities
from protocol.deadlines import bounded, within
from protocol.errors import Rejected, Unavailable, accessing
from protocol.files import write_atomically
from protocol.transport.addresses import admit, origin_of, public_only
from protocol.transport.http import NotThere, is_http, pieces, reaching
from protocol.transport.objects import Objects
from protocol.wire.receipts import PUBLIC_PORTS

GRACE_SECONDS = 15.0
"""Longest time for a request, apart from what the blob's bytes take at the lowest speed."""


PIECE_BYTES = 16 << 10
"""Bytes of a piece of a file that is read in pieces."""

REST_SECONDS = 60.0
"""Time for which a slow store is asked after others."""


class TooLarge(Rejected):
    """A blob has more bytes than allowed; ``start`` are those that were allowed."""

    def __init__(self, message: str, start: bytes = b"") -> None:
        super().__init__(message)
        self.start = start


class Blobs(Protocol):
    """A store of blobs. Threads may share it; every method raises `Unavailable` if the store fails."""

    def put(self, root: bytes, data: bytes) -> None:
        """Stores ``data`` under ``root``. If a blob is already there, it stays."""

    def get(self, root: bytes, limit: int) -> bytes | None:
        """Returns the blob under ``root``, or None if the store has none.

        Raises:
            TooLarge: the blob has more than ``limit`` bytes.
        """

    def has(self, root: bytes) -> bool:
        """Returns whether a blob is stored under ``root``."""

    def drop(self, root: bytes) -> None:
        """Deletes the blob under ``root``, if there is one."""


class OwnBlobs(Blobs, Protocol):
    """A store of this party's own, from which it serves others."""

    def pieces(self, root: bytes) -> tuple[int, Iterator[bytes]] | None:
        """Returns the size of the blob under ``root``, and its bytes in pieces read as they are asked for, or None."""


class DirectoryBlobs:
    """Blobs in a local directory, which is created on the first `put`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def put(self, root: bytes, data: bytes) -> None:
        """Stores ``data`` under ``root``: flushed to disk, then renamed, so that no partial file is ever visible."""
        path = self.path(root)
        with accessing(f"write to the blob store {self.directory}", Unavailable):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                write_atomically(path, data)
                _flush_directory(path.parent)

    def get(self, root: bytes, limit: int) -> bytes | None:
        """Returns the blob under ``root``, or None. See `Blobs.get`."""
        with accessing(f"read from the blob store {self.directory}", Unavailable):
            try:
                with self.path(root).open("rb") as file:
                    data = file.read(limit + 1)
            except FileNotFoundError:
                return None
        if len(data) > limit:
            raise TooLarge(f"the blob 0x{root.hex()} has more than {limit} bytes", data[:limit])
        return data

    def has(self, root: bytes) -> bool:
        """Returns whether a blob is stored under ``root``."""
        with accessing(f"read from the blob store {self.directory}", Unavailable):
            return self.path(root).exists()

    def drop(self, root: bytes) -> None:
        """Deletes the blob under ``root``, if there is one."""
        with accessing(f"write to the blob store {self.directory}", Unavailable):
            self.path(root).unlink(missing_ok=True)

    def pieces(self, root: bytes) -> tuple[int, Iterator[bytes]] | None:
        """Returns size and pieces of the blob under ``root``, or None. See `OwnBlobs.pieces`."""
        with accessing(f"read from the blob store {self.directory}", Unavailable):
            try:
                return self.path(root).stat().st_size, self._pieces(root)
            except FileNotFoundError:
                return None

    def path(self, root: bytes) -> Path:
        """Returns the file of the blob under ``root``, whether or not there is one."""
        name = root.hex()
        return self.directory / name[:2] / name

    def _pieces(self, root: bytes) -> Iterator[bytes]:
        with (
            accessing(f"read from the blob store {self.directory}", Unavailable),
            self.path(root).open("rb", buffering=0) as file,
        ):
            while piece := file.read(PIECE_BYTES):
                yield piece


MARKER = "assize-store"
"""Object by which a store of blobs is known: whatever else answers at its address lacks this one, too."""


class ObjectBlobs:
    """Blobs called ``name`` in an object store. A blob counts as absent only where the store has ``MARKER``."""

    def __init__(self, objects: Objects, name: str) -> None:
        self._objects, self._name = objects, name
        self._marked = False

    def put(self, root: bytes, data: bytes) -> None:
        """Stores ``data`` under ``root``. Where a blob is already there, it stays, or the same bytes replace it."""
        if not self._marked:
            self._objects.put(MARKER, b"blobs")
            self._marked = True
        if not self.has(root):
            self._objects.put(self._key(root), data)

    def get(self, root: bytes, limit: int) -> bytes | None:
        """Returns the blob under ``root``, or None. See `Blobs.get`."""
        try:
            size = self._objects.head(self._key(root)).size
            if size > limit:
                start = bytes(self._objects.read_range(self._key(root), 0, limit))
                raise TooLarge(f"the blob 0x{root.hex()} has more than {limit} bytes", start)
            return self._objects.read(self._key(root))
        except NotThere:
            self._check_marker()
            return None

    def has(self, root: bytes) -> bool:
        """Returns whether a blob is stored under ``root``."""
        try:
            self._objects.head(self._key(root))
        except NotThere:
            self._check_marker()
            return False
        return True

    def drop(self, root: bytes) -> None:
        """Deletes the blob under ``root``, if there is one."""
        self._objects.delete([self._key(root)])

    def pieces(self, root: bytes) -> tuple[int, Iterator[bytes]] | None:
        """Returns size and pieces of the blob under ``root``, or None. See `OwnBlobs.pieces`."""
        try:
            return self._objects.pieces(self._key(root))
        except NotThere:
            self._check_marker()
            return None

    def _check_marker(self) -> None:
        """Raises ``Unavailable`` where this is not the store that blobs were put into."""
        try:
            self._objects.head(MARKER)
        except NotThere as error:
            raise Unavailable(
                f"{self._objects.url} lacks {MARKER}, which the first blob brings: check the bucket and its address"
            ) from error

    def _key(self, root: bytes) -> str:
        name = root.hex()
        return f"{self._name}/{name[:2]}/{name}"


class HttpBlobs:
    """Blobs under a URL that ends in a slash. Redirects are not followed.

    The server answers GET and HEAD; a writable one also PUT (honouring ``If-None-Match: *``) and DELETE.
    """

    def __init__(self, url: str, client: httpx.Client) -> None:
        if not is_http(url):
            raise Rejected(f"invalid blob URL {url[:100]!r}: expected http(s)://host/…/")
        self._url, self._client = url, client

    def put(self, root: bytes, data: bytes) -> None:
        """Stores ``data`` under ``root``. If a blob is already there, it stays."""
        self._request("PUT", root, {200, 201, 204, 412}, data)

    def get(self, root: bytes, limit: int) -> bytes | None:
        """Returns the blob under ``root``, or None. See `Blobs.get`; reading stops at the limit."""
        url = self._address(root)
        with (
            within(GRACE_SECONDS) as deadline,
            reaching(self._url[:160]),
            self._client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
        ):
            if response.status_code == 404:
                return None
            _expect(response, {200})
            data = bytearray()
            try:
                for piece in deadline.extended(pieces(response, limit, self._url[:160])):
                    data += piece
            except Rejected as error:
                raise TooLarge(str(error), bytes(data)) from error
            return bytes(data)

    def has(self, root: bytes) -> bool:
        """Returns whether a blob is stored under ``root``."""
        return self._request("HEAD", root, {200, 404}) == 200

    def drop(self, root: bytes) -> None:
        """Deletes the blob under ``root``, if there is one."""
        self._request("DELETE", root, {200, 202, 204, 404})

    def _address(self, root: bytes) -> str:
        return f"{self._url}0x{root.hex()}"

    def _request(self, method: str, root: bytes, expected: Collection[int], content: bytes | None = None) -> int:
        headers = {} if content is None else {"If-None-Match": "*"}
        with within(GRACE_SECONDS, len(content or b"")), reaching(self._url[:160]):
            response = self._client.request(method, self._address(root), content=content, headers=headers)
            return _expect(response, expected)


def _open_directory(url: str, _: httpx.Client) -> DirectoryBlobs:
    path = Path(unquote(urlsplit(url).path))
    if not path.is_absolute():
        raise Rejected(f"invalid blob URL {url[:100]!r}: expected file:/path")
    return DirectoryBlobs(path)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A kind of store, by the scheme of its URLs.

    ``open`` takes the URL and a shared HTTP client, and raises `Rejected` if the URL is invalid. Only a ``public``
    store may be named by other parties: a submission must not make a validator read local files.
    """

    open: Callable[[str, httpx.Client], Blobs]
    public: bool


SCHEMES: dict[str, Scheme] = {
    "file": Scheme(_open_directory, public=False),
    "http": Scheme(HttpBlobs, public=True),
    "https": Scheme(HttpBlobs, public=True),
}
"""Every kind of store."""


class BlobStores:
    """Opens stores by URL over keep-alive HTTP clients. Threads may share it.

    Other parties may name public addresses only. ``trusted`` returns the URLs of coordinators that this node's operator
    named, or chose by joining their runs: whatever is on the same host and port may be named as well, wherever that is.
    """

    def __init__(self, timeout_seconds: float = 10.0, trusted: Callable[[], Iterable[str]] = tuple) -> None:
        timeout = httpx.Timeout(timeout_seconds, connect=3.0)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)  # callers' threads bound them
        client = functools.partial(httpx.Client, timeout=timeout, limits=limits, verify=certificate_authorities())
        self._client = bounded(client(follow_redirects=False))
        direct = client(follow_redirects=False, trust_env=False)
        self._public_client = bounded(public_only(direct))
        self._trusted = trusted
        self._lock = threading.Lock()
        self._rests_until: dict[str, float] = {}

    def close(self) -> None:
        """Closes the connections; requests in progress fail."""
        self._client.close()
        self._public_client.close()

    def rest(self, url: str) -> None:
        """Has the store at ``url`` asked after others for a while."""
        now = time.monotonic()
        with self._lock:
            self._rests_until = {other: until for other, until in self._rests_until.items() if until > now}
            self._rests_until[url] = now + REST_SECONDS

    def resting(self, url: str) -> bool:
        """Returns whether the store at ``url`` is to be asked after others."""
        return self._rests_until.get(url, 0.0) > time.monotonic()

    def open(self, url: str) -> Blobs:
        """Opens the store at a URL from this node's own configuration.

        Raises:
            Rejected: invalid URL, or no store is registered for its scheme.
        """
        return self._scheme(url).open(url, self._client)

    def open_public(self, url: str, ports: Collection[int] = PUBLIC_PORTS) -> Blobs:
        """Opens the store at a URL from another party, on one of ``ports``.

        Raises:
            Rejected: invalid URL, not the URL of a public store, or one that leads to no public address or other ports.
        """
        scheme = self._scheme(url)
        if not scheme.public:
            raise Rejected(f"refused blob URL {url[:100]!r}: its scheme is reserved for local configuration")
        return scheme.open(url, self.client_for(url, ports) if is_http(url) else self._public_client)

    def client_for(self, url: str, ports: Collection[int] = PUBLIC_PORTS) -> httpx.Client:
        """Returns the client for another party's URL: one that reaches public addresses only, unless it is trusted.

        Raises:
            Rejected: no http(s) URL, or one that leads to no public address or other ports.
        """
        if not is_http(url):
            raise Rejected(f"invalid URL {url[:100]!r}: expected http(s)://host/…")
        if origin_of(url) in map(origin_of, self._trusted()):
            return self._client
        admit(url, ports)
        return self._public_client

    def fetch(self, url: str, root: bytes, limit: int) -> bytes:
        """Returns the blob ``root`` from the store at a URL from another party.

        Raises:
            Rejected: not the URL of a public store, or the blob has more than ``limit`` bytes.
            Unavailable: everything else, an absent blob included: it may arrive later.
        """
        data = self.open_public(url).get(root, limit)
        if data is None:
            raise Unavailable(f"{url[:160]} does not have the blob 0x{root.hex()}")
        return data

    def _scheme(self, url: str) -> Scheme:
        name = url.partition(":")[0].lower()
        if name not in SCHEMES:
            raise Rejected(f"invalid blob URL {url[:100]!r}: expected one of {', '.join(SCHEMES)}")
        return SCHEMES[name]


def _expect(response: httpx.Response, expected: Collection[int]) -> int:
    if response.status_code not in expected:
        raise Unavailable(f"{str(response.url)[:160]} answered {response.status_code}")
    return response.status_code


def _flush_directory(directory: Path) -> None:
    """Makes a rename in ``directory`` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
