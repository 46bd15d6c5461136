"""Training on tasks from a file: each version publishes their weights, and the rewards of what it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deploy.tasks.in_rules import bring_tasks, read_tasks, with_tasks
from protocol.chain.reading.client import Chain
from protocol.environments.task_set import TaskSet
from protocol.errors import Rejected
from protocol.node.wallet import Wallet
from protocol.tensor.directory import tokenizer_hash
from protocol.tensor.model import load_tokenizer
from protocol.wire.pins import CURRICULUM_FILE, REWARDS_FILE, TASKS_FILE, check_directory
from protocol.wire.reasons import Reason
from protocol.wire.rewards import Rewards, parse_rewards
from protocol.wire.tasks import TaskHeader, TaskRow, TaskSource, decode_curriculum, encode_tasks
from tests.conftest import Anvil
from tests.coordinator.swarm import Swarm
from tests.trainer.scene import Scene
from trainer.batch import Group
from trainer.curriculum import Curriculum
from trainer.rewards_audit import consumed_by, differing, recompute

TASKS = 6
TRIES = 30
"""Rounds within which every draw that a test waits for comes, but for once in many thousand runs."""
ACCEPTED = {0: Reason.ACCEPTED, 1: Reason.ACCEPTED}
MakeScene = Callable[[bool], Scene]


@pytest.fixture
def scene_of(
    chain: Chain, anvil: Anvil, make_wallet: Callable[[str], Wallet], tmp_path: Path, model_directory: Path
) -> Iterator[MakeScene]:
    """Makes a run on sums from a file, each of which may be used once."""
    closed: list[Callable[[], None]] = []

    def make(once: bool) -> Scene:
        model = tmp_path / "model"
        model.mkdir()
        for path in model_directory.iterdir():
            (model / path.name).write_bytes(path.read_bytes())
        tokenizer = load_tokenizer(model)
        rows = [
            TaskRow(
                tuple(tokenizer.encode(f"{n}+{n}\n", add_special_tokens=False)), f"{2 * n:02d}", "exact", source=n % 2
            )
            for n in range(TASKS)
        ]
        header = TaskHeader(tokenizer_hash(model), (TaskSource("even", 1), TaskSource("odd", 1)))
        (tmp_path / "tasks").write_bytes(encode_tasks(header, rows))
        tasks = read_tasks(tmp_path / "tasks", model, once)
        bring_tasks(tmp_path / "tasks", model)
        swarm = Swarm(chain, anvil, make_wallet, "", tmp_path)
        swarm.rules = with_tasks(swarm.rules, tasks)
        made = Scene(swarm, model, tmp_path)
        closed.extend((swarm.close, made.close))
        return made

    yield make
    for close in reversed(closed):
        close()


def weights_in(directory: Path) -> list[int]:
    return decode_curriculum((directory / CURRICULUM_FILE).read_bytes(), TASKS).tolist()


def test_each_version_publishes_the_rewards_and_anyone_gets_the_same(scene_of: MakeScene, tmp_path: Path) -> None:
    scene = scene_of(False)
    trainer, closing = scene.trainer(tmp_path / "trainer")
    with closing:
        trainer.resume()
        scene.round(ACCEPTED)
        assert trainer.tick()
        directory = trainer.publisher.directory(1)
        check_directory(directory, scene.swarm.rules.pins)
        assert (directory / TASKS_FILE).samefile(scene.model / TASKS_FILE), "the tasks take no room again"
        assert weights_in(directory) == [1] * TASKS
        published = parse_rewards((directory / REWARDS_FILE).read_bytes())
        assert [(each.round, each.job, each.rewards.tolist()) for each in published.jobs] == [
            (1, 0, [1.0, 0.0]),
            (1, 1, [1.0, 0.0]),
        ]
        jobs = consumed_by(scene.chain, scene.swarm.run, 1)
        place = trainer.publisher.directory(1), scene.url
        again = recompute(scene.chain, scene.swarm.rules, published, jobs, *place)
        assert differing(published, again) == []
        forged = Rewards((replace(published.jobs[0], rewards=np.float32([1, 1])), published.jobs[1]))
        (found,) = differing(forged, again)
        assert (found.round, found.job, found.rollout, found.published, found.recomputed) == (1, 0, 1, 1.0, 0.0)
        (row,) = published.jobs[0].rows
        other = Rewards((replace(published.jobs[0], rows=((row + 1) % TASKS,)), published.jobs[1]))
        with pytest.raises(Rejected, match="whose prompt is another"):
            recompute(scene.chain, scene.swarm.rules, other, jobs, *place)


def test_a_task_that_may_be_used_once_is_not_drawn_again_and_a_restart_remembers(
    scene_of: MakeScene, tmp_path: Path
) -> None:
    scene = scene_of(True)
    trainer, closing = scene.trainer(tmp_path / "trainer")
    with closing:
        trainer.resume()
        for _ in range(TRIES):
            scene.round(ACCEPTED)
            if trainer.tick():
                break
        used = {row for row, weight in enumerate(weights_in(trainer.publisher.directory(1))) if not weight}
        assert used
    again, closing = scene.trainer(tmp_path / "trainer")
    with closing:
        again.resume()
        assert again.curriculum is not None
        assert {row for row, weight in enumerate(again.curriculum.weights.tolist()) if not weight} == used


def test_the_run_ends_when_its_tasks_are_used_up_and_the_last_version_still_has_one_to_draw(
    scene_of: MakeScene, tmp_path: Path
) -> None:
    scene = scene_of(True)
    trainer, closing = scene.trainer(tmp_path / "trainer")
    with closing:
        trainer.resume()
        assert trainer.curriculum is not None
        trainer.curriculum.weights[2:] = 0
        for _ in range(TRIES):
            scene.round(ACCEPTED)
            trainer.tick()
            trainer.tick()
            if trainer.done:
                break
        assert trainer.policy.version == 1
        assert sum(weights_in(trainer.publisher.directory(1))) == 1
    again, closing = scene.trainer(tmp_path / "trainer")
    with closing:
        again.resume()
        assert again.curriculum is not None
        assert again.curriculum.used_up, "a restart does not begin with used tasks"


def group(number: int, row: int | None) -> Group:
    return Group(1, number, 0, 0, np.int32([1]), (np.int32([2]), np.int32([3])), (0.0, 1.0), row=row)


def test_of_groups_with_one_task_the_first_is_trained_on(scene_of: MakeScene) -> None:
    scene = scene_of(True)
    curriculum = Curriculum.of(scene.environment)
    assert curriculum is not None
    kept = curriculum.unused([group(3, 1), group(1, 1), group(2, 4)])
    assert [(each.job, each.row) for each in kept] == [(1, 1), (2, 4)]
    without_advantages = replace(group(0, 1), rewards=(1.0, 1.0))
    assert [each.job for each in curriculum.unused([without_advantages, group(5, 1)])] == [5, 0]
    curriculum.use(kept)
    assert curriculum.unused([group(4, 1), group(5, 2)])[0].row == 2
    curriculum.take(None)
    assert curriculum.weights.tolist() == [1] * TASKS
    assert isinstance(scene.environment, TaskSet)
    assert curriculum.sources == ["even", "odd"]
