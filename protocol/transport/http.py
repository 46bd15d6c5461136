"""HTTP requests to untrusted servers: URLs checked first, bodies bounded, failures turned into `Unavailable`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx

from protocol.errors import Rejected, Unavailable


class NotThere(Unavailable):
    """A source that answers without what it was asked for."""


def is_http(url: str) -> bool:
    """Returns whether ``url`` is an absolute http:// or https:// URL with a host."""
    try:
        parsed, split = httpx.URL(url), urlsplit(url)  # urlsplit finds unbalanced brackets, httpx does not
        host, _ = split.hostname, split.port  # a port beyond 65535 is a ValueError
    except (httpx.InvalidURL, ValueError, TypeError):
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host) and bool(host)


@contextmanager
def reaching(place: str) -> Iterator[None]:
    """Turns failures to connect to ``place``, or to read from it, into `Unavailable`."""
    try:
        yield
    # ValueError: a host that no resolver takes. RuntimeError: the client was closed by another thread.
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RuntimeError) as error:
        raise Unavailable(f"{place} does not answer: {type(error).__name__}") from error


def pieces(response: httpx.Response, limit: int, place: str) -> Iterator[bytes]:
    """Yields the body of a streamed response as it arrives.

    Raises:
        Rejected: more than ``limit`` bytes came; those up to the limit were yielded, the rest is not read.
    """
    size = 0
    for piece in response.iter_raw():
        size += len(piece)
        if size > limit:
            yield piece[: len(piece) - (size - limit)]
            raise Rejected(f"{place} sent more than {limit} bytes")
        yield piece
