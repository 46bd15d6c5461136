"""Judging by background workers: real processes on a real Redis, killed, overtaken and forgotten.

Two validators have their jobs judged through the queue and one judges in its own process, so every verdict is one that
both ways of judging came to. Artifacts lie behind a gate, which holds a worker at its job for as long as needed.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
import redis

from deploy.localnet.processes import free_port
from protocol.chain.events import RoundOpened
from protocol.chain.structs import State
from protocol.errors import Misconfigured
from protocol.transport.run_coordinators import RunCoordinators
from protocol.wire import evidence
from protocol.wire.reasons import Reason
from tests.conftest import ROOT
from tests.coordinator.conftest import redis_process, redis_url
from tests.dripping import drip
from tests.typing_in import typed_here
from tests.validator.conftest import Quiet
from tests.validator.scene import MAX_UNITS, Scene
from validator.journal import VoteJournal
from validator.judging.claims import Claim
from validator.queue.checker import Checker
from validator.queue.exchange import Exchange
from validator.queue.orders import Kind, decode_order
from validator.records import rewards
from validator.records.rewards import SampledGroup
from validator.review.replay import replay, sentences
from validator.service import locked

__all__ = ["redis_process", "redis_url"]

PATIENCE_SECONDS = 240.0


class Gate(Quiet):
    """Serves artifacts while the gate is open."""

    open = threading.Event()
    dripped = ""
    asked_at = math.inf

    def do_GET(self) -> None:
        """Waits where somebody asks for an artifact; drips one."""
        if self.path == self.dripped:
            Gate.asked_at = min(Gate.asked_at, time.monotonic())
            self.send_response(200)
            self.end_headers()
            drip(self.wfile.write)
            self.close_connection = True
            return
        if self.path.startswith("/artifacts/"):
            self.open.wait(PATIENCE_SECONDS)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # whoever asked was killed meanwhile
            super().do_GET()


@pytest.fixture
def file_server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory and the URL it is served under, artifacts behind the gate."""
    directory = tmp_path / "files"
    for name in ("rules", "artifacts", "evidence"):
        (directory / name).mkdir(parents=True)
    Gate.open.set()
    Gate.dripped, Gate.asked_at = "", math.inf
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Gate, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield directory, f"http://127.0.0.1:{server.server_address[1]}"
    Gate.open.set()
    server.shutdown()
    server.server_close()


class Crew:
    """Background workers of one queue, each a process with a folder of its own."""

    def __init__(self, scene: Scene, queue_url: str, directory: Path) -> None:
        self.redis = redis.Redis.from_url(queue_url)
        self._directory, self._processes = directory, list[subprocess.Popen[bytes]]()
        self._environment = os.environ | {
            "ASSIZE_VALIDATOR_QUEUE_URL": queue_url,
            "ASSIZE_VALIDATOR_COORDINATOR_URLS": json.dumps([scene.url]),
            "ASSIZE_VALIDATOR_SOURCES": f'["{scene.origin_url}"]',
        }

    def start(self) -> subprocess.Popen[bytes]:
        """One more worker."""
        number = len(self._processes)
        folder = self._directory / f"background-{number}"
        with (self._directory / f"background-{number}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "assize", "validator", "background"],
                env=self._environment | {"ASSIZE_VALIDATOR_STATE_DIR": str(folder)},
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    @property
    def leases(self) -> int:
        """Jobs that somebody is at."""
        return len(self.redis.keys("assize:validator:lease:*"))

    def end(self) -> None:
        """Ends them all."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(PATIENCE_SECONDS)
        self.redis.close()

    @property
    def said(self) -> str:
        """What they logged."""
        return "".join(path.read_text() for path in sorted(self._directory.glob("background-*.log")))


@pytest.fixture
def crew(tmp_path: Path, redis_url: str) -> Iterator[Callable[[Scene], Crew]]:
    """Makes the crew of a scene."""
    made: list[Crew] = []

    def make(scene: Scene) -> Crew:
        made.append(Crew(scene, redis_url, tmp_path))
        return made[-1]

    yield make
    Gate.open.set()
    for one in made:
        one.end()


def until(scene: Scene, true: Callable[[], bool], crew: Crew) -> None:
    """Lets the validators work until something holds."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < give_up, crew.said[-4000:]
        for juror in scene.jurors:
            juror.validator.tick()
        time.sleep(0.02)


def tallied(scene: Scene, round_: int) -> bool:
    """Whether the votes are counted."""
    return scene.chain.latest().round(round_).state >= State.TALLIED


def judged(scene: Scene) -> dict[int, tuple[evidence.JobEvidence, ...]]:
    """What each juror found, as it was signed."""
    found = {}
    for revealed in scene.reveals():
        juror = next(one for one in scene.jurors if one.node == revealed.juror)
        data = VoteJournal(juror.directory).evidence(revealed.evidence_root)
        assert data is not None
        found[juror.node] = evidence.parse_signed(data, revealed.evidence_root).evidence.jobs
    assert len(found) == 3
    return found


def assert_all_found(scene: Scene, *reasons: Reason) -> None:
    """Three jurors came to ``reasons``; those who had the jobs judged by others hold the same evidence, to the byte."""
    found = judged(scene)
    assert {tuple(job.reason for job in jobs) for jobs in found.values()} == {reasons}
    first, second = ([evidence.JOB_JSON.encode(job) for job in found[juror.node]] for juror in scene.jurors[:2])
    assert first == second


def test_two_workers_share_the_jobs_and_the_verdict_is_that_of_a_daemon_alone(
    make_scene: Callable[..., Scene], crew: Callable[[Scene], Crew], redis_url: str
) -> None:
    scene = make_scene(queue_url=redis_url)
    workers = crew(scene)
    workers.start()
    workers.start()
    opened = scene.open()
    honest, edited = scene.work(opened)
    Gate.open.clear()
    scene.submit(opened, [honest, scene.edit(edited)], {0, 1})
    until(scene, lambda: workers.leases == 2, workers)  # each takes one order at a time
    Gate.open.set()
    until(scene, lambda: tallied(scene, opened.round), workers)
    assert_all_found(scene, Reason.ACCEPTED, Reason.SAMPLING_FRAUD)
    assert workers.said.count('"jobs": 1') + workers.said.count("jobs=1") == 4, workers.said


def test_what_a_killed_worker_was_at_another_takes_up(
    make_scene: Callable[..., Scene], crew: Callable[[Scene], Crew], redis_url: str
) -> None:
    scene = make_scene(queue_url=redis_url)
    workers = crew(scene)
    first = workers.start()
    opened = scene.open()
    Gate.open.clear()
    scene.submit(opened, scene.work(opened), {0, 1})
    until(scene, lambda: workers.leases == 1, workers)
    first.send_signal(signal.SIGKILL)
    first.wait(10)
    Gate.open.set()
    workers.start()
    until(scene, lambda: tallied(scene, opened.round), workers)
    assert_all_found(scene, Reason.ACCEPTED, Reason.ACCEPTED)


def test_a_daemon_started_again_in_the_middle_commits_the_same_vote(
    make_scene: Callable[..., Scene], crew: Callable[[Scene], Crew], redis_url: str
) -> None:
    scene = make_scene(queue_url=redis_url)
    workers = crew(scene)
    workers.start()
    opened = scene.open()
    Gate.open.clear()
    scene.submit(opened, scene.work(opened), {0, 1})
    until(scene, lambda: workers.leases == 1, workers)
    for juror in scene.jurors[:2]:
        juror.close()
        juror.validator, juror.close = juror.build()
    Gate.open.set()
    until(scene, lambda: tallied(scene, opened.round), workers)
    assert_all_found(scene, Reason.ACCEPTED, Reason.ACCEPTED)


def test_condemned_owners_are_void_and_sampled_until_honest_work_clears_them(
    make_scene: Callable[..., Scene],
    crew: Callable[[Scene], Crew],
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a juror sampled of two rounds is put into its database; it samples the next one by itself."""
    monkeypatch.setattr(rewards, "CLEARING_GROUPS", 16)
    scene = make_scene(queue_url=redis_url)
    workers = crew(scene)
    workers.start()
    groups, size = scene.court.rules.groups_per_job, scene.court.rules.samples_per_group

    def played() -> RoundOpened:
        opened = scene.open()
        scene.submit(opened, scene.work(opened), {0, 1})
        until(scene, lambda: tallied(scene, opened.round), workers)
        scene.settle(opened)
        scene.tick()
        return opened

    def put(opened: RoundOpened, own: float, drawn: float) -> None:
        for juror in scene.jurors:
            (settled,) = (each for each in juror.validator._rounds.settled if each.round == opened.round)
            for job in (0, 1):
                told = [SampledGroup((own,) * size, (drawn,) * 2 * size)] * groups
                juror.validator._history.steering.learn(settled, job, told)

    for _ in range(2):
        steered = played()
        assert scene.chain.latest().round(steered.round).accepted == 0b11
        put(steered, 1.0, 0.0)
    void = played()
    seen = scene.chain.latest().round(void.round)
    assert (seen.accepted, seen.fraud) == (0, 0)
    votes = [vote for vote in scene.reveals() if vote.round == void.round]
    assert {vote.reasons for vote in votes} == {bytes([Reason.STEERED] * 2)}
    data = VoteJournal(scene.jurors[0].directory).evidence(
        next(vote.evidence_root for vote in votes if vote.juror == scene.jurors[0].node)
    )
    assert data is not None
    replayed = replay(scene.settings(tmp_path), data)
    assert replayed.confirmed, list(sentences(replayed))
    assert any("own samples" in note for note in replayed.notes)

    stores = [juror.validator._history.steering for juror in scene.jurors]
    until(scene, lambda: not any(steering.to_sample() for steering in stores), workers)
    sampled = [steering._store.samples(void.round, scene.beacon) for steering in stores]
    own = [{job: [group.own for group in groups] for job, groups in found.items()} for found in sampled]
    assert own[0] == own[1] == own[2], "rewards of the artifact are the same for a worker of the queue and a daemon"
    assert {len(group.sampled) for found in sampled for groups in found.values() for group in groups} == {2 * size}
    for fair in (void, played()):
        put(fair, 0.0, 1.0)
    cleared = played()
    assert scene.chain.latest().round(cleared.round).accepted == 0b11


def test_what_redis_forgets_is_ordered_again(
    make_scene: Callable[..., Scene], crew: Callable[[Scene], Crew], redis_url: str
) -> None:
    scene = make_scene(queue_url=redis_url)
    workers = crew(scene)
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1})
    until(scene, lambda: workers.redis.llen("assize-validator") > 0, workers)
    workers.redis.flushall()
    Gate.open.clear()
    workers.start()
    until(scene, lambda: workers.leases == 1, workers)
    workers.redis.flushall()
    Gate.open.set()
    until(scene, lambda: tallied(scene, opened.round), workers)
    assert_all_found(scene, Reason.ACCEPTED, Reason.ACCEPTED)


def test_a_job_whose_store_is_silent_is_void_where_the_rest_can_be_had(
    make_scene: Callable[..., Scene], crew: Callable[[Scene], Crew], redis_url: str
) -> None:
    scene = make_scene(queue_url=redis_url)
    workers = crew(scene)
    workers.start()
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {1})
    until(scene, lambda: tallied(scene, opened.round), workers)
    assert_all_found(scene, Reason.UNAVAILABLE, Reason.ACCEPTED)


def test_a_store_that_drips_holds_up_neither_a_worker_nor_other_jobs_of_its_order(
    make_scene: Callable[..., Scene], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protocol.transport.blobs.GRACE_SECONDS", 8.0)
    scene = make_scene()
    opened, deployment = scene.open(), scene.chain.deployment
    jobs = scene.work(opened)
    Gate.dripped = f"/artifacts/0x{jobs[0].root.hex()}"
    scene.submit(opened, jobs, {0, 1})
    claims = [
        Claim(
            *(deployment.chain_id, deployment.rounds, opened.round, job.job, scene.worker_node),
            *(scene.beacon, scene.beacon, scene.manifest_root, job.units, MAX_UNITS, job.root),
            *(f"{scene.url}/artifacts/", False),
        )
        for job in jobs
    ]
    order = scene.order(0, tuple(claims))
    client, exchange = RunCoordinators(()), Exchange("redis://127.0.0.1:1/0")
    with contextlib.closing(Checker(exchange, client, tmp_path / "weights", (scene.origin_url,))) as checker:
        dripped, honest = checker.answers(order, claims)
        assert time.monotonic() - Gate.asked_at < 8.0, "the worker waited until the store was cut off"
        assert (dripped.kind, honest.kind) == (Kind.LATER, Kind.JUDGED), "not tried long enough to be silent"
        started = time.monotonic()
        assert [answer.kind for answer in checker.answers(order, claims[:1])] == [Kind.LATER]
        assert time.monotonic() - started < 1.0, "it is waited for once"
        while checker.answers(order, claims[:1])[0].kind is Kind.LATER:
            assert time.monotonic() - Gate.asked_at < 12.0
            time.sleep(0.1)
        assert checker.answers(order, claims[:1])[0].kind is Kind.SILENT


def test_daemons_vote_in_time_on_what_a_dripping_store_does_not_delay(
    make_scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("protocol.transport.blobs.GRACE_SECONDS", "validator.judging.fetching.GRACE_SECONDS"):
        monkeypatch.setattr(place, 5.0)
    scene = make_scene()
    opened = scene.open()
    jobs = scene.work(opened)
    Gate.dripped = f"/artifacts/0x{jobs[0].root.hex()}"
    scene.submit(opened, jobs, {0, 1})
    scene.tick_until(opened.round, State.TALLIED, 60)
    assert time.monotonic() - Gate.asked_at < 30, "until the time to commit is nearly over"
    seen = scene.chain.latest().round(opened.round)
    assert (seen.accepted, seen.fraud) == (0b11, 0b01), "job 0 is unavailable, job 1 accepted"


def test_answers_that_are_none_are_this_sides_failure(make_scene: Callable[..., Scene], redis_url: str) -> None:
    scene = make_scene(queue_url=redis_url)
    queue = redis.Redis.from_url(redis_url)
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1})
    give_up = time.monotonic() + PATIENCE_SECONDS
    while len(scene.reveals()) < 3:
        assert time.monotonic() < give_up
        for juror in scene.jurors:
            juror.validator.tick()
        while (message := queue.rpop("assize-validator")) is not None:
            ((text,), _, _) = json.loads(base64.b64decode(json.loads(message)["body"]))
            for key in decode_order(text).keys:
                queue.set(f"assize:validator:answer:{key}", b"judged:{}")
        time.sleep(0.02)
    queue.close()
    own = scene.jurors[-1].node
    assert {revealed.reasons for revealed in scene.reveals() if revealed.juror != own} == {b"\xff"}


@pytest.mark.parametrize("there", [True, False])
def test_without_workers_or_without_redis_validators_abstain_in_time(
    make_scene: Callable[..., Scene], redis_url: str, there: bool
) -> None:
    scene = make_scene(queue_url=redis_url if there else f"redis://127.0.0.1:{free_port()}/0")
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1})
    scene.tick_until(opened.round, State.TALLIED, PATIENCE_SECONDS, late=True)
    own = scene.jurors[-1].node
    assert {revealed.reasons for revealed in scene.reveals() if revealed.juror != own} == {b"\xff"}


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"QUEUE_URL": ""}, 2, "ASSIZE_VALIDATOR_QUEUE_URL"),
        ({"QUEUE_URL": "redis://127.0.0.1:1/0"}, 3, "the queue's Redis does not answer"),
        ({"QUEUE_URL": "http://127.0.0.1:1"}, 2, "invalid queue_url"),
        ({"NO_SUCH": "1"}, 2, "unknown setting"),
    ],
)
def test_wrong_settings_end_a_worker_with_one_sentence(
    tmp_path: Path, changes: dict[str, str], code: int, words: str
) -> None:
    settings = {"COORDINATOR_URLS": '["http://127.0.0.1:1"]', "STATE_DIR": str(tmp_path)} | changes
    given = {f"ASSIZE_VALIDATOR_{name}": value for name, value in settings.items()}
    done = typed_here(["validator", "background"], os.environ | given)
    assert done.code == code, done.err
    assert words in done.err
    assert "Traceback" not in done.err


def test_a_state_folder_that_cannot_be_locked_is_told_in_a_sentence(tmp_path: Path) -> None:
    with locked(tmp_path / "state"), pytest.raises(Misconfigured, match="another background worker uses"):
        locked(tmp_path / "state")
    (tmp_path / "file").touch()
    with pytest.raises(Misconfigured, match=r"cannot lock .*file: File exists"):
        locked(tmp_path / "file")
