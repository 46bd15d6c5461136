"""Jobs and fines since a moment, artifacts that a node uploaded, and what processes hold: for faults to compare."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil

from ledger import facts
from protocol.wire.auth import HEADER_ADDRESS
from tests.chaos.between import Answer, Asked
from tests.chaos.network import Network

READERS = ("validator-1", "validator-2", "validator-3", "trainer")
"""Those who fetch artifacts."""

MORE_BYTES, MORE_THREADS = 128 << 20, 48
"""Growth that is none: of memory and of files in some versions, and of threads."""

WEIGHTS = {"weights", "versions", "origin"}


def newest_round(network: Network) -> int:
    """Returns the number of the newest round."""
    network.scoreboard.refresh()
    return max(round_.round for round_ in network.scoreboard.book.all(facts.Round))


def jobs_since(network: Network, first: int) -> list[facts.Job]:
    """Returns the jobs of rounds after the ``first``, as their verdicts stand."""
    network.scoreboard.refresh()
    return [job for job in network.scoreboard.book.all(facts.Job) if job.round > first]


def any_judged(network: Network, first: int) -> bool:
    """Returns whether a job of a round after the ``first`` has a verdict."""
    return any(job.verdict != "submitted" for job in jobs_since(network, first))


def fines_since(network: Network, first: int) -> Iterator[str]:
    """Yields a sentence for each bond that an honest node lost by a round after the ``first``."""
    network.scoreboard.refresh()
    names = {network.established.nodes[party.name]: party.name for party in network.parties if party.honest}
    for slash in network.scoreboard.book.all(facts.Slash):
        if slash.node in names and slash.round > first:
            yield f"M: {names[slash.node]} lost {slash.amount} wei for {slash.cause} in round {slash.round}"


class Uploads:
    """Artifacts that the node with this ``key`` uploaded, by root."""

    def __init__(self, key: str) -> None:
        self._key, self.roots = key.lower(), set[str]()

    @classmethod
    def by(cls, network: Network, node: int) -> Uploads:
        """Returns those of a node from now on."""
        return cls(network.chain.latest().node(node).key)

    def note(self, asked: Asked, answer: Answer) -> None:
        """Notes the root of an upload that was taken."""
        headers = {name.lower(): value.lower() for name, value in asked.headers.items()}
        own = headers.get(HEADER_ADDRESS.lower()) == self._key and b'"root":"' in answer.body
        if own and asked.method == "PUT" and answer.taken:
            self.roots.add(answer.body.split(b'"root":"')[1][:66].decode())

    def asked_for(self, asked: Asked) -> str | None:
        """Returns the root of the artifact of the node that a request asks for."""
        root = asked.path.removeprefix("/artifacts/")
        return root if asked.method == "GET" and root != asked.path and root in self.roots else None


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds: bytes of memory, threads, and bytes of files other than weights."""

    memory: int
    threads: int
    files: int

    @classmethod
    def by(cls, network: Network) -> dict[str, Held]:
        """What each of those who fetch artifacts holds."""
        return {name: cls._of(network, name) for name in READERS}

    @classmethod
    def _of(cls, network: Network, name: str) -> Held:
        process, size = psutil.Process(network.pid(name)), 0
        for path in network.layout.state(name).rglob("*"):
            if not WEIGHTS & set(path.parts):
                with suppress(FileNotFoundError):
                    size += path.stat().st_size
        return cls(process.memory_info().rss, process.num_threads(), size)

    def beyond(self, before: Held, name: str) -> Iterator[str]:
        """Yields a sentence for each thing of which there is much more than before."""
        if self.memory - before.memory > MORE_BYTES:
            yield f"{name} took {(self.memory - before.memory) >> 20} MiB of memory more"
        if self.files - before.files > MORE_BYTES:
            yield f"{name} wrote {(self.files - before.files) >> 20} MiB"
        if self.threads - before.threads > MORE_THREADS:
            yield f"{name} has {self.threads - before.threads} threads more"


WEIGHTS = {"weights", "versions", "origin"}
