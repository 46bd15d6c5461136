"""Everybody else: jurors who accept whatever was handed in, a trainer that consumes it, and who reads the ledger."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from protocol.chain.structs import State
from protocol.errors import AssizeError
from protocol.wire.reasons import Reason
from tests.coordinator.swarm import Swarm

LOOK_SECONDS = 1.0
READ_SECONDS = 0.5


class Trading:
    """Votes on each round once its committee is drawn, and publishes the next version once it is tallied.

    ``lost`` counts the jobs of rounds that have ended without an accepted artifact, ``settled`` the others.
    """

    def __init__(self, swarm: Swarm) -> None:
        self._swarm = swarm
        self._version = 0
        self._open: dict[int, State] = {}
        self._next = 1
        self.settled = self.lost = self.rounds = 0

    def step(self) -> None:
        """Does whatever is due in each round."""
        reader, run = self._swarm.chain.latest(), self._swarm.run
        while reader.round(self._next).state is not State.NONE:
            self._open[self._next] = State.NONE
            self._next += 1
        for number in sorted(self._open):
            round_ = reader.round(number)
            if round_.run != run:
                continue
            if round_.state is State.VOTING and self._open[number] is not State.VOTING:
                self._open[number] = State.VOTING
                jobs = [job for job in range(round_.jobs) if round_.submitted >> job & 1]
                self._swarm.vote(number, dict.fromkeys(jobs, Reason.ACCEPTED))
            elif round_.state is State.TALLIED and self._open[number] is not State.TALLIED:
                self._open[number] = State.TALLIED
                self._version += 1
                self._swarm.publish(self._version, number, round_.accepted & ~round_.fraud)
            elif round_.state in (State.SETTLED, State.VOID):
                accepted = 0 if round_.state is State.VOID else (round_.accepted & ~round_.fraud).bit_count()
                self.settled, self.lost = self.settled + accepted, self.lost + round_.jobs - accepted
                self.rounds += 1
                del self._open[number]


@contextmanager
def repeated(task: Callable[[], object], pause: float) -> Iterator[None]:
    """Repeats ``task`` in a thread while the block runs; a failure of a service is tried again."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(pause):
            try:
                task()
            except (AssizeError, httpx.HTTPError) as error:
                print(f"  {type(error).__name__}: {str(error)[:200]}", flush=True)
            except BaseException:
                _thread.interrupt_main()
                raise

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Reader:
    """An auditor who asks the ledger about this and that."""

    def __init__(self, http: httpx.Client, run: int, nodes: list[int]) -> None:
        self._http, self._run, self._nodes = http, run, nodes
        self._asked = 0
        self.seconds: list[float] = []

    def ask(self) -> None:
        """Asks one question."""
        node = self._nodes[self._asked % len(self._nodes)]
        paths = ("/health", f"/runs/{self._run}", "/rounds?limit=20", f"/nodes/{node}", "/events?limit=100")
        began = time.perf_counter()
        self._http.get(paths[self._asked % len(paths)]).raise_for_status()
        self.seconds.append(time.perf_counter() - began)
        self._asked += 1
