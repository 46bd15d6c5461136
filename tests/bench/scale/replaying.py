"""Workers of the measured market in one process: they beat, wait for work, and hand in real artifacts again.

Everything goes over HTTP as a worker's does, signed by its key. Nothing is generated: a job takes the time that its
seed says, and its artifact is one that a worker made before, with the job's own place in it.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import quantiles
from typing import Any

import aiohttp

from protocol.garbage import collect_rarely
from protocol.node.wallet import Wallet
from protocol.transport.connections import allow_files
from protocol.wire import api, auth, rollout
from protocol.wire.assignments import Leaf, pack_leaves
from protocol.wire.rollout import Artifact
from tests.coordinator.swarm import root_of

RETRY_SECONDS = 1.0
ARRIVING_SECONDS = 0.2
"""Time between the starts of two of them."""


@dataclass
class Heard:
    """Seconds that requests took, by kind, and how many were refused; a wait for work counts from its end.

    Seconds are those since the last node arrived.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    arrived: int = 0
    version: int = 0
    """The newest that a round was opened with, which all of them have loaded since."""

    def arrives(self, of_all: int) -> None:
        """Counts a node that was answered for the first time; with the last, tells so and begins to count anew."""
        self.arrived += 1
        if self.arrived == of_all:
            everything = [seconds for of_kind in self.seconds.values() for seconds in of_kind]
            print(json.dumps({"arrival_p99": quantiles(everything, n=100)[98]}), flush=True)
            self.seconds.clear()

    def note(self, kind: str, seconds: float) -> None:
        """Counts one answered request."""
        self.seconds.setdefault(kind, []).append(seconds)


class Worker:
    """One node of the run."""

    def __init__(self, node: int, key: Wallet, plan: Plan, http: aiohttp.ClientSession, heard: Heard) -> None:
        self._node, self._key, self._plan, self._http, self._heard = node, key, plan, http, heard
        self._beat_seconds, self._wait_seconds = 5.0, 2
        self._busy: set[int] = set()
        self._jobs: set[asyncio.Task[None]] = set()

    async def live(self, after: float) -> None:
        """Beats and works, ``after`` so many seconds, until it is cancelled."""
        await asyncio.sleep(after)
        await asyncio.gather(self._beating(), self._working())

    async def _beating(self) -> None:
        first = True
        while True:
            beat = api.Heartbeat(node=self._node, version=self._heard.version, offer=api.Offer())
            answer = await self._ask("heartbeat", "POST", "/heartbeats", beat.model_dump_json().encode())
            if answer is not None:
                if first:
                    self._heard.arrives(self._plan.workers)
                first = False
                reply = api.HeartbeatReply.model_validate_json(answer)
                self._beat_seconds = reply.heartbeat_seconds or self._beat_seconds
                self._wait_seconds = int(reply.wait_seconds or self._wait_seconds)
            await asyncio.sleep(self._beat_seconds)

    async def _working(self) -> None:
        while True:
            path = f"/nodes/{self._node}/assignments?wait={self._wait_seconds}"
            answer = await self._ask("assignments", "GET", path, waits=self._wait_seconds)
            if answer is None:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for each in api.Assignments.model_validate_json(answer).rounds:
                self._heard.version = max(self._heard.version, each.policy_version)
                if each.round not in self._busy:
                    self._busy.add(each.round)
                    job = asyncio.create_task(self._work(each))
                    self._jobs.add(job)
                    job.add_done_callback(self._jobs.discard)
            if self._busy:  # a worker that generates does not ask for more
                await asyncio.gather(*self._jobs)

    async def _work(self, given: api.Assignment) -> None:
        await asyncio.sleep(self._plan.seconds(given.round, self._node, given.deadline - time.time()))
        leaves = [Leaf(job, 1_000, await self._upload(given, job)) for job in given.jobs]
        packed, uri = pack_leaves(leaves), f"{self._plan.url}/artifacts/"
        place = (self._plan.chain_id, self._plan.rounds, given.round, self._node, given.beacon, packed, uri)
        signature = self._key.sign_typed(auth.submission(*place))
        body = api.SubmissionRequest(
            node=self._node, beacon=given.beacon, leaves=packed, uri=uri, signature=signature
        ).model_dump_json()
        while await self._ask("submission", "POST", f"/rounds/{given.round}/submissions", body.encode()) is None:
            await asyncio.sleep(RETRY_SECONDS)
        self._busy.discard(given.round)

    async def _upload(self, given: api.Assignment, job: int) -> bytes:
        round_, root = given.round, root_of(given.policy_version)
        made = self._plan.artifacts[(round_ + job) % len(self._plan.artifacts)]
        data = rollout.encode(replace(made, round=round_, job=job, node=self._node, manifest_root=root))
        path = f"/rounds/{round_}/jobs/{job}/artifact"
        while (answer := await self._ask("upload", "PUT", path, data)) is None:
            await asyncio.sleep(RETRY_SECONDS)
        return api.ArtifactReceipt.model_validate_json(answer).root

    async def _ask(self, kind: str, method: str, path: str, body: bytes = b"", waits: float = 0) -> bytes | None:
        audience = auth.Audience(self._plan.chain_id, self._plan.rounds, self._plan.run)
        once = (secrets.randbits(256), int(time.time()) + 60)
        headers = auth.sign_request(self._key, audience, method, path, body, *once)
        began = time.perf_counter()
        try:
            async with self._http.request(method, self._plan.url + path, data=body or None, headers=headers) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            self._heard.refused[f"{kind}: {type(error).__name__}"] += 1
            return None
        took = time.perf_counter() - began
        if answer.status != 200:
            self._heard.refused[f"{kind}: {answer.status} {content[:120].decode()}"] += 1
            return None
        if not waits:
            self._heard.note(kind, took)
        elif took > waits:  # one that ends before has waited for a round, for nobody knows how long
            self._heard.note(kind, took - waits)
        return content


@dataclass(frozen=True, slots=True)
class Plan:
    """Shared by all workers: place, artifacts to hand in again, and how long a job takes."""

    url: str
    chain_id: int
    rounds: str
    run: int
    artifacts: Sequence[Artifact]
    shortest: float
    longest: float
    workers: int

    def seconds(self, round_: int, node: int, left: float) -> float:
        """Seconds that a node works at a round: spread evenly, and well before the deadline."""
        asked = random.Random(round_ << 32 | node).uniform(self.shortest, self.longest)
        return max(0.0, min(asked, left / 2))


async def play(given: dict[str, Any]) -> Heard:
    """Lets all workers live until the input ends."""
    folder = Path(given["artifacts"])
    artifacts = [rollout.decode(file.read_bytes()) for file in sorted(folder.iterdir())]
    names = ("url", "chain_id", "rounds", "run", "shortest", "longest")
    place = {name: given[name] for name in names}
    plan = Plan(artifacts=artifacts, workers=len(given["workers"]), **place)
    heard = Heard()
    # Nodes that beat every 30 s find their connections ended, so that each request opens one.
    pool, patience = aiohttp.TCPConnector(limit=0, force_close=True), aiohttp.ClientTimeout(60)
    async with aiohttp.ClientSession(connector=pool, timeout=patience) as http:
        keys = [(node, Wallet("key", bytes.fromhex(key))) for node, key in given["workers"]]
        workers = [Worker(node, key, plan, http, heard) for node, key in keys]
        collect_rarely()
        living = [asyncio.create_task(each.live(nth * ARRIVING_SECONDS)) for nth, each in enumerate(workers)]
        await asyncio.to_thread(sys.stdin.readline)
        for each in living:
            each.cancel()
        ended = await asyncio.gather(*living, return_exceptions=True)
    failed = [each for each in ended if isinstance(each, Exception)]
    if failed:
        raise failed[0]
    return heard


if __name__ == "__main__":
    told = json.loads(sys.stdin.readline())
    allow_files(4 * len(told["workers"]) + 100)
    found = asyncio.run(play(told))
    print(json.dumps({"seconds": found.seconds, "refused": found.refused}))
