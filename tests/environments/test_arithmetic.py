"""Arithmetic problems: what is set, held out and rewarded."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.environments.arithmetic import Arithmetic
from protocol.environments.environment import Environment
from protocol.environments.registry import environment
from protocol.errors import Misconfigured

SEEDS = st.binary(min_size=32, max_size=32)


def _value(prompt: str) -> int:
    left, right = prompt.rstrip("\n").split("+")
    return int(left) + int(right)


def test_problem_of_a_seed_never_changes() -> None:
    problem = Arithmetic(3).problem(b"\x01" * 32)
    assert (problem.prompt, problem.answer, problem.held_out) == ("442+692\n", "1134", False)


def test_held_out_problems_of_a_seed_never_change() -> None:
    prompts = "".join(problem.prompt for problem in Arithmetic(3).held_out_problems(512, 1))
    assert (
        hashlib.sha256(prompts.encode()).hexdigest()
        == "17d41c07fc9529ca3a13b23fb2dda7f24ddeb4a0dd907376900189aca85488e1"
    )


@given(SEEDS, st.integers(1, 12))
def test_answer_is_the_sum_at_a_fixed_width(seed: bytes, digits: int) -> None:
    problem = Arithmetic(digits).problem(seed)
    assert int(problem.answer) == _value(problem.prompt)
    assert len(problem.answer) == digits + 1
    assert len(problem.prompt) == 2 * digits + 2


def test_training_problems_and_held_out_problems_are_disjoint_whichever_way_round() -> None:
    arithmetic = Arithmetic(2)
    held_out = {problem.prompt.strip() for problem in arithmetic.held_out_problems(250, 7)}
    turned = {"+".join(reversed(prompt.split("+"))) for prompt in held_out}
    trained = {arithmetic.problem(index.to_bytes(32, "big")).prompt.strip() for index in range(20_000)}
    assert not trained & (held_out | turned)
    assert len(held_out) == 250


def test_held_out_problems_say_so_and_run_out_loudly() -> None:
    assert all(problem.held_out for problem in Arithmetic(3).held_out_problems(16, 0))
    with pytest.raises(ValueError, match="1-digit sums"):
        Arithmetic(1).held_out_problems(512, 0)


@given(SEEDS)
def test_correct_working_fills_a_proof_chunk_and_earns_one(seed: bytes) -> None:
    arithmetic = Arithmetic(3)
    problem = arithmetic.problem(seed)
    completion = arithmetic.working(problem, [0, 0, 0])
    assert len(completion) == 50
    assert set(problem.prompt + completion) <= set(arithmetic.alphabet)
    assert arithmetic.reward(problem, completion) == 1.0


@given(SEEDS, st.integers(0, 2), st.sampled_from([-1, 1]))
def test_a_slip_in_any_column_makes_the_answer_wrong(seed: bytes, column: int, slip: int) -> None:
    arithmetic = Arithmetic(3)
    problem = arithmetic.problem(seed)
    slips = [slip if index == column else 0 for index in range(3)]
    clean, slipped = arithmetic.working(problem, [0, 0, 0]), arithmetic.working(problem, slips)
    assert len(slipped) == len(clean)
    assert (arithmetic.reward(problem, slipped) == 0.0) == (slipped != clean)


def test_working_is_written_column_by_column_with_its_carry() -> None:
    arithmetic = Arithmetic(3)
    problem = arithmetic.problem(b"\x01" * 32)
    assert arithmetic.working(problem, [0, 0, 0]) == "2+2+0=04,4c0\n4+9+0=13,3c1\n4+6+1=11,1c1\nanswer 1134"


@given(st.text())
def test_any_text_has_a_reward(text: str) -> None:
    arithmetic = Arithmetic(3)
    assert arithmetic.reward(arithmetic.problem(b"\x01" * 32), text) in (0.0, 1.0)


@pytest.mark.parametrize(
    "text", ["answer 1134 ", "answer 1134\n", "answer 01134", "answer 1134answer", "1134", "answer ١١٣٤"]
)
def test_only_the_right_answer_at_the_very_end_counts(text: str) -> None:
    arithmetic = Arithmetic(3)
    assert arithmetic.reward(arithmetic.problem(b"\x01" * 32), text) == 0.0


def test_an_answer_can_be_written_over_in_as_many_characters() -> None:
    arithmetic = Arithmetic(3)
    problem = arithmetic.problem(b"\x01" * 32)
    wrong = arithmetic.working(problem, [1, 0, 0])
    edited = arithmetic.with_answer(wrong, problem.answer)
    assert edited is not None
    assert len(edited) == len(wrong)
    assert arithmetic.reward(problem, wrong) == 0.0
    assert arithmetic.reward(problem, edited) == 1.0


@pytest.mark.parametrize("text", ["", "answer ", "answer 12", "no working at all"])
def test_nothing_is_written_over_where_no_answer_of_that_length_stands(text: str) -> None:
    assert Arithmetic(3).with_answer(text, "1134") is None


def test_seed_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Arithmetic(3).problem(b"short")


def test_registry_builds_what_a_run_names() -> None:
    built = environment("arithmetic", {"digits": 4})
    assert isinstance(built, Environment)
    assert built == Arithmetic(4)


@pytest.mark.parametrize(
    ("name", "params", "sentence"),
    [
        ("algebra", {}, "unknown environment 'algebra'"),
        ("arithmetic", {"digit": 3}, "unknown arithmetic parameter 'digit'"),
        ("arithmetic", {"digits": 0}, "from 1 to 12"),
        ("arithmetic", {"digits": True}, "from 1 to 12"),
        ("arithmetic", {"digits": "3"}, "from 1 to 12"),
    ],
)
def test_what_no_environment_offers_is_refused_in_one_sentence(
    name: str, params: dict[str, object], sentence: str
) -> None:
    with pytest.raises(Misconfigured, match=sentence):
        environment(name, params)
