"""Object stores: S3 and what speaks it, GCS, Azure, or a directory, named by URL and reached through ``obstore``.

    s3://bucket/prefix      AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and so on, or the file AWS_SHARED_CREDENTIALS_FILE
    gs://bucket/prefix      GOOGLE_APPLICATION_CREDENTIALS, the file of a service account
    az://container/prefix   AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY and so on
    file:///directory

Only a machine's own settings name one, never another party. Credentials and endpoints come from the environment or a
file, as the provider's own tools read them.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from protocol.errors import Misconfigured, Unavailable
from protocol.transport.http import NotThere

SCHEMES = ("s3", "gs", "az", "file")

PREFIXES = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
"""Beginnings of the variables that concern a scheme."""

CLIENT_SECONDS = {"timeout": 60, "connect_timeout": 5}
"""Longest time for one try of a request, and for its connection."""

RETRIES, RETRY_SECONDS = 3, 10
"""Most further tries of a request that failed, and the time after which none is begun: callers retry, too."""

SIGNED_HEADERS = {"az": {"x-ms-blob-type": "BlockBlob"}}
"""Headers that a signed upload must carry."""

PIECE_BYTES = 128 << 10
"""Bytes of a piece of an object that is read in pieces. Each is a request of its own, so that a slow reader holds no
connection to the store, and one piece in memory."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's key, its size in bytes, a tag that changes with its bytes, and when it was written (unix seconds)."""

    key: str
    size: int
    tag: str
    written_at: float


def is_object_store(url: str) -> bool:
    """Returns whether ``url`` is one of an object store."""
    return url.split("://", 1)[0] in SCHEMES and "://" in url


class Objects:
    """The objects of a bucket or directory, under a prefix. Threads may share it.

    Every method raises ``Unavailable`` if the store does not answer, or refuses; those that read raise ``NotThere``,
    one kind of it, for an object that the store does not have.
    """

    def __init__(self, url: str) -> None:
        """Raises ``Misconfigured`` for an invalid URL or credentials, and where the package is not installed."""
        try:
            import obstore
            from obstore.exceptions import BaseError
            from obstore.store import LocalStore, from_url
        except ImportError as error:
            raise Misconfigured("object stores need the package obstore: pip install 'assize[objects]'") from error
        self.url, self._api, self._failure = url, obstore, BaseError
        scheme = url.split("://", 1)[0]
        try:
            self._store: Any = from_url(url, mkdir=True) if scheme == "file" else from_url(url, **_options(scheme))
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise Misconfigured(f"invalid object store {url!r}: {str(error).splitlines()[0]}") from error
        self.signs = not isinstance(self._store, LocalStore)
        self.signed_headers = SIGNED_HEADERS.get(scheme, {})

    def head(self, key: str) -> StoredObject:
        """Describes an object."""
        with self._reaching(key):
            return _described(self._api.head(self._store, key))

    def read(self, key: str) -> bytes:
        """Returns an object; its size is the caller's to check first."""
        with self._reaching(key):
            return bytes(self._api.get(self._store, key).bytes())

    def read_range(self, key: str, start: int, end: int) -> memoryview:
        """Returns the bytes of an object from ``start`` to ``end``, fewer where it ends before."""
        with self._reaching(key):
            return memoryview(self._api.get_range(self._store, key, start=start, end=end))

    def pieces(self, key: str) -> tuple[int, Iterator[bytes]]:
        """Returns an object's size, and its bytes in pieces that are read as they are asked for."""
        size = self.head(key).size
        ends = range(PIECE_BYTES, size + PIECE_BYTES, PIECE_BYTES)
        return size, (bytes(self.read_range(key, end - PIECE_BYTES, min(end, size))) for end in ends)

    def put(self, key: str, data: bytes) -> None:
        """Writes an object over what is there."""
        with self._reaching(key):
            self._api.put(self._store, key, data)

    def listed(self, prefix: str) -> Iterator[StoredObject]:
        """Yields the objects below a prefix."""
        with self._reaching(prefix):
            for page in self._api.list(self._store, prefix):
                yield from map(_described, page)

    def keys(self, prefix: str) -> set[str]:
        """Returns the keys below a prefix."""
        return {found.key for found in self.listed(prefix)}

    def delete(self, keys: Collection[str]) -> None:
        """Removes objects; those that are not there are no error."""
        if keys:
            with self._reaching("objects"):
                try:
                    self._api.delete(self._store, sorted(keys))
                except FileNotFoundError:  # some stores tell; the others are removed one by one then
                    for key in keys:
                        self._delete_one(key)

    def sign_put(self, key: str, seconds: int) -> str:
        """Returns a URL to which anyone may PUT the object, again and again, for some seconds."""
        with self._reaching(key):
            return str(self._api.sign(self._store, "PUT", key, timedelta(seconds=seconds)))

    def _delete_one(self, key: str) -> None:
        try:
            self._api.delete(self._store, key)
        except FileNotFoundError:
            return

    @contextmanager
    def _reaching(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise NotThere(f"{self.url} does not have {key}") from error
        except (self._failure, OSError, ValueError) as error:
            raise Unavailable(f"{self.url} does not answer for {key}: {str(error).splitlines()[0][:200]}") from error


def _described(found: Any) -> StoredObject:
    tag = str(found["e_tag"] or f"{found['last_modified']}-{found['size']}")
    return StoredObject(found["path"], found["size"], tag, found["last_modified"].timestamp())


def _options(scheme: str) -> dict[str, Any]:
    retrying = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)}
    client: dict[str, Any] = {name: timedelta(seconds=most) for name, most in CLIENT_SECONDS.items()}
    # Options given replace those of the environment, of which this one matters: to an endpoint of one's own by http.
    client["allow_http"] = os.environ.get(f"{PREFIXES[scheme]}_ALLOW_HTTP", "").lower() in ("1", "true", "yes")
    config = _shared_credentials() if scheme == "s3" and "AWS_ACCESS_KEY_ID" not in os.environ else {}
    return {"retry_config": retrying, "client_options": client} | ({"config": config} if config else {})


def _shared_credentials() -> dict[str, str]:
    """Returns the keys of ``AWS_PROFILE`` in AWS's shared credentials file; none if there is no such file.

    Raises ``Misconfigured`` for a file that was named and cannot be read.
    """
    named = os.environ.get("AWS_SHARED_CREDENTIALS_FILE")
    path = Path(named) if named else Path.home() / ".aws" / "credentials"
    profile, parser = os.environ.get("AWS_PROFILE", "default"), configparser.ConfigParser(interpolation=None)
    try:
        if not parser.read(path) and named:
            raise Misconfigured(f"cannot read the credentials file {named}")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise Misconfigured(f"invalid credentials file {path}: expected [profile] and NAME = value lines") from error
    if not parser.has_section(profile):
        if named:
            raise Misconfigured(f"the credentials file {named} has no profile {profile!r}")
        return {}
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    return {name: parser[profile][name] for name in names if name in parser[profile]}
