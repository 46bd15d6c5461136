"""Sums asked in words: what is set, held out and rewarded."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.environments.environment import Environment, TypedProblems
from protocol.environments.registry import environment
from protocol.environments.sums import WORDINGS, AskedSums
from protocol.errors import Misconfigured

SEEDS = st.binary(min_size=32, max_size=32)


def _numbers(prompt: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", prompt)]


def test_the_problem_of_a_seed_never_changes() -> None:
    problem = AskedSums(29).problem(b"\x01" * 32)
    assert (problem.prompt, problem.answer, problem.held_out) == ("How much is 13 + 8?", "21", False)


@given(SEEDS, st.sampled_from([9, 29, 10**12]))
def test_a_problem_is_a_sum_in_range_in_one_of_the_wordings(seed: bytes, most: int) -> None:
    problem = AskedSums(most).problem(seed)
    numbers = _numbers(problem.prompt)
    assert int(problem.answer) == sum(numbers)
    assert max(numbers) <= most
    assert problem.prompt in [wording.format(*numbers) for wording in WORDINGS]


def test_pairs_are_held_out_in_every_wording_and_order() -> None:
    sums = AskedSums(29)
    held_out = {tuple(sorted(_numbers(each.prompt))) for each in sums.held_out_problems(256, 5)}
    trained = {tuple(sorted(_numbers(sums.problem(n.to_bytes(32, "big")).prompt))) for n in range(5_000)}
    assert not held_out & trained
    assert len({each.prompt for each in sums.held_out_problems(256, 5)}) == 256
    with pytest.raises(ValueError, match="fewer than 512"):
        AskedSums(29).held_out_problems(512, 5)


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("22", 1.0),
        ("17 + 5 equals 22.", 1.0),
        ("The answer is **022**, as you see", 1.0),
        ("22 is not 23", 0.0),
        ("17 + 5", 0.0),
        ("", 0.0),
        ("9" * 200, 0.0),
        ("twenty-two", 0.0),
    ],
)
def test_the_last_number_of_a_completion_is_its_answer(completion: str, reward: float) -> None:
    sums = AskedSums()
    problem = sums.typed("17+5=")
    assert problem is not None
    assert sums.reward(problem, completion) == reward


@given(st.text())
def test_any_text_has_a_reward(completion: str) -> None:
    sums = AskedSums()
    assert sums.reward(sums.problem(bytes(32)), completion) in (0.0, 1.0)


@pytest.mark.parametrize("text", ["17+5=", "What is 17 + 5?", " 17 + 5 "])
def test_people_may_type_a_sum_with_or_without_words(text: str) -> None:
    problem = AskedSums().typed(text)
    assert problem is not None
    assert problem.answer == "22"


@pytest.mark.parametrize("text", ["", "17", "17+30", "1+2+3"])
def test_what_is_no_sum_in_range_is_none(text: str) -> None:
    assert AskedSums().typed(text) is None


def test_the_registry_builds_it_and_refuses_other_parameters() -> None:
    made = environment("sums", {"most": 49})
    assert isinstance(made, Environment)
    assert isinstance(made, TypedProblems)
    for params in ({"most": 8}, {"most": True}, {"most": "9"}, {"least": 1}):
        with pytest.raises(Misconfigured, match="sums"):
            environment("sums", params)
