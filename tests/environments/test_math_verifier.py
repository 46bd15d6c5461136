"""Answers in mathematics: labelled by hand, and hostile."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.environments.verifiers.mathematics import MathVerifier
from tests.environments.bombs import BOMBS
from tests.environments.labelled_pairs import PAIRS

MATH = MathVerifier()


def test_labelled_answers_are_graded_as_labelled() -> None:
    with ThreadPoolExecutor(2) as threads:
        grades = list(threads.map(lambda pair: MATH.grade(pair.ending, pair.reference, {}).reward, PAIRS))
    wrong = [pair for pair, reward in zip(PAIRS, grades, strict=True) if (reward == 1) != pair.right]
    assert len(PAIRS) == len(set(PAIRS)) == 200
    assert len(wrong) <= 4, wrong


def test_the_same_answers_have_the_same_grades_each_time() -> None:
    runs = [[MATH.grade(pair.ending, pair.reference, {}) for pair in PAIRS[::10]] for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]


def test_a_bomb_costs_two_seconds_at_most_and_no_server() -> None:
    def seconds(bomb: str) -> float:
        start = time.perf_counter()
        assert MATH.grade(rf"\boxed{{{bomb}}}", "x^2-1", {}).reward == 0
        return time.perf_counter() - start

    MATH.grade("2", "3", {})
    with ThreadPoolExecutor(2) as threads:
        assert max(threads.map(seconds, BOMBS[::4])) < 2.5
    assert MATH.grade(r"\boxed{\frac{2}{4}}", "0.5", {}).reward == 1


def test_a_server_that_ends_is_replaced() -> None:
    assert MATH.grade("2/4", "1/2", {}).reward == 1
    idle = MATH._servers._idle.get()
    assert idle is not None
    idle._process.kill()
    MATH._servers._idle.put(idle)
    assert MATH.grade("2/4", "1/2", {}).reward == 1


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet=st.sampled_from("0123456789xy+-*/^(){}[]\\,.= <>!%$i"), max_size=40) | st.text(max_size=20))
def test_any_text_has_a_grade(text: str) -> None:
    assert MATH.grade(text, r"x^2-1", {}).reward in (0, 1)


@pytest.mark.parametrize("reference", [r"\boxed{\frac{1}{2}}", r"$\frac12$", "1/2", "0.5", "So it is \\boxed{0.5}."])
def test_a_reference_may_be_boxed(reference: str) -> None:
    assert MATH.grade(r"\boxed{\frac{3}{6}}", reference, {}).reward == 1


def test_a_copy_of_the_process_starts_servers_of_its_own() -> None:
    assert MATH.grade("2/4", "1/2", {}).reward == 1
    started = MATH._servers._idle
    MATH._servers._forget()
    assert MATH._servers._idle is not started
    assert MATH.grade("3/6", "1/2", {}).reward == 1
    while not started.empty():
        if server := started.get():
            server.end()


@pytest.mark.parametrize("hedge", [r"\neq 3", r"\sim 3", r"3 \approx 4", r"3 \lor 4", r"3 \mid 4", r"3 \to 4"])
def test_a_relation_that_the_reference_lacks_is_no_answer(hedge: str) -> None:
    assert MATH.grade(rf"\boxed{{{hedge}}}", "3", {}).reward == 0
