"""What the trainer may train on, told by a real chain."""

from __future__ import annotations

import time
from pathlib import Path

from protocol.chain.reading.plantings import Plantings
from protocol.chain.structs import Consumption
from protocol.chain.writing import calls
from protocol.chain.writing.appealing import open_appeal
from protocol.wire.artifact_blob import HEAD_BYTES
from protocol.wire.reasons import Reason
from protocol.wire.rollout import decode, encode
from protocol.wire.rules import ArtifactStore, with_stores
from protocol.wire.traps import Trap, TrapKind
from tests.conftest import TOKEN
from tests.trainer.scene import RIGHT, WRONG, Scene
from trainer.inbox import WAIT_SECONDS, Inbox

SOUND, FRAUD, VOID = Reason.ACCEPTED, Reason.SAMPLING_FRAUD, Reason.SAMPLING_VOID


def held(inbox: Inbox) -> set[tuple[int, int]]:
    return {(group.round, group.job) for group in inbox.groups()}


def artifacts(scene: Scene) -> dict[tuple[int, int], Path]:
    """Where each job's artifact lies."""
    found = {path: decode(path.read_bytes()[HEAD_BYTES:]) for path in scene.files.iterdir()}
    return {(artifact.round, artifact.job): path for path, artifact in found.items()}


def test_only_jobs_that_a_tally_accepted_come_in_with_rewards_computed_here(scene: Scene) -> None:
    inbox = scene.inbox(scene.policy())
    round_ = scene.unjudged(4, answers=(WRONG, RIGHT))
    inbox.poll(0)
    assert held(inbox) == set(), "nothing before a verdict"
    scene.judge(round_, {0: SOUND, 1: FRAUD, 2: VOID, 3: SOUND})
    inbox.poll(0)
    assert held(inbox) == {(round_, 0), (round_, 3)}
    assert all(group.rewards == (0.0, 1.0) and group.version == 0 for group in inbox.groups())
    assert len({tuple(group.prompt_tokens) for group in inbox.groups()}) == 2, "each job has a problem of its own"


def test_a_job_with_a_planted_fault_is_never_trained_on_though_it_was_accepted(scene: Scene) -> None:
    first = scene.chain.latest().round_count() + 1
    node = scene.swarm.workers[0].node
    traps = [Trap(node, first, first + 1, kind, bytes([kind]) * 32) for kind in TrapKind]
    plantings = Plantings(scene.chain, scene.swarm.run, traps)
    inbox = scene.inbox(scene.policy(), plantings)
    rounds = [scene.round({0: SOUND, 1: SOUND, 2: SOUND, 3: SOUND}) for _ in range(2)]
    planted = plantings.in_round(rounds[0])
    assert sorted(trap.kind for trap in planted.values()) == [1, 2, 3], "each trap but the decoy, in a job of its own"
    assert plantings.in_round(rounds[1]) == {}, "each is planted once"
    inbox.poll(0)
    (left,) = set(range(4)) - set(planted)
    assert held(inbox) == {(rounds[0], left), *((rounds[1], job) for job in range(4))}


def test_an_artifact_whose_bytes_changed_after_the_verdict_is_refused(scene: Scene) -> None:
    round_ = scene.round({0: SOUND, 1: SOUND, 2: SOUND})
    found = artifacts(scene)
    other = encode(scene.artifact(round_, 0, b"\x07" * 32, (RIGHT, RIGHT)))
    found[round_, 0].write_bytes(other)
    found[round_, 1].write_bytes(b"garbage")
    inbox = scene.inbox(scene.policy())
    inbox.poll(0)
    assert held(inbox) == {(round_, 2)}


def test_an_artifact_that_cannot_be_fetched_now_comes_in_later(scene: Scene) -> None:
    round_ = scene.round({0: SOUND, 1: SOUND})
    path = artifacts(scene)[round_, 1]
    away = path.rename(scene.directory / "away")
    inbox = scene.inbox(scene.policy())
    inbox.poll(0)
    assert held(inbox) == {(round_, 0)}
    away.rename(path)
    inbox.poll(0)
    assert held(inbox) == {(round_, 0), (round_, 1)}


def test_an_artifact_that_the_runs_store_hides_comes_from_the_place_that_its_worker_named(scene: Scene) -> None:
    hiding = [ArtifactStore(key=scene.swarm.coordinator.address, url="http://127.0.0.1:1")]
    inbox = scene.inbox(scene.policy())
    inbox.rules = with_stores(inbox.rules, hiding, 1)
    round_ = scene.round({0: SOUND})
    inbox.poll(0)
    assert held(inbox) == {(round_, 0)}


def test_an_artifact_that_its_worker_hides_comes_from_the_runs_store(scene: Scene) -> None:
    inbox, named = scene.inbox(scene.policy()), scene.url
    inbox.rules = with_stores(inbox.rules, [ArtifactStore(key=scene.swarm.coordinator.address, url=named)], 1)
    scene.url = "http://127.0.0.1:1"
    round_ = scene.round({0: SOUND})
    inbox.poll(0)
    assert held(inbox) == {(round_, 0)}


def test_a_store_that_drips_holds_a_step_up_once_and_no_other_node_s_artifacts(scene: Scene) -> None:
    inbox = scene.inbox(scene.policy())
    dripped, honest = (scene.unjudged(8, dripped=True), scene.unjudged(2, by=1))
    for round_, jobs in ((dripped, 8), (honest, 2)):
        scene.judge(round_, dict.fromkeys(range(jobs), SOUND))
    started = time.monotonic()
    inbox.poll(0)
    assert held(inbox) == {(honest, 0), (honest, 1)}
    assert time.monotonic() - started < WAIT_SECONDS + 2
    started = time.monotonic()
    for _ in range(10):
        inbox.poll(0)
    assert time.monotonic() - started < 2
    later = scene.unjudged(1, by=1)
    scene.judge(later, {0: SOUND})
    inbox.poll(0)
    assert (later, 0) in held(inbox), "a prompt node is waited for still"
    scene.dripped.clear()
    until = time.monotonic() + 60
    while (dripped, 7) not in held(inbox):
        assert time.monotonic() < until, "what was cut off is fetched again"
        inbox.poll(0)
        time.sleep(0.1)


def test_a_job_that_a_checkpoint_consumed_is_dropped_also_by_whoever_starts_later(scene: Scene) -> None:
    round_ = scene.round({0: SOUND, 1: SOUND})
    inbox = scene.inbox(scene.policy())
    inbox.poll(0)
    consumed = [Consumption(round_, 0b01)]
    publishing = calls.publish(scene.chain.deployment, scene.swarm.run, 1, b"\x05" * 32, consumed)
    scene.swarm.send(scene.swarm.trainer, publishing)
    inbox.poll(0)
    assert held(inbox) == {(round_, 1)}
    later = scene.inbox(scene.policy())
    later.poll(0)
    assert held(later) == {(round_, 1)}


def test_rounds_made_by_too_old_a_policy_are_forgotten_and_not_fetched(scene: Scene) -> None:
    round_ = scene.round({0: SOUND})
    inbox = scene.inbox(scene.policy())
    inbox.poll(0)
    assert held(inbox) == {(round_, 0)}
    inbox.poll(1)
    assert held(inbox) == set()
    artifacts(scene)[round_, 0].unlink()
    later = scene.inbox(scene.policy())
    later.poll(1)
    assert held(later) == set()


def test_rounds_of_other_runs_are_none_of_its_business(scene: Scene) -> None:
    inbox = scene.inbox(scene.policy())
    inbox.run += 1
    scene.round({0: SOUND})
    inbox.poll(0)
    assert held(inbox) == set()


def test_after_a_reorganisation_only_what_still_stands_is_held(scene: Scene) -> None:
    first = scene.round({0: SOUND})
    snapshot = scene.chain.rpc.call("evm_snapshot")
    second = scene.unjudged(1)
    inbox = scene.inbox(scene.policy())
    inbox.poll(0)
    assert held(inbox) == {(first, 0)}
    scene.chain.rpc.call("evm_revert", snapshot)
    scene.chain.rpc.call("anvil_mine", hex(12))
    inbox.poll(0)
    assert held(inbox) == {(first, 0)}
    assert second not in inbox.rounds


def test_what_an_appeal_changes_is_trained_on_or_not_and_its_trial_is_no_round(appealing_scene: Scene) -> None:
    scene, swarm = appealing_scene, appealing_scene.swarm
    round_ = scene.round({0: SOUND, 1: Reason.SAMPLING_FRAUD, 2: SOUND})
    inbox = scene.inbox(scene.policy())
    inbox.poll(0)
    assert held(inbox) == {(round_, 0), (round_, 2)}
    owner = swarm.workers[0].owner
    swarm.send(owner, calls.approve(scene.chain.deployment, "Credits", TOKEN))
    sender = swarm.senders[owner.address]
    trials = [open_appeal(sender, round_, job).carry_out(f"appeal-{job}").appeal for job in (0, 1)]
    inbox.poll(0)
    assert held(inbox) == {(round_, 2)}, "under appeal nothing is certain"
    for trial, reasons in zip(trials, ({0: Reason.SAMPLING_FRAUD}, {1: SOUND}), strict=True):
        scene.judge(trial, reasons)
    inbox.poll(0)
    assert held(inbox) == {(round_, 1), (round_, 2)}
    assert set(inbox.rounds) == {round_}
