"""Sources of weights, chosen by how well each has served so far.

A source's weight is its success (moving average, 0 to 1) times its bandwidth (moving average, bytes per second),
divided by the requests in flight to it. A failed source rests for a while, twice as long each time; one that sent wrong
bytes rests longest. Resting sources are asked only if no other is left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import httpx
import structlog

from protocol.broadcast.object_store import ObjectStore
from protocol.broadcast.ranges import RangeBuffer, RangeClient
from protocol.broadcast.traffic import Pacer
from protocol.certificates import certificate_authorities
from protocol.deadlines import Deadline, bounded, within
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.transport.http import NotThere, is_http, pieces, reaching
from protocol.transport.objects import is_object_store

MEMORY = 0.7
"""Weight of the old average when a new measurement is folded in."""
FIRST_REST_SECONDS, LONGEST_REST_SECONDS = 0.5, 60.0
LEAST_BYTES_PER_SECOND = 64 * 1024
"""A source slower than this, after a grace of `GRACE_SECONDS`, counts as failed: it may stall us on purpose."""
GRACE_SECONDS = 15.0
HEAD_SECONDS = 2 * GRACE_SECONDS
"""Longest time for a request, apart from what the answer's body takes at the lowest speed."""
DOUBT_SECONDS = 600.0
"""Time for which no delta is used of whoever signed a false one."""
_SUCCESS_FLOOR = 0.05


@dataclass(slots=True)
class SourceHealth:
    """Record of one source. ``bytes_per_second`` is None until it has served; its rest ends at ``rests_until``."""

    success: float = 1.0
    bytes_per_second: float | None = None
    in_flight: int = 0
    failures: int = 0
    rests_until: float = 0.0


@dataclass(slots=True)
class _Timing:
    """Start of a request, later by what it has waited for our own cap."""

    started: float


class Sources:
    """The base URLs of a run's origin and relays, with connections that are kept. Threads may share it.

    ``received`` counts the bytes of chunks and frames that came, right or wrong.
    """

    def __init__(
        self,
        urls: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
        most_bytes_per_second: int = 0,
    ) -> None:
        """Caps what all threads together receive at ``most_bytes_per_second``, unless that is 0."""
        for url in urls:
            if not is_http(url) and not is_object_store(url):
                raise Misconfigured(
                    f"invalid source of weights {url!r}: expected http(s)://host, or s3://, gs://, az:// or file:///"
                )
        if not urls:
            raise Misconfigured("no source of weights: name at least one relay or the origin")
        self.health_by_url = {url.rstrip("/"): SourceHealth() for url in urls}
        self._doubted_until: dict[str, float] = {}
        self.received = 0
        self._objects = {url: ObjectStore(url) for url in self.health_by_url if is_object_store(url)}
        self._clock, self._random = clock, random or Random()
        self._lock = threading.Lock()
        self._pacer = Pacer(most_bytes_per_second)
        limits = httpx.Limits(max_keepalive_connections=64, keepalive_expiry=60.0)
        self._ranges = RangeClient()
        timeout = httpx.Timeout(15.0, connect=3.0)
        self._client = bounded(httpx.Client(timeout=timeout, limits=limits, verify=certificate_authorities()))

    @property
    def urls(self) -> list[str]:
        """Every source, whatever its health."""
        return list(self.health_by_url)

    @property
    def all_objects(self) -> bool:
        """True if every source is an object store."""
        return len(self._objects) == len(self.health_by_url)

    def close(self) -> None:
        """Closes the connections; requests in flight fail."""
        self._client.close()
        self._ranges.close()

    def choose(self, excluded: Collection[str] = ()) -> str | None:
        """Draws a source by weight among those not ``excluded``; returns None if none is left."""
        with self._lock:
            now = self._clock()
            left = {url: health for url, health in self.health_by_url.items() if url not in excluded}
            awake = {url: health for url, health in left.items() if health.rests_until <= now}
            pool = awake or left
            if not pool:
                return None
            return self._random.choices(list(pool), weights(list(pool.values())))[0]

    def download(self, url: str, path: str, into: RangeBuffer) -> None:
        """Receives the body of ``url + path`` into ``into``, asking only for what follows the bytes already there.

        Updates the source's health either way. The caller verifies the bytes, and calls `lied` if they are wrong.

        Raises:
            Unavailable: the source failed; what arrived stays in ``into``.
            Rejected: more bytes came than there is memory for.
        """
        held, timing = into.filled, _Timing(self._clock())
        self._count(url, 1)
        try:
            with within(HEAD_SECONDS) as deadline:
                arrived = partial(self._arrived, url, deadline, timing, into)
                if (objects := self._objects.get(url)) is not None:
                    objects.receive(path, into, arrived)
                else:
                    self._ranges.receive(url, path, into, arrived)
        except Unavailable:
            self._failed(url, FIRST_REST_SECONDS)
            raise
        except Rejected:
            self.lied(url)
            raise
        finally:
            self._count(url, -1)
        self._served(url, max(into.filled - held, 0), self._clock() - timing.started)

    def _arrived(self, url: str, deadline: Deadline, timing: _Timing, into: RangeBuffer, size: int) -> None:
        """Keeps the cap, and gives the request time by what has come."""
        deadline.allow(size)
        with self._lock:
            self.received += size
        if wait := self._pacer.wait_for(size):
            time.sleep(wait)
            deadline.extend(wait)
            timing.started += wait  # our own cap is not the source's slowness
        if self._clock() - timing.started > GRACE_SECONDS + into.filled / LEAST_BYTES_PER_SECOND:
            raise Unavailable(f"{url} is too slow: under {LEAST_BYTES_PER_SECOND} bytes per second")

    def lied(self, url: str) -> None:
        """Records that ``url`` sent wrong bytes."""
        structlog.get_logger("sources").warning("source_lied", source=url)
        self._failed(url, LONGEST_REST_SECONDS)

    def doubt(self, maker: str) -> None:
        """Records that the address ``maker`` signed a delta which does not make what it should."""
        structlog.get_logger("sources").warning("false_delta", maker=maker)
        with self._lock:
            self._doubted_until[maker] = self._clock() + DOUBT_SECONDS

    def doubted(self, maker: str) -> bool:
        """Returns whether deltas by ``maker`` are left aside for a while."""
        with self._lock:
            return self._doubted_until.get(maker, 0.0) > self._clock()

    def get(self, url: str, path: str, limit: int, known: str | None = None) -> tuple[bytes, str] | None:
        """Returns a small answer and its ETag, or None if it still has the ETag ``known``.

        Raises:
            Unavailable: the source failed.
            Rejected: more than ``limit`` bytes came.
        """
        if (objects := self._objects.get(url)) is not None:
            return objects.get(path, limit, known)
        into = bytearray()
        headers = {"If-None-Match": known} if known else {}
        try:
            tag = self._request(url, path, headers, into, limit)
        except NotThere:  # anyone may name what nobody has
            raise
        except Unavailable:
            self._failed(url, FIRST_REST_SECONDS)
            raise
        return None if tag is None else (bytes(into), tag)

    def _request(self, url: str, path: str, headers: dict[str, str], into: bytearray, limit: int) -> str | None:
        """Reads one small answer into ``into`` and returns its ETag, "" without one; None if nothing changed (304)."""
        headers = {"Accept-Encoding": "identity", **headers}
        with (
            within(HEAD_SECONDS) as deadline,
            reaching(url),
            self._client.stream("GET", url + path, headers=headers) as response,
        ):
            if response.status_code == 304:
                return None
            if response.status_code == 404:
                raise NotThere(f"{url} does not have {path}")
            if response.status_code != 200:
                raise Unavailable(f"{url} answered {response.status_code} for {path}")
            for piece in deadline.extended(pieces(response, limit, f"{url}{path}")):
                into += piece
            return str(response.headers.get("etag", ""))

    def _count(self, url: str, requests: int) -> None:
        with self._lock:
            self.health_by_url[url].in_flight += requests

    def _served(self, url: str, size: int, seconds: float) -> None:
        with self._lock:
            health = self.health_by_url[url]
            measured = size / max(seconds, 1e-6)
            before = measured if health.bytes_per_second is None else health.bytes_per_second
            health.bytes_per_second = MEMORY * before + (1 - MEMORY) * measured
            health.success = MEMORY * health.success + (1 - MEMORY)
            health.failures, health.rests_until = 0, 0.0

    def _failed(self, url: str, rest_seconds: float) -> None:
        with self._lock:
            health = self.health_by_url[url]
            health.success *= MEMORY
            health.failures += 1
            rest = min(rest_seconds * 2.0 ** min(health.failures - 1, 16), LONGEST_REST_SECONDS)
            health.rests_until = self._clock() + rest


def weights(sources: Sequence[SourceHealth]) -> list[float]:
    """Returns each source's weight. One never measured counts as the fastest known, so that it is tried."""
    fastest = max((health.bytes_per_second or 0.0 for health in sources), default=0.0) or 1.0
    return [
        max(health.success, _SUCCESS_FLOOR) * (health.bytes_per_second or fastest) / (1 + health.in_flight)
        for health in sources
    ]
