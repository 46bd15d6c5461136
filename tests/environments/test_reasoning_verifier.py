"""Tasks of Reasoning Gym: its own answers score, and nothing that an answer holds is run for the score."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from protocol.environments.verifiers.reasoning import EVALUATED, REFUSED, ReasoningVerifier, given_answer
from protocol.environments.verifiers.sandbox import has_sandbox
from protocol.errors import Rejected

SPEC = importlib.util.find_spec("reasoning_gym")
pytestmark = pytest.mark.skipif(SPEC is None or not has_sandbox(), reason="no sandbox or no reasoning-gym here")

REASONING = ReasoningVerifier()
DATASETS = ["arc_1d", "basic_arithmetic", "caesar_cipher", "chain_sum", "family_relationships", "knights_knaves"]
DATASETS += ["leg_counting", "mini_sudoku", "n_queens", "number_sorting", "polynomial_multiplication", "rearc"]
DATASETS += ["countdown", "simple_integration", "spiral_matrix", "string_insertion", "word_sorting", "zebra_puzzles"]

EVALUATING = {"eval", "exec", "parse_expr", "sympify", "literal_eval", "compile", "lambdify", "system", "Popen"}
HARMLESS = {
    "algorithmic/number_sorting.py": "evaluates the task's answer, which check_task restricts",
    "arithmetic/basic_arithmetic.py": "evaluates what it generates",
    "arithmetic/bitwise_arithmetic.py": "refused",
    "arithmetic/gsm_symbolic/generators_00_49.py": "evaluates what it generates",
    "arithmetic/gsm_symbolic/generators_50_99.py": "evaluates what it generates",
    "code/codeio.py": "refused",
    "games/puzzle24.py": "refused",
    "logic/propositional_logic.py": "has a parser of its own by that name",
}


@pytest.fixture(scope="module")
def tasks() -> dict[str, dict[str, Any]]:
    """Returns one task of each dataset, made in another process as they are made by its library."""
    script = f"""
import json, reasoning_gym
names = {[*DATASETS, "binary_matrix", "intermediate_integration", "complex_arithmetic"]!r}
print(json.dumps({{name: reasoning_gym.create_dataset(name, seed=4, size=1)[0] for name in names}}, default=str))
"""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    return {name: {"dataset": name, "entry": entry} for name, entry in json.loads(ran.stdout).items()}


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_s_own_answer_scores_one(tasks: dict[str, dict[str, Any]], name: str) -> None:
    info = tasks[name]
    REASONING.check_task("", info)
    answer = info["entry"]["answer"]
    tagged = f"<think>hm</think>It follows.\n<answer>\n{answer}\n</answer>"
    assert [REASONING.grade(tagged, "", info).reward for _ in range(3)] == [1, 1, 1]
    assert REASONING.grade(answer if "\n" in answer else f"The answer is {answer}", "", info).reward == 1
    assert REASONING.grade("<answer>something else</answer>", "", info).reward < 0.5


@pytest.mark.parametrize(
    "answer",
    [
        "__import__('os')._exit(0)",
        "[entry for entry['answer'] in ['x']]",
        "oracle_answer",
        "valid_solutions[0]",
        "entry.clear()",
        "(lambda: 1)()",
        "Integral(x**2, x)",
        "S('__import__(\"os\")')",
        "x.__class__",
        "9**9**9**9",
        "exec('1')",
        "",
        "1" * 20_000,
        "(" * 5000,
        "nan",
        "NaN",
        "[NaN, NaN, NaN]",
        "inf",
    ],
)
def test_an_answer_is_not_run_and_cannot_take_the_score(tasks: dict[str, dict[str, Any]], answer: str) -> None:
    for name in (*EVALUATED, "complex_arithmetic", "number_sorting"):
        start = time.perf_counter()
        assert REASONING.grade(f"<answer>{answer}</answer>", "", tasks[name]).reward <= 0.05
        assert time.perf_counter() - start < 2.5 or name == next(iter(EVALUATED))


def test_each_scorer_that_evaluates_is_known() -> None:
    assert SPEC is not None
    assert SPEC.origin is not None
    package = Path(SPEC.origin).parent
    evaluating = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and called(node) in EVALUATING
    }
    known = {name for name in evaluating - set(HARMLESS) if Path(name).stem in EVALUATED}
    assert evaluating - set(HARMLESS) - known == set()
    assert {Path(name).stem for name in known} == set(EVALUATED)


def called(node: ast.Call) -> str | None:
    if isinstance(node.func, ast.Attribute):
        is_pattern = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
        return None if is_pattern or node.func.attr == "compile" else node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else None


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"dataset": "chain_sum"},
        {"dataset": "chain_sum", "entry": {"answer": "1"}},
        {"dataset": "chain_sum", "entry": {"answer": 1, "metadata": {}}},
        {"dataset": "simple_integration", "entry": {"answer": "x", "metadata": {"integrand": "exit()"}}},
        {"dataset": "number_sorting", "entry": {"answer": "exit()", "metadata": {}}},
        *({"dataset": name, "entry": {"answer": "1", "metadata": {}}} for name in REFUSED),
    ],
)
def test_tasks_that_cannot_be_scored_are_refused(info: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match="invalid"):
        REASONING.check_task("", info)


def test_the_answer_is_tagged_or_fits_the_form_of_the_right_one() -> None:
    assert given_answer("a <answer>1</answer> b <answer> 2 </answer>", "3") == "2"
    assert given_answer("The board:\n```\n1 2\n3 4\n```\nDone.", "1 2\n4 3") == "1 2\n3 4"
    assert given_answer("1 2\n3 4\n", "1 2\n4 3") == "1 2\n3 4"
    assert given_answer("It is so.\nThe answer is 5.", "5") == "5"
    assert given_answer("The answer is It was so.", "It was so.") == "It was so."
    assert given_answer("<think><answer>1</answer>", "1") == ""
