"""Databases locked, disks full, the queue forgotten; what travels between processes doubled, late, cut and dripped."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import redis

from protocol.wire.artifact_blob import HEAD_BYTES
from tests.chaos.between import Answer, Asked, Forward
from tests.chaos.fault import MOMENT_SECONDS, fault
from tests.chaos.killing import is_chunk
from tests.chaos.network import Network, stored
from tests.chaos.watching import Held, Uploads, jobs_since, newest_round

LOCKED_SECONDS = 12.0
"""Longer than a writer waits."""
FULL_SECONDS = 12.0
TROUBLED_SECONDS = 20.0


@fault(18, "Redis flushed")
def redis_flushed(network: Network) -> list[str]:
    """Leases and queue are gone; a request that was carried out is refused when it comes again."""
    heard = _Recorded()
    with network.api_between.interfering(heard):
        network.wait_for("a signed request", lambda: heard.taken is not None, MOMENT_SECONDS)
    with redis.Redis(port=network.layout.ports["redis"]) as client:
        client.flushall()
    assert heard.taken is not None
    again = network.api_between.forward(heard.taken)
    return [] if 400 <= again.status < 500 else [f"a replayed request was answered with {again.status}"]


class _Recorded:
    """Keeps the last signed request that was taken."""

    def __init__(self) -> None:
        self.taken: Asked | None = None

    def __call__(self, asked: Asked, forward: Forward) -> Answer | None:
        answer = forward(asked)
        if asked.method == "POST" and answer.taken:
            self.taken = asked
        return answer


@fault(19, "Redis killed and started again")
def redis_restarted(network: Network) -> list[str]:
    """It is away for some seconds, and comes back knowing nothing."""
    network.kill("redis")
    time.sleep(5)
    found = [f"{name} ended while Redis was away" for name in network.fallen() if name != "redis"]
    for name in network.fallen():
        network.restart(name)
    return found


@fault(20, "the coordinator's database locked")
def database_locked(network: Network) -> list[str]:
    """Nothing that must be kept is acknowledged while nothing can be written."""
    path = network.layout.state("coordinator") / "coordinator.db"
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as database:
        database.execute("BEGIN IMMEDIATE")
        with network.api_between.interfering(answers := _Answers()):
            time.sleep(LOCKED_SECONDS)
            found = [f"{path} was acknowledged though nothing could be written" for path in answers.taken]
        database.execute("ROLLBACK")
    return found + [f"{name} ended while its database was locked" for name in network.fallen()]


class _Answers:
    """Which requests with a body were taken."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.refused: list[tuple[str, int]] = []

    def __call__(self, asked: Asked, forward: Forward) -> Answer | None:
        answer = forward(asked)
        if asked.method in ("PUT", "POST"):
            if answer.taken:
                self.taken.append(asked.path)
            else:
                self.refused.append((asked.path, answer.status))
        return answer


@fault(21, "disk full")
def disk_full(network: Network) -> list[str]:
    """Of coordinator, ledger and a worker: uploads are refused with 503, and no file is seen that is not whole."""
    starved = network.without_disk("coordinator", "coordinator-driver", "ledger", "worker-1")
    with network.api_between.interfering(answers := _Answers()), starved:
        time.sleep(FULL_SECONDS)
        taken, refused = list(answers.taken), list(answers.refused)
    found = [f"{path} was acknowledged though the disk was full" for path in taken]
    found += [
        f"{path} was answered with {status}, the disk being full"
        for path, status in refused
        if status >= 500 and status != 503
    ]
    found += [f"{path} is no whole file" for path in _partial(network)]
    found += [f"{name} ended, its disk being full" for name in network.fallen()]
    for name in network.fallen():
        network.restart(name)
    return found


def _partial(network: Network) -> list[Path]:
    """Blobs of artifacts that are not as long as was noted."""
    state = network.layout.state("coordinator")
    uploads = stored(state / "coordinator.db", "SELECT root, size FROM uploads")
    sizes = {root.hex(): HEAD_BYTES + size for root, size in uploads}
    held = [path for path in (state / "artifacts").glob("*/*") if not path.name.startswith(".")]
    return [
        path
        for path in held
        if path.stat().st_size == 0 or sizes.get(path.name, path.stat().st_size) != path.stat().st_size
    ]


@fault(22, "requests doubled, late and out of order")
def disordered(network: Network) -> list[str]:
    """Whatever is sent to the coordinator arrives twice, some of it much later, and after what was sent later."""
    with network.api_between.interfering(_Disordered()):
        time.sleep(TROUBLED_SECONDS)
    return []


class _Disordered:
    def __init__(self) -> None:
        self._chance = Random(22)

    def __call__(self, asked: Asked, forward: Forward) -> Answer | None:
        if asked.method not in ("PUT", "POST"):
            return forward(asked)
        time.sleep(self._chance.choice((0.0, 0.0, 0.5, 3.0)))
        answer = forward(asked)
        time.sleep(self._chance.choice((0.0, 0.2)))
        again = forward(asked)
        return answer if self._chance.random() < 0.5 else again


@fault(23, "files, chunks and manifests cut short or flipped")
def damaged(network: Network) -> list[str]:
    """Every third artifact, and every other chunk and manifest, is not what was stored."""
    with (
        network.api_between.interfering(
            _Damaging(3, lambda asked: asked.path.startswith(("/artifacts/", "/evidence/")))
        ),
        network.relay_between.interfering(_Damaging(2, lambda asked: True)),
        network.origin_between.interfering(_Damaging(2, is_chunk)),
    ):
        time.sleep(TROUBLED_SECONDS)
    return []


class _Damaging:
    """Flips a bit of each so-manieth answer, or leaves out its end."""

    def __init__(self, each: int, chosen: Callable[[Asked], bool]) -> None:
        self._each, self._chosen = each, chosen
        self._chance = Random(23)

    def __call__(self, asked: Asked, forward: Forward) -> Answer | None:
        answer = forward(asked)
        if asked.method != "GET" or not self._chosen(asked) or not answer.body or self._chance.randrange(self._each):
            return answer
        place = self._chance.randrange(len(answer.body))
        if self._chance.random() < 0.5:
            return replace(answer, body=answer.body[:place])
        flipped = bytearray(answer.body)
        flipped[place] ^= 1 << self._chance.randrange(8)
        return replace(answer, body=bytes(flipped))


@fault(26, "a dripping store")
def dripping_store(network: Network) -> list[str]:
    """All artifacts of one worker are sent at ten bytes a second, to whoever asks, for some versions.

    No other worker's job is refused, and who fetches holds no more memory, threads and files than before.
    """
    victim = network.established.nodes[DRIPPED]
    store, first, before = _DrippingStore(Uploads.by(network, victim)), newest_round(network), Held.by(network)
    with network.api_between.interfering(store), network.second_between.interfering(store):
        network.goes_on(DRIPPED_VERSIONS)
        network.wait_for("a judged job whose artifact dripped", lambda: _judged(network, first, victim), MOMENT_SECONDS)
        after = Held.by(network)
    found = [] if store.asked else ["nobody asked the dripping store"]
    found += [
        f"M: job {job.job} of round {job.round}, of node {job.node}, is {job.verdict} though its artifact was served"
        for job in jobs_since(network, first)
        if job.node == network.established.nodes["worker-1"] and job.verdict in ("fraud", "void", "unavailable")
    ]
    found += [
        f"M: job {job.job} of round {job.round} is {job.verdict}, its artifact having been dripped"
        for job in jobs_since(network, first)
        if job.node == victim and job.verdict == "fraud"
    ]
    return found + [sentence for name in after for sentence in after[name].beyond(before[name], name)]


DRIPPED = "worker-2"
DRIPPED_VERSIONS = 3


class _DrippingStore:
    """Drips the artifacts of a node; ``asked`` is how often it was asked for them."""

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads
        self.asked = 0

    def __call__(self, asked: Asked, forward: Forward) -> Answer | None:
        answer = forward(asked)
        self._uploads.note(asked, answer)
        if self._uploads.asked_for(asked) is not None:
            self.asked += 1
            return replace(answer, dripped=True)
        return answer


def _judged(network: Network, first: int, node: int) -> bool:
    return any(job.node == node and job.verdict != "submitted" for job in jobs_since(network, first))
