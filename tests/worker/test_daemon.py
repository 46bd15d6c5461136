"""A worker between a real chain and a real coordinator, also one that lies or falls silent."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from fastapi import Request
from fastapi.responses import Response
from prometheus_client import REGISTRY
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from structlog.testing import capture_logs

from protocol.amounts import tokens
from protocol.broadcast import publishing
from protocol.broadcast.version_store import VersionStore
from protocol.chain.structs import Role, State
from protocol.chain.writing import calls
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.wire.api import Assignment, Assignments
from protocol.wire.assignments import bitmap_of, unpack_leaves
from protocol.wire.pins import UnfitCheckpoint
from protocol.wire.reasons import Reason
from protocol.wire.rollout import decode
from tests.artifacts import signed_head
from tests.chaos.between import Between
from tests.checkpoints import CHANGES
from tests.conftest import serving
from tests.coordinator.swarm import RULES
from tests.interfering import overtaking
from tests.worker.farm import Farm, wait_for
from worker.daemon import Worker
from worker.earnings import EARNINGS_FILE, Earnings
from worker.outbox import Outbox
from worker.prover import Finished, Work


def liar(farm: Farm, assignment: Assignment, **lies: object) -> str:
    """The coordinator, but for what it says of one assignment; its URL."""

    async def assignments(_: Request) -> Response:
        lie = Assignments(rounds=[assignment.model_copy(update=lies)])
        return Response(lie.model_dump_json(), media_type="application/json")

    routes = [Route("/nodes/{node}/assignments", assignments), Mount("/", farm.app)]
    return farm.closing.enter_context(serving(Starlette(routes=routes)))


def jobs_of(farm: Farm, assignment: Assignment) -> int:
    return bitmap_of(assignment.jobs)


def test_what_is_assigned_is_made_proved_uploaded_signed_and_relayed(farm: Farm) -> None:
    worker = farm.worker()
    assignment = farm.open_round(worker)
    assert worker.tick() is True
    assert worker.tick() is False
    farm.driver.tick()
    standing = farm.swarm.chain.latest().round(assignment.round)
    assert standing.submitted & jobs_of(farm, assignment) == jobs_of(farm, assignment)
    deployment = farm.swarm.chain.deployment
    for submission in worker.outbox.submissions(assignment.round):
        for leaf in unpack_leaves(submission.leaves):
            file = farm.swarm.client(farm.party).artifact(leaf.root)
            assert signed_head(deployment.chain_id, deployment.rounds, file).root == leaf.root
            artifact = decode(file)
            assert (artifact.round, artifact.job, artifact.node) == (assignment.round, leaf.job, farm.party.node)
            assert artifact.manifest_root == farm.root
            assert len(artifact.rollouts) == RULES.rollouts_per_job
            assert leaf.units > 0


def test_alone_it_loads_the_weights_says_that_it_is_up_and_is_listed(farm: Farm) -> None:
    worker = farm.worker()
    worker.start_background()
    assert worker.tick() is False
    client = farm.swarm.client(farm.party)
    wait_for(lambda: any(n.node == farm.party.node and n.version == 0 for n in client.status().nodes))
    farm.driver.tick()
    assert client.assignments(farm.party.node)
    wait_for(lambda: "loaded" in worker.activity.told())
    assert worker.activity.told()["loaded"] == {
        "version": 0,
        "manifest_root": "0x" + farm.root.hex(),
        "differing": [],
    }


def test_a_new_runs_first_weights_are_asked_for_again_without_a_failure_until_they_are_served(farm: Farm) -> None:
    served, withheld = farm.directory / "origin", farm.directory / "withheld"
    served.rename(withheld)
    served.mkdir()
    worker = farm.worker()
    assert worker.tick() is False
    assert worker.producer.loaded is None
    served.rmdir()
    withheld.rename(served)
    wait_for(lambda: worker.tick() or worker.producer.loaded == 0)


def test_a_beacon_that_is_not_the_opening_blocks_hash_is_refused_before_any_work(farm: Farm) -> None:
    honest = farm.worker()
    assignment = farm.open_round(honest)
    honest.close()
    other = farm.swarm.chain.block(assignment.open_block - 1)
    for lies in (
        {"beacon": b"\x0b" * 32},
        {"beacon": other.hash, "open_block": other.number},
    ):
        worker = farm.worker("wary", coordinator_url=liar(farm, assignment, **lies))
        with pytest.raises(Rejected, match="beacon"):
            worker.tick()
        assert worker.outbox.rounds() == []
        worker.close()


@pytest.mark.parametrize(
    ("lies", "words"),
    [
        ({"policy_version": 3}, "policy"),
        ({"assignments": bytes.fromhex("0000000104")}, "assignments"),
        ({"round": 99}, "not know"),
    ],
)
def test_what_the_coordinator_says_against_the_chain_is_refused(
    farm: Farm, lies: dict[str, object], words: str
) -> None:
    honest = farm.worker()
    assignment = farm.open_round(honest)
    honest.close()
    worker = farm.worker("wary", coordinator_url=liar(farm, assignment, **lies))
    with pytest.raises((Rejected, Unavailable), match=words):
        worker.tick()
    assert worker.outbox.rounds() == []


def test_a_worker_submits_for_itself_when_the_coordinator_does_not_relay(farm: Farm) -> None:
    first = farm.worker()
    assignment = farm.open_round(first)
    first.tick()
    assert farm.swarm.chain.latest().round(assignment.round).submitted == 0
    first.close()
    farm.swarm.anvil.rpc.call("evm_increaseTime", hex(farm.swarm.window * 8 // 10))
    farm.swarm.anvil.rpc.call("evm_mine")
    again = farm.worker()
    again.tick()
    assert farm.swarm.chain.latest().round(assignment.round).submitted == jobs_of(farm, assignment)
    farm.driver.tick()
    assert farm.swarm.chain.latest().round(assignment.round).submitted == jobs_of(farm, assignment)


def test_a_worker_whose_nonce_another_program_took_submits_for_itself_all_the_same(farm: Farm) -> None:
    between, swarm, taken = Between(farm.swarm.anvil.port), farm.swarm, list[str]()
    farm.closing.callback(between.close)
    worker = farm.worker(rpc_url=between.url)
    assignment = farm.open_round(worker)
    worker.tick()
    swarm.anvil.rpc.call("evm_increaseTime", hex(swarm.window * 8 // 10))
    swarm.anvil.rpc.call("evm_mine")
    worker.next_housekeeping = 0.0
    submit = calls.submit(swarm.chain.deployment, 1, b"", [])
    with between.interfering(overtaking(swarm.anvil, swarm.chain, farm.party.key, submit, taken)):
        worker.tick()
    assert len(taken) == 1
    assert swarm.chain.latest().round(assignment.round).submitted == jobs_of(farm, assignment)


def test_what_a_crash_left_unsigned_is_made_again_and_handed_in_whole(farm: Farm) -> None:
    other = farm.worker("elsewhere")
    assignment = farm.open_round(other)
    job = made(farm, other, assignment)[0]
    other.close()
    # A worker was killed between keeping its first artifact and signing.
    outbox = Outbox(farm.worker_settings().state_dir / "rounds")
    outbox.remember(assignment)
    outbox.put_artifact(assignment.round, job.job, job.file)
    farm.worker().tick()
    farm.driver.tick()
    assert farm.swarm.chain.latest().round(assignment.round).submitted == jobs_of(farm, assignment)


def test_signatures_the_coordinator_lost_are_sent_again_not_made_again(farm: Farm) -> None:
    first = farm.worker()
    assignment = farm.open_round(first)
    first.tick()
    kept = {job: first.outbox.artifact(assignment.round, job) for job in assignment.jobs}
    first.close()
    # It forgets: the same round is asked for again, as after its database was restored.
    second = farm.worker(coordinator_url=liar(farm, assignment))
    generated = REGISTRY.get_sample_value("assize_worker_rollouts_total")
    assert second.tick() is True
    assert {job: second.outbox.artifact(assignment.round, job) for job in assignment.jobs} == kept
    assert REGISTRY.get_sample_value("assize_worker_rollouts_total") == generated, "nothing had to be generated"


def made(farm: Farm, worker: Worker, assignment: Assignment) -> list[Finished]:
    """The jobs of an assignment, made without being handed in."""
    worker._load(0, farm.root)
    beacon = assignment.beacon
    work = Work(assignment.round, worker.node, tuple(assignment.jobs), beacon, 0, farm.root, worker.terms.max_units)
    return worker.producer.make(work)


def test_a_round_that_is_over_is_forgotten(farm: Farm) -> None:
    first, other = farm.worker(), farm.worker("other", party=farm.swarm.workers[1])
    other.checkpoints.directory(0, farm.root)
    assignment = farm.open_round(first)
    first.tick()
    other.tick()
    jobs = farm.swarm.chain.latest().round(assignment.round).jobs
    farm.driver.tick()
    for _ in range(4):
        farm.driver.tick()
    assert farm.swarm.chain.latest().round(assignment.round).state is State.VOTING
    farm.swarm.vote(assignment.round, dict.fromkeys(range(jobs), Reason.ACCEPTED))
    for _ in range(4):
        farm.driver.tick()
    assert farm.swarm.chain.latest().round(assignment.round).state is State.SETTLED
    assert assignment.round in first.outbox.rounds()
    first.close()
    again = farm.worker()
    with capture_logs() as logs:
        again.log = structlog.get_logger("worker")
        again.tick()
    assert assignment.round not in again.outbox.rounds()
    earned = farm.swarm.chain.latest().credits_of(farm.party.owner.address)
    assert earned > 0
    (told,) = (each for each in logs if each["event"] == "round_ended")
    own = len(assignment.jobs)
    assert (told["jobs"], told["accepted"], told["earned"], told["today"]) == (own, own, tokens(earned), tokens(earned))
    today = Earnings(again.settings.state_dir / EARNINGS_FILE).today()
    assert (today.wei, sum(today.jobs.values())) == (earned, own)


def test_a_key_without_a_node_is_told_what_to_type(farm: Farm) -> None:
    stranger = replace(farm.party, key=farm.swarm.make_wallet("stranger"))
    with pytest.raises(Misconfigured, match="assize node register"):
        farm.worker("stranger", party=stranger)
    with pytest.raises(Misconfigured, match="is a validator: expected a worker"):
        farm.worker("validator", party=farm.swarm.validators[0])


def test_a_worker_that_has_not_joined_is_told_what_to_type(farm: Farm) -> None:
    newcomer = farm.swarm.register("newcomer", Role.WORKER, 4)
    with pytest.raises(Misconfigured, match=f"assize run join {farm.swarm.run} {newcomer.node}"):
        farm.worker("newcomer", party=newcomer)


def published(farm: Farm, version: int, directory: Path) -> bytes:
    """The trainer publishes a version by hand, as one that minds no rules would; its manifest root."""
    swarm, deployment = farm.swarm, farm.swarm.chain.deployment
    place = (swarm.run, version, deployment.chain_id, deployment.market)
    signed = publishing.publish(
        directory, *place, swarm.trainer, VersionStore(farm.directory / "origin"), versions_kept=99
    )
    swarm.send(swarm.trainer, calls.publish(deployment, swarm.run, version, signed.manifest.root, []))
    return signed.manifest.root


def test_versions_that_the_rules_do_not_allow_are_refused_alike_by_fresh_and_running_workers(
    farm: Farm, tmp_path: Path
) -> None:
    running = farm.worker("running")
    running._load_newest()
    for version, (what, (change, words)) in enumerate(CHANGES.items(), start=1):
        directory = shutil.copytree(farm.model, tmp_path / str(version))
        change(directory)
        root = published(farm, version, directory)
        fresh = farm.worker(f"fresh-{version}", party=farm.swarm.workers[1])
        assert fresh.tick() is False, what
        with pytest.raises(UnfitCheckpoint, match=words) as refused:
            running._load(version, root)
        assert fresh.refused == {str(refused.value)}
        assert (fresh.producer.loaded, running.producer.loaded) == (None, 0)
        fresh.close()


def test_a_worker_leaves_jobs_of_a_refused_version_undone_and_goes_on_with_the_next(farm: Farm, tmp_path: Path) -> None:
    worker = farm.worker()
    worker._load_newest()
    unfit = shutil.copytree(farm.model, tmp_path / "1")
    (unfit / "pytorch_model.bin").write_bytes(b"")
    published(farm, 1, unfit)
    assignment = farm.open_round(worker)
    assert assignment.policy_version == 1
    assert worker.tick() is False
    assert list(worker.outbox.submissions(assignment.round)) == []
    (said,) = worker.refused
    assert "pytorch_model.bin cannot be part of a checkpoint" in said
    published(farm, 2, farm.model)
    again = farm.worker("again", party=farm.swarm.workers[1])
    assert again.tick() is False
    assert again.producer.loaded == 2
