"""Final answers, and the verifiers that compare text."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.environments.verifiers.answers import final_answer, letter
from protocol.environments.verifiers.registry import VERIFIERS, verifier
from protocol.errors import Misconfigured, Rejected

HOSTILE = [
    "\\boxed{" * 100_000,
    "{" * 500_000,
    "answer." * 100_000,
    "answer\n" * 100_000,
    ". " * 500_000,
    "**" * 500_000,
    "$" * 1_000_000,
    "<think>" * 100_000,
    "</think>" * 100_000,
    "(" * 1_000_000,
    "\x00\ud800\u202e",
]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{3}", "3"),
        (r"\boxed{1} and then \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{x = \boxed{5}}", "5"),
        (r"\boxed{7} or else \boxed{8", "7"),
        ("The answer is 3.", "3"),
        ("Answer: 3\nThat was easy.", "3"),
        ("**Answer:** **3**", "3"),
        ("answer 0933", "0933"),
        ("Final answer:\n\n$x^2$", "x^2"),
        ("The answer to all of it is 42.", "42"),
        ("The first answer is 1. The answer is 2.", "2"),
        ("one\ntwo\n\n", "two"),
        ("That is my final answer.", "That is my final answer"),
        ("<think>answer is 1</think>2", "2"),
        ("<think>answer is 1", ""),
        ("<think>a</think>2<think>3", ""),
        ("", ""),
        (" \n\t", ""),
    ],
)
def test_the_final_answer_is_boxed_marked_or_last(text: str, answer: str) -> None:
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        *("B", "(B)", "(b)", "B)", "B.", "**B**", r"\boxed{B}", r"\boxed{\text{B}}", r"\boxed{\textbf{(B)}}"),
        *("The answer is B", "Answer: (B) nine", "The answer is option B.", "So it is\nB) nine", "Answer: **B**. Nine"),
    ],
)
def test_a_choice_is_found_in_its_usual_forms(text: str) -> None:
    assert VERIFIERS["choice"].grade(text, "B", {}).reward == 1
    assert VERIFIERS["choice"].grade(text, "(C)", {}).reward == 0


@pytest.mark.parametrize("text", ["", "A dog", "I think so", "Because", "K", "AB", "e.g. this"])
def test_words_are_no_choice(text: str) -> None:
    assert letter(text) is None


def test_exact_answers_differ_by_white_space_and_compatible_characters_alone() -> None:
    exact = VERIFIERS["exact"]
    assert exact.grade("The answer is  ﬁve\tapples.", "five apples", {}).reward == 1
    assert exact.grade("The answer is Five apples", "five apples", {}).reward == 0
    assert exact.grade("The answer is", "", {}).reward == 0


def test_tasks_without_a_usable_answer_are_refused() -> None:
    for name, answer in (("exact", " "), ("choice", "K"), ("choice", ""), ("math", "")):
        with pytest.raises(Rejected, match="invalid answer"):
            VERIFIERS[name].check_task(answer, {})


@settings(max_examples=200, deadline=None)
@given(st.text(), st.sampled_from(["exact", "choice"]))
def test_any_text_has_a_grade(text: str, name: str) -> None:
    reward, why = VERIFIERS[name].grade(text, "B", {})
    assert 0 <= reward <= 1
    assert why


def test_a_megabyte_of_hostile_text_is_read_at_once() -> None:
    for text in HOSTILE:
        start = time.perf_counter()
        for name in ("exact", "choice"):
            assert VERIFIERS[name].grade(text, "B", {}).reward == 0
        assert time.perf_counter() - start < 1


def test_an_unknown_verifier_is_named_beside_the_known_ones() -> None:
    with pytest.raises(
        Misconfigured, match="unknown verifier 'x': expected one of choice, code, exact, math, reasoning"
    ):
        verifier("x")


def test_the_registry_imports_no_library_that_grades() -> None:
    heavy = ("sympy", "math_verify", "reasoning_gym", "numpy", "torch")
    script = f"""
import sys
from protocol.environments.verifiers.registry import verifier
verifier("math").check_machine()
print([name for name in {heavy} if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
