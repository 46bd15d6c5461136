"""The trainer's loop: only what is judged, each job once, and a crash between any two steps changes nothing."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.chain.deployment import FINALITY_DEPTH
from protocol.chain.reading.tail import FinalityMoved
from protocol.chain.writing import calls
from protocol.chain.writing.appealing import open_appeal
from protocol.errors import AssizeError, Misconfigured, Unavailable
from protocol.wire.assignments import jobs_in
from protocol.wire.reasons import Reason
from tests.conftest import TOKEN, chain_fixtures, until
from tests.trainer.scene import RECIPE, RIGHT, Scene
from trainer import loop
from trainer.batch import Group, Selection
from trainer.loop import Stopwatch, Trainer, consumption, ready

anvil_process, deployment = chain_fixtures("module")

SOUND, FRAUD = Reason.ACCEPTED, Reason.SAMPLING_FRAUD


def group(round_: int, job: int, number: int = 0) -> Group:
    return Group(round_, job, number, 0, (1,), ((2,), (3,)), (0.0, 1.0))


GROUPS = st.lists(st.builds(group, st.integers(1, 4), st.integers(0, 255), st.integers(0, 3)), max_size=20)


def selection(*taken: Group) -> Selection:
    return Selection(taken=taken, idle=(), left=(), stale=())


@given(groups=GROUPS)
def test_consumption_names_each_job_once_by_round_in_order(groups: list[Group]) -> None:
    entries = consumption(groups)
    named = [(entry.round, job) for entry in entries for job in jobs_in(entry.jobs)]
    assert sorted(named) == named
    assert set(named) == {(each.round, each.job) for each in groups}
    assert len(named) == len(set(named))


@given(groups=GROUPS)
def test_a_step_starts_with_enough_groups_or_once_a_second_round_was_waited_for(groups: list[Group]) -> None:
    enough = len(groups) >= RECIPE.groups_to_start
    assert ready(selection(*groups), RECIPE) == (enough or len({each.round for each in groups}) > 1)


def test_the_stopwatch_books_every_second_under_one_part() -> None:
    times = iter([0.0, 1.0, 3.5, 4.0])
    watch = Stopwatch(lambda: next(times))
    for part in ("wait", "train", "wait"):
        watch.mark(part)
    assert watch.lap() == {"wait": 1.5, "train": 2.5}
    assert watch.lap() == {}


def records(state: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (state / "metrics.jsonl").read_text().splitlines()]


def test_a_step_trains_on_accepted_groups_publishes_and_consumes_them(scene: Scene, tmp_path: Path) -> None:
    state = tmp_path / "trainer"
    trainer, held = scene.trainer(state, last_version=1, evaluated=8)
    with held:
        trainer.resume()
        assert trainer.tick() is False, "nothing to train on"
        round_ = scene.round({0: SOUND, 1: FRAUD, 2: SOUND, 3: SOUND})
        idle = scene.round({0: SOUND}, answers=(RIGHT, RIGHT))
        assert trainer.tick() is True
        assert not trainer.done, "the last version is being evaluated"
        until(lambda: not trainer.tick() and trainer.done, 60, "the last evaluation")
    assert scene.chain.latest().run(scene.swarm.run).version == 1
    assert scene.chain.latest().round(round_).consumed == 0b1101
    assert scene.chain.latest().round(idle).consumed == 0, "groups without advantages are not consumed"
    (step,) = (record for record in records(state) if record["kind"] == "step")
    assert (step["version"], step["groups"], step["groups_idle"], step["rounds"]) == (1, 3, 1, [round_])
    assert [each["version"] for each in records(state) if each["kind"] == "evaluation"] == [0, 1]
    assert list((state / "evaluating").iterdir()) == [], "what was kept for the evaluations"


def test_what_a_killed_trainer_had_not_evaluated_the_next_one_does_the_first_version_too(
    scene: Scene, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    scene.round({0: SOUND, 1: SOUND, 2: SOUND})
    trainer, held = scene.trainer(state, last_version=1, evaluated=8)
    with held:
        trainer.resume()
        assert trainer.tick()
        trainer.tick()  # the last version is asked for as well
        assert trainer.evaluator is not None
        assert trainer.evaluator.pending == {0, 1}
    again, held = scene.trainer(state, last_version=1, evaluated=8)
    with held:
        again.resume()
        until(lambda: not again.tick() and again.done, 120, "the evaluations")
    assert [each["version"] for each in records(state) if each["kind"] == "evaluation"] == [1, 0]


def test_versions_in_between_are_left_out_while_too_many_wait(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "EVALUATIONS_WAITING", 1)
    state = tmp_path / "state"
    scene.round({0: SOUND, 1: SOUND, 2: SOUND})
    trainer, held = scene.trainer(state, last_version=9, evaluated=8)
    trainer.schedule = replace(trainer.schedule, evaluate_every=1)
    with held:
        trainer.resume()
        assert trainer.tick()
        trainer.tick()
        assert trainer.evaluator is not None
        assert trainer.evaluator.pending == {0}
        assert trainer.evaluated == {1: None}


def test_a_crash_between_saving_and_publishing_announces_the_same_checkpoint_once(scene: Scene, tmp_path: Path) -> None:
    state = tmp_path / "trainer"
    trainer, held = scene.trainer(state)
    with held:
        trainer.resume()
        round_ = scene.round({0: SOUND, 1: SOUND, 2: SOUND})
        # Without gas the announcement fails, after the state is on disk.
        scene.chain.rpc.call("anvil_setBalance", scene.swarm.trainer.address, "0x0")
        with pytest.raises(AssizeError):
            trainer.tick()
        weights = trainer.policy.weights()
    assert scene.published() == []
    scene.swarm.anvil.fund(scene.swarm.trainer.address)
    for _ in range(2):
        again, held = scene.trainer(state)
        with held:
            again.resume()
            assert again.policy.version == 1
            assert all((again.policy.weights()[name] == value).all() for name, value in weights.items())
            assert again.tick() is False, "its jobs are consumed"
    assert [event.version for event in scene.published()] == [1]
    assert scene.chain.latest().round(round_).consumed == 0b111


def test_a_version_that_could_not_be_announced_is_announced_before_anything_else_is_trained(
    scene: Scene, tmp_path: Path
) -> None:
    trainer, held = scene.trainer(tmp_path / "trainer")
    with held:
        trainer.resume()
        round_ = scene.round({0: SOUND, 1: SOUND})
        scene.chain.rpc.call("anvil_setBalance", scene.swarm.trainer.address, "0x0")
        for _ in range(2):
            with pytest.raises(AssizeError):
                trainer.tick()
            assert trainer.policy.version == 1, "the same jobs are not trained on twice"
        scene.swarm.anvil.fund(scene.swarm.trainer.address)
        assert trainer.tick() is False
    assert [event.version for event in scene.published()] == [1]
    assert scene.chain.latest().round(round_).consumed == 0b11


def test_a_step_made_of_a_job_that_an_appeal_has_undone_is_taken_back(appealing_scene: Scene, tmp_path: Path) -> None:
    scene, swarm = appealing_scene, appealing_scene.swarm
    trainer, held = scene.trainer(tmp_path / "trainer")
    with held:
        trainer.resume()
        round_ = scene.round({0: SOUND, 1: SOUND, 2: SOUND})
        scene.chain.rpc.call("anvil_setBalance", swarm.trainer.address, "0x0")
        with pytest.raises(AssizeError):
            trainer.tick()
        owner = swarm.workers[1].owner
        swarm.send(owner, calls.approve(scene.chain.deployment, "Credits", TOKEN))
        appeal = open_appeal(swarm.senders[owner.address], round_, 0).carry_out("appeal").appeal
        scene.judge(appeal, {0: FRAUD})
        swarm.anvil.fund(swarm.trainer.address)
        assert trainer.tick() is True, "once more, without it"
        assert trainer.policy.version == 1
    assert [event.version for event in scene.published()] == [1]
    assert scene.chain.latest().round(round_).consumed == 0b110


def test_an_older_state_than_the_chain_is_refused(scene: Scene, tmp_path: Path) -> None:
    trainer, held = scene.trainer(tmp_path / "trainer")
    with held:
        trainer.resume()
        scene.round({0: SOUND, 1: SOUND})
        trainer.tick()
    fresh, held = scene.trainer(tmp_path / "another")
    with held, pytest.raises(Misconfigured, match="put the newest state back"):
        fresh.resume()


def test_versions_that_a_reorganisation_has_undone_are_announced_again(scene: Scene, tmp_path: Path) -> None:
    trainer, held = scene.trainer(tmp_path / "trainer")
    with held:
        trainer.resume()
        scene.round({0: SOUND, 1: SOUND})
        assert trainer.tick() is True
        weights = trainer.policy.weights()
        scene.chain.rpc.call("anvil_reorg", 1, [])
        assert scene.published() == []
        until(lambda: (trainer.tick(), scene.published() != [])[1], 60, "the announcement")
        assert trainer.policy.version == 1
        assert all((trainer.policy.weights()[name] == value).all() for name, value in weights.items())


def test_steps_made_of_rounds_that_a_reorganisation_has_undone_are_taken_back(scene: Scene, tmp_path: Path) -> None:
    trainer, held = scene.trainer(tmp_path / "trainer")
    trainer.undone_seconds = 1.0
    with held:
        trainer.resume()
        scene.round({0: SOUND, 1: SOUND})
        assert trainer.tick() is True
        standing, weights = scene.chain.head().number, trainer.policy.weights()
        for version in (1, 2):
            scene.round({0: SOUND, 1: SOUND}, version)
            assert trainer.tick() is True
        scene.chain.rpc.call("anvil_reorg", scene.chain.head().number - standing, [])
        until(lambda: went_on(trainer) and trainer.policy.version == 1, 30, "going back")
        assert all((trainer.policy.weights()[name] == value).all() for name, value in weights.items())
    again, held = scene.trainer(tmp_path / "trainer")
    with held:
        again.resume()
        assert again.policy.version == 1
    assert [event.version for event in scene.published()] == [1]


def test_nothing_is_announced_to_a_chain_that_went_back_on_finality(scene: Scene, tmp_path: Path) -> None:
    trainer, held = scene.trainer(tmp_path / "trainer")
    with held:
        trainer.resume()
        standing = scene.chain.head().number
        scene.round({0: SOUND, 1: SOUND})
        assert trainer.tick() is True
        scene.chain.rpc.call("anvil_mine", hex(FINALITY_DEPTH + 8))
        trainer.tick()
        scene.chain.rpc.call("anvil_reorg", scene.chain.head().number - standing, [])
        trainer.announced = None  # as where a smaller reorganisation had undone the announcement already
        with pytest.raises(FinalityMoved):
            trainer.tick()
    assert scene.published() == []


def test_rollouts_whose_own_weights_are_gone_are_left_out(scene: Scene, tmp_path: Path) -> None:
    trainer, held = scene.trainer(tmp_path / "trainer")
    with held:
        trainer.resume()
        for version in (0, 1):
            scene.round({0: SOUND, 1: SOUND}, version)
            assert trainer.tick() is True
        run = scene.swarm.run
        shutil.rmtree(tmp_path / "trainer" / "versions" / "1")
        (signed,) = [each for each in trainer.publisher.store.versions(run) if each.manifest.version == 1]
        trainer.publisher.store.remove(signed)
        scene.round({0: SOUND, 1: SOUND}, version=1)
        assert trainer.tick() is False
        made = scene.round({0: SOUND, 1: SOUND}, version=2)
        assert trainer.tick() is True
    assert [event.consumed[0].round for event in scene.published()][2:] == [made]


def test_a_chain_that_does_not_answer_while_groups_are_weighed_loses_none_of_them(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, held = scene.trainer(tmp_path / "trainer")
    with held:
        trainer.resume()
        scene.round({0: SOUND, 1: SOUND})
        assert trainer.tick() is True
        made = scene.round({0: SOUND, 1: SOUND}, version=0)

        def silent(version: int) -> Path | None:
            raise Unavailable("the RPC does not answer")

        with monkeypatch.context() as patched:
            patched.setattr(trainer.publisher, "stored", silent)
            with pytest.raises(Unavailable):
                trainer.tick()
        assert trainer.tick() is True
    assert [event.consumed[0].round for event in scene.published()][1:] == [made]


def test_a_trainer_whose_state_is_gone_goes_on_from_the_weights(scene: Scene, tmp_path: Path) -> None:
    state = tmp_path / "trainer"
    trainer, held = scene.trainer(state)
    with held:
        trainer.resume()
        scene.round({0: SOUND, 1: SOUND})
        assert trainer.tick() is True
        weights = trainer.policy.weights()
    (state / "state.safetensors").unlink()
    again, held = scene.trainer(state)
    with held:
        again.resume()
        assert again.policy.version == 1
        assert all((again.policy.weights()[name] == value).all() for name, value in weights.items())
        scene.round({0: SOUND, 1: SOUND}, version=1)
        assert again.tick() is True
    assert [event.version for event in scene.published()] == [1, 2]


def test_groups_that_became_too_old_are_counted(scene: Scene, tmp_path: Path) -> None:
    trainer, held = scene.trainer(tmp_path / "trainer")
    with held:
        trainer.resume()
        scene.round({0: SOUND, 1: SOUND, 2: SOUND})
        trainer.inbox.poll(0)
        trainer.inbox.poll(1)
        assert trainer.inbox.groups() == []
        assert (trainer.inbox.take_expired(), trainer.inbox.take_expired()) == (3, 0)


def test_an_artifact_that_took_anothers_place_is_weighed_anew(scene: Scene, tmp_path: Path) -> None:
    trainer, held = scene.trainer(tmp_path / "trainer")
    with held:
        trainer.resume()
        scene.round({0: SOUND, 1: SOUND})
        trainer.inbox.poll(0)
        first = trainer._weighed(trainer.inbox.groups())
        assert trainer._weighed(trainer.inbox.groups()) == first, "weighed once"
        other = [replace(group, completions=tuple(reversed(group.completions))) for group in trainer.inbox.groups()]
        again = trainer._weighed(other)
        for group, before in zip(again, first, strict=True):
            assert group.behaviour is not None
            assert before.behaviour is not None
            assert group.completions is not before.completions
            assert [len(each) for each in group.behaviour] == [len(each) for each in reversed(before.behaviour)]


def went_on(trainer: Trainer) -> bool:
    """One tick, as its daemon makes it."""
    try:
        trainer.tick()
    except Unavailable:
        return False
    return True
