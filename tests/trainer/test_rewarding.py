"""Rewards of a job's rollouts: one after another, of what was generated, until they are called off."""

from __future__ import annotations

from threading import Event

import numpy as np
import pytest

from protocol.environments.environment import Problem
from protocol.environments.task_set import TaskSet
from protocol.errors import Unavailable
from protocol.wire.rollout import Rollout
from protocol.wire.tasks import LengthTarget, TaskHeader, TaskRow, TaskSource, encode_tasks
from trainer.rewarding import rewards_of

HEADER = TaskHeader(bytes(32), (TaskSource("own", 1),), (LengthTarget(3, (9,)),), 0.1)
TASKS = TaskSet.of_file(encode_tasks(HEADER, [TaskRow((1,), "7", "exact", budget_at=0), TaskRow((2,), "8", "exact")]))
PROBLEMS: list[Problem] = [TASKS.opened.problem(row, 0) for row in (0, 1)]


def rollout(*tokens: int) -> Rollout:
    return Rollout(np.int32([1]), np.int32(tokens), np.zeros(len(tokens), np.float32), (b"",), "stop")


def text(tokens: np.ndarray) -> str:  # type: ignore[type-arg]
    return "".join(map(str, tokens.tolist()))


def test_each_rollout_is_rewarded_by_its_groups_task_and_length_counts_where_it_was_asked_for() -> None:
    rollouts = [rollout(7), rollout(8), rollout(8), rollout(7, 7)]
    assert rewards_of(TASKS, PROBLEMS, rollouts, text).tolist() == pytest.approx([0.8, -0.2, 1.0, 0.0])


def test_what_was_called_off_is_not_judged() -> None:
    cancelled = Event()
    cancelled.set()
    with pytest.raises(Unavailable, match="cancelled"):
        rewards_of(TASKS, PROBLEMS, [rollout(7)] * 2, text, cancelled)
