"""Rewards of accepted rollouts, recomputed from their tokens: by the trainer, and by anyone who audits it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.environments.environment import Environment, Problem
from protocol.errors import Unavailable
from protocol.wire.rollout import Rollout
from protocol.wire.rules import Rules
from protocol.wire.seeds import prompt_seed

GRADERS = 2
"""Threads that judge answers, each of which may wait for a process."""

Text = Callable[[NDArray[np.int32]], str]
"""The text of a completion's tokens, as ``Model.completion_text`` under a run's stop tokens."""


def mean_by_source(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Returns the mean reward of each source of tasks, by name, from pairs of source and reward; "" is none."""
    found: dict[str, list[float]] = {}
    for source, reward in pairs:
        if source:
            found.setdefault(source, []).append(reward)
    return {source: fmean(rewards) for source, rewards in sorted(found.items())}


def problems_of(environment: Environment, rules: Rules, seed: bytes) -> list[Problem]:
    """Returns the problems of the job with this seed, one for each group."""
    return [environment.problem(prompt_seed(seed, group)) for group in range(rules.groups_per_job)]


def rewards_of(
    environment: Environment,
    problems: Sequence[Problem],
    rollouts: Sequence[Rollout],
    text: Text,
    cancelled: Event | None = None,
) -> NDArray[np.float32]:
    """Returns the rewards (N,) of a job's rollouts, as many for each problem, with what a missed length takes off.

    May take seconds for each, where programs run or a symbolic answer resists.

    Raises:
        Unavailable: what judges answers does not run, or ``cancelled`` was set.
    """
    size = len(rollouts) // len(problems)
    rewards: list[Any] = []
    for index, rollout in enumerate(rollouts):
        if cancelled is not None and cancelled.is_set():
            raise Unavailable("judging answers was cancelled")
        problem = problems[index // size]
        reward = environment.reward(problem, text(rollout.output_tokens))
        rewards.append(problem.total(reward, len(rollout.output_tokens)))
    return np.array(rewards, np.float32)
