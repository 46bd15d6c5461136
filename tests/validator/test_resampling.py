"""A juror's own samples: the job's prompts, noise of its own, and rewards beside the owner's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocol.environments.environment import Problem
from protocol.errors import Unavailable
from protocol.wire.rollout import decode
from tests.validator.conftest import Court
from validator.records.resampling import sampled_groups
from validator.records.rewards import SAMPLES_SHARE

SECRET = bytes(32)


class Lengths:
    """An environment whose rewards differ between completions of a policy that knows nothing."""

    def __init__(self, court: Court) -> None:
        self.problem = court.environment.problem

    def reward(self, problem: Problem, completion: str) -> float:
        return len(completion) / (1 + len(completion)) / (1 + len(str(problem.prompt)))


@pytest.fixture
def measured(court: Court) -> Court:
    return replace(court, policy=replace(court.policy, tasks=Lengths(court)))  # type: ignore[arg-type]


def test_own_rewards_are_the_artifacts_and_the_samples_are_the_jurors(measured: Court) -> None:
    claim, data = measured.sample
    rollouts, rules = decode(data).rollouts, measured.rules
    groups = sampled_groups(measured.policy, rules, claim.seed, rollouts, SECRET)
    assert [len(group.own) for group in groups] == [rules.samples_per_group] * rules.groups_per_job
    assert [len(group.sampled) for group in groups] == [SAMPLES_SHARE * rules.samples_per_group] * len(groups)
    assert groups == sampled_groups(measured.policy, rules, claim.seed, rollouts, SECRET)
    others = sampled_groups(measured.policy, rules, claim.seed, rollouts, b"\1" * 32)
    assert [group.own for group in others] == [group.own for group in groups]
    assert [group.sampled for group in others] != [group.sampled for group in groups]


def test_a_missing_job_has_no_rewards_and_is_sampled_all_the_same(measured: Court) -> None:
    claim, data = measured.sample
    there = sampled_groups(measured.policy, measured.rules, claim.seed, decode(data).rollouts, SECRET)
    missing = sampled_groups(measured.policy, measured.rules, claim.seed, [], SECRET)
    assert all(group.own == () for group in missing)
    assert [group.sampled for group in missing] == [group.sampled for group in there]


def test_sampling_that_is_called_off_gives_nothing(measured: Court) -> None:
    claim, _ = measured.sample
    with pytest.raises(Unavailable):
        sampled_groups(measured.policy, measured.rules, claim.seed, [], SECRET, cancelled=lambda: True)
