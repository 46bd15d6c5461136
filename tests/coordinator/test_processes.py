"""The coordinator's two processes: killed and started again, without Redis for a while, with wrong settings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
import redis

from deploy.localnet.processes import free_port
from protocol.chain.structs import State
from protocol.node.wallet import Keystores
from protocol.transport.coordinator import CoordinatorClient
from protocol.wire import api, auth, rollout
from protocol.wire.assignments import Leaf
from protocol.wire.reasons import Reason
from tests.conftest import ROOT, Anvil, listens, redis_server
from tests.coordinator.swarm import JOBS, Party, Swarm, artifact
from tests.coordinator.test_driver import mirror_differences
from tests.postgresql import PostgreSQL
from tests.typing_in import typed_here

PASSWORD = "a password for tests"
PATIENCE_SECONDS = 120.0


@pytest.fixture
def environment(swarm: Swarm, tmp_path: Path) -> dict[str, str]:
    """What ``assize coordinator`` reads, as a person would set it."""
    keystores, password = Keystores(tmp_path / "keystores"), tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    keystores.keep("coordinator", bytes(swarm.coordinator._account.key), PASSWORD, scrypt_n=1024)
    settings = swarm.settings(tick_seconds=0.1)
    names = ("rpc_url", "addresses", "keystore", "state_dir", "run", "rules", "redis_url", "jobs_per_round")
    names += ("first_round_nodes", "relay_wait_seconds", "lease_seconds", "tick_seconds")
    values = {name: str(getattr(settings, name)) for name in names}
    values |= {"keystore_directory": str(keystores.directory), "password_file": str(password)}
    return {f"ASSIZE_COORDINATOR_{name.upper()}": value for name, value in values.items()}


def command(environment: dict[str, str], *words: str, **changes: str) -> subprocess.Popen[str]:
    """Starts ``assize`` with these words."""
    given = {f"ASSIZE_COORDINATOR_{name.upper()}": value for name, value in changes.items()}
    return subprocess.Popen(
        [sys.executable, "-m", "assize", *words],
        env=os.environ | environment | given,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def driving(environment: dict[str, str], ended_by: signal.Signals = signal.SIGTERM) -> Iterator[subprocess.Popen[str]]:
    """``assize coordinator drive``, ended by a signal."""
    process = command(environment, "coordinator", "drive")
    try:
        yield process
    finally:
        process.send_signal(ended_by)
        process.communicate(timeout=PATIENCE_SECONDS)


def until(true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Waits until something holds, and fails with the process's own words where it does not."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not true():
        if process.poll() is not None or time.monotonic() > give_up:
            process.kill()
            raise AssertionError(process.communicate()[1][-4000:])
        time.sleep(0.05)


def test_killed_at_any_moment_it_goes_on_where_it_was(swarm: Swarm, api: str, environment: dict[str, str]) -> None:
    reader = swarm.chain.latest
    with driving(environment, signal.SIGKILL) as process:
        until(lambda: swarm.client(swarm.workers[0]).health().head > 0, process)
        swarm.beat()
        until(lambda: reader().round_count() == 2, process)
    worked = {worker.node: swarm.client(worker).assignments(worker.node)[0] for worker in swarm.workers}
    for worker in swarm.workers:
        swarm.work(worker, worked[worker.node])
    client = redis.Redis.from_url(swarm.redis_url)
    client.flushall()
    client.close()
    with driving(environment, signal.SIGKILL) as process:
        until(lambda: reader().round(1).state is State.VOTING, process)
    swarm.vote(1, dict.fromkeys(range(JOBS), Reason.ACCEPTED))
    with driving(environment) as process:
        until(lambda: reader().round(1).state is State.SETTLED, process)
        until(lambda: swarm.client(swarm.workers[0]).status().rounds_settled == 1, process)
    assert process.returncode == 0
    assert reader().round_count() == 2
    assert mirror_differences(swarm) == []


def test_it_goes_on_once_redis_is_back(swarm: Swarm, api: str, environment: dict[str, str], tmp_path: Path) -> None:
    port = free_port()
    with redis_server(tmp_path, port) as url:
        process = command(environment, "coordinator", "drive", redis_url=url)
        until(lambda: swarm.client(swarm.workers[0]).health().head > 0, process)
    time.sleep(5)
    with redis_server(tmp_path, port):
        seen = swarm.client(swarm.workers[0]).health().head
        swarm.anvil.rpc.call("anvil_mine", "0x1")
        until(lambda: swarm.client(swarm.workers[0]).health().head > seen, process)
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"rpc_url": "http://127.0.0.1:1"}, 3, "no RPC answers"),
        ({"run": "9"}, 2, "there is no run 9"),
        ({"redis_url": "redis://127.0.0.1:1/0"}, 3, "Redis does not answer"),
        ({"password_file": "/dev/null"}, 2, "password file"),
        ({"rules": "pyproject.toml"}, 2, "rules file"),
        ({"no_such_setting": "1"}, 2, "unknown setting"),
        ({"addresses": "nowhere.json"}, 2, "cannot read the address file"),
    ],
)
def test_wrong_settings_end_it_with_one_sentence(
    environment: dict[str, str], changes: dict[str, str], code: int, words: str
) -> None:
    given = {f"ASSIZE_COORDINATOR_{name.upper()}": value for name, value in changes.items()}
    done = typed_here(["coordinator", "drive"], os.environ | environment | given)
    assert done.code == code, done.err
    assert words in done.err
    assert "Traceback" not in done.err


def test_a_taken_port_ends_the_server_with_one_sentence(environment: dict[str, str], anvil: Anvil) -> None:
    given = environment | {"ASSIZE_COORDINATOR_PORT": str(anvil.port)}
    done = typed_here(["coordinator", "serve"], os.environ | given)
    assert done.code == 2, done.err
    assert f"port {anvil.port}" in done.err


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_server_ends_when_told_and_answers_who_waits(
    swarm: Swarm, environment: dict[str, str], processes: str
) -> None:
    port = free_port()
    process = command(environment, "coordinator", "serve", port=str(port), api_processes=processes)
    until(lambda: answers(port), process)
    worker, swarm.url = swarm.workers[0], f"http://127.0.0.1:{port}"
    with driving(environment), ThreadPoolExecutor(1) as waiting:
        until(lambda: swarm.client(worker).health().head > 0, process)
        asked_at, answer = time.monotonic(), waiting.submit(swarm.client(worker).assignments, worker.node, 20)
        time.sleep(0.5)
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
        assert answer.result() == []
    assert time.monotonic() - asked_at < 10
    assert process.returncode in ((0, -signal.SIGTERM) if processes == "1" else (0,)), said
    assert "Traceback" not in said


@contextmanager
def serving_in(
    environment: dict[str, str], processes: int, **changes: str
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """``assize coordinator serve`` in so many processes; it and its port."""
    port = free_port()
    changes |= {"port": str(port), "api_processes": str(processes)}
    process = command(environment, "coordinator", "serve", **changes)
    try:
        until(lambda: len(psutil.Process(process.pid).children()) == processes and answers(port), process)
        yield process, port
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)


def free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    ports = [free_port()]
    while len(ports) < count:
        following = free_port()
        ports = [*ports, following] if following == ports[-1] + 1 else [following]
    return ports[0]


def answered_at(metrics_port: int) -> float:
    """How many requests for assignments a process has answered."""
    lines = httpx.get(f"http://127.0.0.1:{metrics_port}/metrics", trust_env=False).text.splitlines()
    counted = [line for line in lines if line.startswith("assize_http_request_seconds_count") and "assignments" in line]
    return sum(float(line.split()[-1]) for line in counted)


def head(port: int) -> int:
    return int(httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).json()["head"])


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_a_request_that_was_used_at_one_process_is_refused_by_all(swarm: Swarm, environment: dict[str, str]) -> None:
    worker, path = swarm.workers[0], f"/nodes/{swarm.workers[0].node}/assignments"
    metrics = free_ports(3)
    with serving_in(environment, 3, api_metrics_port=str(metrics)) as (process, port), driving(environment):
        until(lambda: head(port) > 0 and all(listens(metrics + number) for number in range(3)), process)
        audience = auth.Audience(swarm.chain.chain_id, swarm.chain.deployment.rounds, swarm.run)
        headers = auth.sign_request(worker.key, audience, "GET", path, b"", 2**255, int(time.time()) + 100)

        def ask(_: int) -> int:
            answer = httpx.get(f"http://127.0.0.1:{port}{path}", headers=headers, trust_env=False, timeout=60)
            return answer.status_code

        with ThreadPoolExecutor(8) as many:
            codes = Counter(many.map(ask, range(40)))
        answered = [answered_at(metrics + number) for number in range(3)]
    assert codes == {200: 1, 409: 39}
    assert sum(answered) == 40
    assert sum(count > 0 for count in answered) > 1, "one process answered all of them"
    assert process.returncode == 0


def test_a_process_that_is_killed_ends_the_server(environment: dict[str, str]) -> None:
    with serving_in(environment, 2) as (process, port):
        psutil.Process(process.pid).children()[0].kill()
        process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 1
        assert not listens(port)


def test_more_processes_than_ports_for_their_metrics_are_one_sentence(environment: dict[str, str]) -> None:
    given = {"ASSIZE_COORDINATOR_API_METRICS_PORT": "65535", "ASSIZE_COORDINATOR_API_PROCESSES": "2"}
    done = typed_here(["coordinator", "serve"], os.environ | environment | given)
    assert done.code == 2, done.err
    assert "invalid api_metrics_port 65535: expected at most 65534" in done.err


@pytest.mark.long
def test_rounds_go_on_whatever_becomes_of_one_driving_process_or_of_the_database(
    swarm: Swarm, environment: dict[str, str], tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory(prefix="assize-postgresql-") as folder:
        database = PostgreSQL(Path(folder))
        try:
            _outlives_each(swarm, environment | {"ASSIZE_COORDINATOR_DATABASE_URL": database.url}, tmp_path, database)
        finally:
            database.stop()


def _outlives_each(swarm: Swarm, environment: dict[str, str], folder: Path, database: PostgreSQL) -> None:
    """Two API processes, and two that drive as if on two machines: killed, stopped, and without their database."""
    started: list[subprocess.Popen[str]] = []
    reader = swarm.chain.latest

    def drive(name: str) -> subprocess.Popen[str]:
        machine = folder / name
        machine.mkdir(exist_ok=True)
        own = environment | {"TMPDIR": str(machine)}
        started.append(command(own, "coordinator", "drive", state_dir=str(machine / "state")))
        return started[-1]

    def serve() -> str:
        port = free_port()
        started.append(command(environment, "coordinator", "serve", port=str(port)))
        until(lambda: listens(port), started[-1])
        return f"http://127.0.0.1:{port}"

    def comes_to(number: int, state: State, process: subprocess.Popen[str]) -> None:
        until(lambda: reader().round_count() >= number and reader().round(number).state is state, process)

    def at(url: str, worker: Party) -> CoordinatorClient:
        deployment = swarm.chain.deployment
        return CoordinatorClient(url, worker.key, deployment.chain_id, deployment.rounds, swarm.run)

    def hand_in(number: int, worker: Party) -> None:
        """Asks one process for the work, uploads to the other, and submits to the first."""
        with closing(at(urls[0], worker)) as one, closing(at(urls[1], worker)) as other:
            found = next(each for each in one.assignments(worker.node, 10) if each.round == number)
            leaves = [
                Leaf(job, 1_000, other.upload(number, job, rollout.encode(artifact(number, job, worker.node))))
                for job in found.jobs
            ]
            one.submit(number, swarm.submission(worker, found, leaves))

    def beat() -> None:
        for worker, url in zip(swarm.workers, urls, strict=True):
            with closing(at(url, worker)) as client:
                client.heartbeat(api.Heartbeat(node=worker.node, version=0))

    accepted = dict.fromkeys(range(JOBS), Reason.ACCEPTED)
    try:
        urls = [serve(), serve()]
        swarm.url = urls[0]
        first = drive("first")
        until(lambda: swarm.client(swarm.workers[0]).health().head > 0, first)
        second = drive("second")
        beat()
        comes_to(2, State.OPEN, first)

        hand_in(1, swarm.workers[0])
        first.kill()
        hand_in(1, swarm.workers[1])
        comes_to(1, State.VOTING, second)

        third = drive("first")
        second.send_signal(signal.SIGSTOP)
        swarm.vote(1, accepted)
        comes_to(1, State.SETTLED, third)
        second.send_signal(signal.SIGCONT)
        for worker in swarm.workers:
            hand_in(2, worker)
        comes_to(2, State.VOTING, third)

        database.stop(signal.SIGINT)
        for url in urls:
            answer = httpx.get(f"{url}/health", trust_env=False, timeout=30)
            assert answer.status_code == 503
            assert "the coordinator's database does not answer" in answer.json()["error"]
        swarm.vote(2, accepted)
        database.start()
        comes_to(2, State.SETTLED, third)
        until(lambda: swarm.client(swarm.workers[0]).status().rounds_settled == 2, third)
        assert (second.poll(), third.poll()) == (None, None)
        assert reader().round_count() == 2
        sent = _sent_by(swarm, swarm.coordinator.address)
        assert all(status == 1 for _, status in sent)
        assert len({call for call, _ in sent}) == len(sent), "no call was sent twice"
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _sent_by(swarm: Swarm, address: str) -> list[tuple[str, int]]:
    """The calls that an address sent, and their status."""
    rpc, found = swarm.anvil.rpc, []
    for number in range(int(rpc.call("eth_blockNumber"), 16) + 1):
        for each in rpc.call("eth_getBlockByNumber", hex(number), True)["transactions"]:
            if each["from"].lower() == address.lower():
                receipt = rpc.call("eth_getTransactionReceipt", each["hash"])
                found.append((each["to"] + each["input"], int(receipt["status"], 16)))
    return found
