"""Rows of datasets as tasks, by their columns; the rows are made up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.tasks.shapes import MAX_INFO, RawTask, Unfit, procedural_task, reads, solve_rate, task_of
from protocol.environments.verifiers.programs import MAX_TESTS
from protocol.errors import AssizeError

NUMINA = {"problem": "Halve 6.", "answer": "3", "question_type": "math-word-problem", "problem_is_valid": "Yes"}
PRINTED = {
    "language": "python",
    "test_cases": [{"type": "stdin_stdout", "fn_name": None, "input": "2\n", "output": "4\n"}],
}
CALLED = {
    "language": "python",
    "test_cases": [{"type": "function_call", "fn_name": "f", "input": [2, "a"], "output": True}],
}
DOUBLING = {
    "text": "Double a number.",
    "code": "def double(n):\n    return 2 * n",
    "test_list": ["assert double(2) == 4"],
}


def verified(kind: str, info: Any, **more: object) -> dict[str, Any]:
    return {"prompt": "Solve it. ", "task_type": kind, "verification_info": info} | more


def info_of(task: RawTask) -> Any:
    return json.loads(task.info)


@pytest.mark.parametrize(
    ("row", "messages", "answer", "verifier"),
    [
        ({"question": "2+2=", "answer": 4}, (("user", "2+2="),), "4", "exact"),
        ({"prompt": "2+2=", "answer": "4", "verifier": "math"}, (("user", "2+2="),), "4", "math"),
        (
            {"prompt": [{"role": "system", "content": "Add."}, {"role": "user", "content": "2, 2"}], "answer": "4"},
            (("system", "Add."), ("user", "2, 2")),
            "4",
            "exact",
        ),
        (NUMINA, (("user", "Halve 6."),), "3", "math"),
        (NUMINA | {"question_type": "MCQ", "answer": "B"}, (("user", "Halve 6."),), "B", "choice"),
        ({"question": "How many?", "answer": "6 and 6 make 12.\n#### 1,012"}, (("user", "How many?"),), "1012", "math"),
        (verified("verifiable_math", '{"ground_truth": "7"}'), (("user", "Solve it."),), "7", "math"),
        (verified("verifiable_math", "{'ground_truth': '7'}"), (("user", "Solve it."),), "7", "math"),
        (verified("verifiable_math", {"ground_truth": 7}), (("user", "Solve it."),), "7", "math"),
    ],
)
def test_each_shape_has_its_question_answer_and_verifier(
    row: dict[str, Any], messages: tuple[tuple[str, str], ...], answer: str, verifier: str
) -> None:
    task = task_of(row)
    assert (task.messages, task.answer, task.verifier) == (messages, answer, verifier)


def test_tests_of_programs_that_print_come_as_cases_or_as_parallel_lists() -> None:
    told = {"tests": [{"input": "2\n", "output": "4\n"}]}
    assert info_of(task_of(verified("verifiable_code", repr(PRINTED)))) == told
    parallel = {"test_cases": json.dumps({"inputs": ["2\n"], "outputs": ["4\n"]})}
    assert info_of(task_of(verified("prime_rl_code", json.dumps(parallel)))) == told
    of_lines = {"test_cases": {"inputs": [["2", "3"]], "outputs": [["4", ""]]}}
    assert info_of(task_of(verified("prime_rl_code", of_lines))) == {"tests": [{"input": "2\n3", "output": "4\n"}]}


def test_tests_of_functions_become_calls_with_results() -> None:
    assert info_of(task_of(verified("verifiable_code", CALLED))) == {"calls": [{"call": "f(2, 'a')", "result": "True"}]}
    in_lists = {"test_cases": {"fn_name": "f", "inputs": [[2], [3]], "outputs": [[4], [[5]]]}}
    calls = [{"call": "f(2)", "result": "4"}, {"call": "f(3)", "result": "[5]"}]
    assert info_of(task_of(verified("prime_rl_code", in_lists))) == {"calls": calls}
    by_line = {"test_cases": {"fn_name": "f", "inputs": ['"a"\n[1, 2]'], "outputs": ["b"]}}
    assert info_of(task_of(verified("prime_rl_code", by_line)))["calls"] == [
        {"call": "f('a', [1, 2])", "result": "'b'"}
    ]
    method = verified("verifiable_code", CALLED, prompt="class Solution:\n    def f(self, n, s): ...")
    assert info_of(task_of(method))["calls"][0]["call"] == "Solution().f(2, 'a')"


def test_no_more_tests_are_taken_than_a_program_may_have() -> None:
    many = {"language": "python", "test_cases": PRINTED["test_cases"] * (MAX_TESTS + 1)}
    assert len(info_of(task_of(verified("verifiable_code", many)))["tests"]) == MAX_TESTS


@pytest.mark.parametrize(
    ("test", "call", "result"),
    [
        ("assert double(2) == 4", "double(2)", "4"),
        ("assert [4, 'x'] == double([2])", "double([2])", "[4, 'x']"),
        ("assert double(2) is None", "double(2)", "None"),
        ("assert double(2)", "double(2)", "True"),
        ("assert not double(2), 'odd'", "double(2)", "False"),
        ("assert set(double(2)) == {1, 2}", "set(double(2))", "{1, 2}"),
    ],
)
def test_an_assertion_becomes_a_call(test: str, call: str, result: str) -> None:
    info = info_of(task_of(DOUBLING | {"test_list": [test], "test_setup_code": "import math"}))
    assert info == {"calls": [{"call": call, "result": result}], "setup": "import math"}


def test_a_program_is_asked_for_under_the_name_that_its_tests_call() -> None:
    assert task_of(DOUBLING).text == "Double a number.\n\nDefine it as `double(n)`."
    assert task_of(DOUBLING | {"code": None}).text.endswith("`double`.")
    of_imports = DOUBLING | {"test_imports": ["import math", "import re"]}
    assert info_of(task_of(of_imports))["setup"] == "import math\nimport re"


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (NUMINA | {"question_type": "proof"}, "a proof"),
        (NUMINA | {"answer": "proof"}, "a proof"),
        (NUMINA | {"answer": "notfound"}, "no answer"),
        (NUMINA | {"answer": None}, "no answer"),
        (NUMINA | {"problem": " "}, "no question"),
        (NUMINA | {"problem_is_valid": "Incomplete"}, "marked invalid"),
        (NUMINA | {"solution_is_valid": "No"}, "marked invalid"),
        (NUMINA | {"answer": "(1) 5; (2) 7"}, "an answer in parts"),
        (NUMINA | {"answer": r"\text{(a)} 5, \text{(b)} 7"}, "an answer in parts"),
        (NUMINA | {"answer": "1) 5; 2) 7"}, "an answer in parts"),
        (NUMINA | {"question_type": "MCQ", "answer": "12"}, "its verifier refuses it"),
        (verified("llm_judgeable", '{"ground_truth": "7"}'), "another type of task"),
        (verified("verifiable_math", "{}"), "no answer"),
        (verified("verifiable_math", "not JSON"), "no facts to verify by"),
        (verified("verifiable_math", "[" * 10_000), "no facts to verify by"),
        (verified("verifiable_code", CALLED | {"language": "cpp"}), "another language than Python"),
        (verified("verifiable_code", {"test_cases": [{"input": 1, "output": "2"}]}), "no tests that can be used"),
        (verified("verifiable_code", {"test_cases": {"inputs": ["1"], "outputs": []}}), "no tests that can be used"),
        (verified("verifiable_code", {"test_cases": ["assert x"]}), "no tests that can be used"),
        (verified("verifiable_code", {"test_cases": "nothing"}), "no tests that can be used"),
        (verified("verifiable_code", {}), "no tests that can be used"),
        (DOUBLING | {"test_list": []}, "no tests that can be used"),
        (DOUBLING | {"test_list": ["assert double(2) > 3"]}, "no tests that can be used"),
        (DOUBLING | {"test_list": ["assert double(2) == set([1])"]}, "no tests that can be used"),
        (DOUBLING | {"test_list": ["double(2"]}, "no tests that can be used"),
        (
            verified("verifiable_code", {"test_cases": [{"input": "x" * MAX_INFO, "output": ""}]}),
            "its verifier refuses it",
        ),
    ],
)
def test_a_datasets_row_that_makes_no_task_is_left_out_for_a_reason(row: dict[str, Any], why: str) -> None:
    with pytest.raises(Unfit, match=why):
        task_of(row)


@pytest.mark.parametrize("answer", ["(0, 1)", "f(1) = 2, f(2) = 3", "(1, 2), (2, 3)", "5 (m)", "x(1)+y(2)"])
def test_points_and_values_of_functions_are_no_answer_in_parts(answer: str) -> None:
    assert task_of(NUMINA | {"answer": answer}).answer == answer


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"question": "2+2="}, "expected an answer"),
        ({"question": "2+2=", "answer": " "}, "expected an answer"),
        ({"question": "2+2=", "answer": ["4"]}, "expected an answer"),
        ({"question": 7, "answer": "4"}, "expected a question"),
        ({"question": [], "answer": "4"}, "expected a question"),
        ({"question": "\ud800", "answer": "4"}, "expected a question in Unicode"),
        ({"prompt": [{"role": "user"}], "answer": "4"}, "content as text"),
        ({"prompt": [{"role": "assistant", "content": "4"}], "answer": "4"}, "last message of the user"),
        ({"question": "2+2=", "answer": "4", "verifier": "luck"}, "unknown verifier 'luck'"),
        ({"question": "2+2=", "answer": "4", "verifier": 4}, "expected verifier as text"),
        ({"question": "2+2=", "answer": "4", "info": "[]"}, "expected a JSON object"),
        ({"question": "2+2=", "answer": "4", "info": 5}, "expected info as an object"),
        ({"question": "2+2=", "answer": "4", "info": {"x": float("nan")}}, "expected info that is JSON"),
        ({"question": "2+2=", "answer": "4", "info": {"x": "y" * MAX_INFO}}, "at most 1048576 characters"),
        ({"question": "2+2=", "answer": "4", "weight": 65536}, "expected a weight from 0 to 65535"),
        ({"question": "2+2=", "answer": "4", "weight": True}, "expected a weight"),
        ({"question": "2+2=", "answer": "4", "split": "tuesday"}, "expected split"),
        ({"question": "2+2=", "answer": "4", "held_out": "yes"}, "expected held_out"),
        ({"question": "Write f.", "verifier": "code", "info": {"tests": []}}, "invalid tests"),
        ({"question": "Which?", "verifier": "choice", "answer": "12"}, "expected a letter"),
        (
            {"name": "x", "colour": "y"},
            "expected question and answer, or the columns of a known dataset, not name, colour",
        ),
    ],
)
def test_a_persons_own_row_that_is_wrong_is_refused(row: dict[str, Any], why: str) -> None:
    with pytest.raises(AssizeError, match=why):
        task_of(row)


def test_rows_say_their_side_and_weight() -> None:
    own = {"question": "2+2=", "answer": "4"}
    assert task_of(own).held_out is None
    assert [task_of(own | {"split": name}).held_out for name in ("train", "Test", "held_out")] == [False, True, True]
    assert [task_of(own | {"held_out": value}).held_out for value in (0, True, None)] == [False, True, None]
    assert task_of(own | {"weight": 7}).weight == 7
    assert task_of(NUMINA | {"split": "test", "weight": 3, "colour": "red"}).held_out is True
    assert task_of(NUMINA | {"split": "odd", "weight": "heavy"}).weight == 1


@pytest.mark.parametrize("text", ["1" + "+1" * 100_000, "[" * 100_000, "()" * 100_000, "-(" * 5000, "{" * 100, "'a"])
def test_facts_that_a_parser_may_crash_on_are_left_out(text: str) -> None:
    with pytest.raises(Unfit, match="no facts to verify by"):
        task_of(verified("verifiable_math", text))
    with pytest.raises(Unfit, match="no tests that can be used"):
        task_of(DOUBLING | {"test_list": [f"assert double({text}) == 1"]})


def test_facts_in_python_are_read_as_python_reads_them() -> None:
    facts = {"ground_truth": "it's [(+~ \\ \n", "others": [True, None, (1, -2.5e-3), {"x"}, b"y", ()]}
    assert task_of(verified("verifiable_math", repr(facts))).answer == str(facts["ground_truth"]).strip()


def test_columns_that_no_shape_reads_are_told_apart() -> None:
    assert [reads(name) for name in ("problem", "solve_rate_a", "llm_response")] == [True, True, False]
    assert solve_rate({"solve_rate_b": 0.5, "solve_rate_a": None, "prompt": "x"}) == 0.5
    assert solve_rate({"prompt": "x"}) is None


def test_an_entry_of_a_generator_is_judged_by_its_own_scorer() -> None:
    task = procedural_task("chain_sum", {"question": "1 + 2 =", "answer": "3", "metadata": {"terms": (1, 2)}})
    assert (task.verifier, task.answer, task.procedural) == ("reasoning-gym", "3", True)
    assert info_of(task)["entry"]["metadata"] == {"terms": [1, 2]}
    with pytest.raises(AssizeError, match="invalid dataset 'codeio'"):
        procedural_task("codeio", {"question": "?", "answer": "3", "metadata": {}})
