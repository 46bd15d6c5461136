"""One coordinator, one key, two runs: rounds, leases, receipts and answers are those of the run that is asked about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from coordinator.api.app import create_app
from coordinator.api.service import CoordinatorService
from coordinator.doctor import diagnose
from coordinator.driver.wiring import DriverProcess, keep_rules
from coordinator.settings import CoordinatorSettings
from coordinator.store import Store
from protocol.chain.structs import State
from protocol.errors import Misconfigured, Rejected
from protocol.transport.coordinator import CoordinatorClient
from protocol.transport.run_coordinators import RunCoordinators
from protocol.wire import api, auth, rollout
from protocol.wire.assignments import Leaf, pack_leaves
from tests.conftest import serving
from tests.coordinator.swarm import RULES, Party, Swarm, artifact, headers


@pytest.fixture
def runs(swarm: Swarm) -> tuple[int, int]:
    """The swarm's run, and another of the same parties."""
    first = swarm.run
    swarm.run = second = swarm._open_run()
    for party in (*swarm.workers, *swarm.validators):
        swarm.join(party)
    swarm.run = first
    return first, second


@pytest.fixture
def settings(swarm: Swarm, runs: tuple[int, int]) -> CoordinatorSettings:
    """Of both runs, whose rules are in one file."""
    one = swarm.settings()
    return swarm.settings(run=f"{runs[0]} {runs[1]}", rules=f"{one.rules} {one.rules}")


@pytest.fixture
def url(swarm: Swarm, settings: CoordinatorSettings) -> Iterator[str]:
    store = Store(settings.database)
    keep_rules(store, RULES)
    with serving(create_app(CoordinatorService(settings, store, swarm.chain.deployment, swarm.coordinator))) as url:
        swarm.url = url
        yield url


@pytest.fixture
def process(swarm: Swarm, settings: CoordinatorSettings) -> Iterator[DriverProcess]:
    with closing(DriverProcess(settings, swarm.coordinator)) as made:
        made.tick()
        yield made


def client_of(swarm: Swarm, worker: Party, run: int | None) -> CoordinatorClient:
    deployment = swarm.chain.deployment
    return CoordinatorClient(swarm.url, worker.key, deployment.chain_id, deployment.rounds, run)


def test_two_runs_are_driven_side_by_side(
    swarm: Swarm, runs: tuple[int, int], url: str, process: DriverProcess, settings: CoordinatorSettings
) -> None:
    worker, reader = swarm.workers[0], swarm.chain.latest
    clients = {run: client_of(swarm, worker, run) for run in runs}
    assert clients[runs[1]].health().driven == runs
    for party in swarm.workers:  # alive in the second run alone
        with closing(client_of(swarm, party, runs[1])) as client:
            client.heartbeat(api.Heartbeat(node=party.node, version=0))
    process.tick()
    assert clients[runs[0]].assignments(worker.node) == []
    found = clients[runs[1]].assignments(worker.node)
    assert [(each.round, each.run) for each in found] == [(1, runs[1]), (2, runs[1])]
    for party in swarm.workers:
        with closing(client_of(swarm, party, runs[0])) as client:
            client.heartbeat(api.Heartbeat(node=party.node, version=0))
    process.tick()
    assert {reader().round(each.round).run for each in clients[runs[0]].assignments(worker.node)} == {runs[0]}
    assert [clients[run].status().run for run in runs] == list(runs)
    assert {clients[run].status().rounds_open for run in runs} == {2}

    leaves = []
    for job in found[0].jobs:
        data = rollout.encode(artifact(1, job, worker.node))
        leaves.append(Leaf(job, 1_000, clients[runs[1]].upload(1, job, data)))
    packed, deployment = pack_leaves(leaves), swarm.chain.deployment
    receipt = clients[runs[1]].receipt(1, worker.node, packed)
    stated = auth.receipt(deployment.chain_id, deployment.rounds, runs[1], 1, worker.node, packed, receipt.time)
    assert auth.recover(stated, receipt.signature) == swarm.coordinator.address
    with pytest.raises(Rejected, match=f"no round 1 of run {runs[0]} here"):
        clients[runs[0]].receipt(1, worker.node, packed)
    clients[runs[1]].submit(1, swarm.submission(worker, found[0], leaves))
    process.tick()
    assert reader().round(1).submitted.bit_count() == len(leaves)
    swarm.anvil.rpc.call("evm_increaseTime", hex(swarm.window + 1))
    swarm.anvil.rpc.call("evm_mine")
    process.tick()
    assert reader().round(1).state is State.VOTING, "closed on time, as the rounds of the other run are"
    for client in clients.values():
        client.close()


def test_what_is_signed_and_said_is_for_the_run_that_is_asked_about(
    swarm: Swarm, runs: tuple[int, int], url: str, process: DriverProcess, settings: CoordinatorSettings
) -> None:
    worker, deployment = swarm.workers[0], swarm.chain.deployment
    with closing(RunCoordinators([url], worker.key, deployment.chain_id, deployment.rounds)) as coordinators:
        for run in runs:
            client = coordinators.of(run)
            client.assignments(worker.node)
            assert client.status().run == run
            said = client.refusal(b"\x05" * 32)
            assert said is not None
            stated = auth.refusal(deployment.chain_id, deployment.rounds, run, said.root, said.time)
            assert auth.recover(stated, said.signature) == swarm.coordinator.address
    examined = {result.name for result in diagnose(settings)}
    for run in runs:
        assert {f"{name} of run {run}" for name in ("coordinator", "rules", "escrow")} <= examined
    path = f"/nodes/{worker.node}/assignments"
    with httpx.Client(base_url=url, trust_env=False) as http:
        signed = headers(swarm, worker, "GET", path, run=99)
        answer = http.get(path, headers=signed)
        assert answer.status_code == 401
        assert f"run 99, this is the one of runs {runs[0]}, {runs[1]}" in answer.json()["error"]
        signed = headers(swarm, worker, "GET", path, run=runs[0]) | {"Assize-Run": str(runs[1])}
        assert http.get(path, headers=signed).status_code == 401, "the signature names the run too"
        for path in ("/status?run=99", "/runs/99", f"/artifacts/0x{'05' * 32}?run=99"):
            answer = http.get(path)
            assert (answer.status_code, answer.json()["error"]) == (404, "run 99 is not driven here")


@pytest.mark.parametrize(
    ("run", "rules", "sentence"),
    [
        ("2 x", "a b", "invalid run '2 x': expected the number of a run, or several such as '2 3'"),
        ("", "a", "invalid run '': expected the number"),
        ("-1", "a", "invalid run '-1'"),
        (str(1 << 63), "a", "invalid run"),
        ("2 2", "a b", "invalid run '2 2': expected each run once"),
        ("2 3", "a", "invalid rules 'a': expected one file for each of the 2 runs, in the same order"),
    ],
)
def test_runs_and_rules_that_do_not_fit_are_refused_in_one_sentence(
    tmp_path: Path, run: str, rules: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"RUN": run, "RULES": rules, "ADDRESSES": "a", "KEYSTORE": "k", "STATE_DIR": str(tmp_path)}
    for name, value in given.items():
        monkeypatch.setenv(f"ASSIZE_COORDINATOR_{name}", value)
    with pytest.raises(Misconfigured) as refusal:
        CoordinatorSettings.read(None)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("run", ["'2 3'", "[2, 3]"])
@pytest.mark.parametrize("rules", ["'a.json sub/b.json'", "['a.json', 'sub/b.json']"])
def test_the_profile_places_each_file_of_rules_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str, rules: str
) -> None:
    read = of_profile(tmp_path, monkeypatch, run, rules)
    assert read.rules_files == {2: tmp_path / "a.json", 3: tmp_path / "sub" / "b.json"}


def test_one_file_of_rules_may_have_spaces_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my rules.json").touch()
    assert of_profile(tmp_path, monkeypatch, "2", "'my rules.json'").rules_files == {2: tmp_path / "my rules.json"}


def of_profile(folder: Path, monkeypatch: pytest.MonkeyPatch, run: Any, rules: Any) -> CoordinatorSettings:
    profile = folder / "assize.toml"
    profile.write_text(
        f"[coordinator]\nrun = {run}\nrules = {rules}\naddresses = 'a'\nkeystore = 'k'\nstate_dir = 's'\n"
    )
    monkeypatch.setenv("ASSIZE_PROFILE", str(profile))
    return CoordinatorSettings.read(None)
