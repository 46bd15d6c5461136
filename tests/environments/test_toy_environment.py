"""An environment that only this file knows behaves like the product's, and judge and trainer take it as it is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.environments.arithmetic import Arithmetic
from protocol.environments.environment import Environment, Problem
from protocol.environments.registry import ENVIRONMENTS, environment
from protocol.errors import Misconfigured
from protocol.wire.reasons import Reason
from protocol.wire.rollout import decode
from protocol.wire.rules import EnvironmentRules, Rules
from tests.validator.conftest import RULES, Court, make_model
from trainer.batch import Group, select
from trainer.evaluate import evaluate
from trainer.rewarding import problems_of, rewards_of
from validator.judging.weights import load_policy

SEEDS = st.binary(min_size=32, max_size=32)
PARAMS: dict[str, dict[str, object]] = {"arithmetic": {"digits": 3}, "digits": {"length": 4}}


@dataclass(frozen=True, slots=True)
class Digits:
    """Asks for the digits of a number, in any order; a completion earns the share of them that it has."""

    length: int

    @classmethod
    def from_params(cls, params: Mapping[str, object]) -> Digits:
        length = params.get("length")
        if not isinstance(length, int) or set(params) != {"length"}:
            raise Misconfigured("invalid parameters of digits: expected 'length'")
        return cls(length)

    def problem(self, seed: bytes) -> Problem:
        if len(seed) != 32:
            raise ValueError(f"invalid problem seed of {len(seed)} bytes: expected 32 bytes")
        return self._of(int.from_bytes(hashlib.sha256(seed).digest(), "big") * 10 + 1, held_out=False)

    def held_out_problems(self, count: int, seed: int) -> list[Problem]:
        most = 10 ** (self.length - 1)
        if count > most:
            raise ValueError(f"there are {most} held-out problems, not {count}")
        return [self._of((seed + index) * 10, held_out=True) for index in range(count)]

    def reward(self, problem: Problem, completion: str) -> float:
        return sum(digit in completion for digit in problem.answer) / self.length

    def most_prompt_tokens(self, rules: Rules) -> int:
        return len(rules.prompt_text("9" * self.length + "\n").encode())

    def _of(self, number: int, held_out: bool) -> Problem:
        digits = f"{number % 10**self.length:0{self.length}d}"
        return Problem(f"{digits}\n", "".join(sorted(digits)), held_out)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that it takes to add one."""
    monkeypatch.setitem(ENVIRONMENTS, "digits", Digits.from_params)


@pytest.fixture(params=sorted(PARAMS))
def tasks(request: pytest.FixtureRequest) -> Environment:
    return environment(request.param, PARAMS[request.param])


def right(tasks: Environment, problem: Problem) -> str:
    """A completion that arrives at the answer."""
    return f"answer {problem.answer}" if isinstance(tasks, Arithmetic) else problem.answer


over_seeds = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)


def test_it_is_an_environment_and_refuses_parameters_it_does_not_know(tasks: Environment) -> None:
    assert isinstance(tasks, Environment)
    with pytest.raises(Misconfigured):
        environment("arithmetic" if isinstance(tasks, Arithmetic) else "digits", {"stuff": 1})


@over_seeds
@given(seed=SEEDS)
def test_the_same_seed_sets_the_same_problem_and_never_a_held_out_one(tasks: Environment, seed: bytes) -> None:
    again = environment("arithmetic", {"digits": 3}) if isinstance(tasks, Arithmetic) else Digits(4)
    assert tasks.problem(seed) == again.problem(seed)
    assert not tasks.problem(seed).held_out


def test_seeds_set_many_problems_and_none_of_the_held_out(tasks: Environment) -> None:
    held_out = tasks.held_out_problems(200, 7)
    assert all(problem.held_out for problem in held_out)
    assert len({problem.prompt for problem in held_out}) == 200
    assert tasks.held_out_problems(200, 7) == held_out
    trained = {tasks.problem(index.to_bytes(32, "big")).prompt for index in range(2000)}
    assert len(trained) > 500
    assert not trained & {problem.prompt for problem in held_out}


@pytest.mark.parametrize("seed", [b"", b"short", bytes(33)])
def test_a_seed_of_another_length_is_refused(tasks: Environment, seed: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        tasks.problem(seed)


def test_more_held_out_problems_than_there_are_is_refused(tasks: Environment) -> None:
    with pytest.raises(ValueError, match="held-out problems"):
        tasks.held_out_problems(10**9, 0)


@over_seeds
@given(seed=SEEDS)
def test_the_right_answer_earns_one_and_others_less(tasks: Environment, seed: bytes) -> None:
    problem = tasks.problem(seed)
    assert tasks.reward(problem, right(tasks, problem)) == 1.0
    for wrong in ("", "answer", "no working at all", "\x00\ud800", "answer -"):
        assert tasks.reward(problem, wrong) == 0.0


@over_seeds
@given(seed=SEEDS, text=st.text())
def test_any_text_has_the_same_reward_every_time(tasks: Environment, seed: bytes, text: str) -> None:
    problem = tasks.problem(seed)
    reward = tasks.reward(problem, text)
    assert 0.0 <= reward <= 1.0
    assert reward == tasks.reward(problem, text)


def test_a_job_of_it_is_made_judged_and_trained_on(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    make_model(tmp_path)
    rules = RULES.model_copy(update={"environment": EnvironmentRules(name="digits", params={"length": 4})})
    tasks = environment(rules.environment.name, rules.environment.params)
    court = Court(load_policy(tmp_path, rules), rules, tasks)
    claim, data = court.honest()
    (judgement,) = court.judge((claim, data))
    assert judgement.reason is Reason.ACCEPTED
    rollouts, size = decode(data).rollouts, rules.samples_per_group
    problems = problems_of(tasks, rules, claim.seed)
    text = partial(court.policy.model.completion_text, stop_tokens=(court.policy.model.stop_token,))
    rewards = rewards_of(tasks, problems, rollouts, text).tolist()
    assert len(set(rewards)) > 1, "some completions have more of the digits than others"
    groups = [
        Group(
            round=1,
            job=0,
            group=start // size,
            version=0,
            prompt_tokens=rollouts[start].prompt_tokens,
            completions=tuple(one.output_tokens for one in rollouts[start : start + size]),
            rewards=tuple(rewards[start : start + size]),
        )
        for start in range(0, len(rollouts), size)
    ]
    assert select(groups, newest=0, async_level=1, wanted=64).taken
    assert 0.0 < evaluate(court.policy.model, tasks, rules, seed=1, count=32).accuracy < 1.0
