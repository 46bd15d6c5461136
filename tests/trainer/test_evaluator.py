"""Evaluation beside training: in a process of its own, which may end at any time, and ends with the trainer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import pytest

from protocol.environments.arithmetic import Arithmetic
from protocol.errors import Misconfigured
from protocol.tensor.model import DTYPES, load_model
from tests.conftest import until
from tests.coordinator.swarm import RULES
from trainer.evaluate import evaluate, held_out
from trainer.evaluator import ATTEMPTS, Evaluated, EvaluationPlan, Evaluator, _read

PLAN = EvaluationPlan(problems=6, samples=3, seed=4)


def awaited(evaluator: Evaluator, count: int) -> list[Evaluated]:
    taken: list[Evaluated] = []

    def all_there() -> bool:
        taken.extend(evaluator.take())
        return len(taken) >= count

    until(all_there, 120, "evaluations")
    return taken


@pytest.fixture
def evaluator(tmp_path: Path):
    made = Evaluator(RULES, PLAN, tmp_path / "evaluating")
    yield made
    made.close()


def test_a_version_is_evaluated_as_by_the_function(evaluator: Evaluator, model_directory: Path, tmp_path: Path) -> None:
    evaluator.request(0, model_directory)
    evaluator.request(7, model_directory)
    assert evaluator.pending == {0, 7}
    assert evaluator.left_behind() == {7: tmp_path / "evaluating" / "7"}
    found = {each.version: each.found for each in awaited(evaluator, 2)}
    model, tasks = (
        load_model(model_directory, DTYPES[RULES.model.dtype]),
        Arithmetic.from_params(RULES.environment.params),
    )
    for version in (0, 7):
        assert found[version] == evaluate(model, tasks, RULES, PLAN.seed + version, PLAN.problems, PLAN.samples)
    assert evaluator.pending == set()
    evaluator.forget(7)
    assert evaluator.left_behind() == {}


def test_a_restarted_trainer_evaluates_what_the_one_before_it_left(
    evaluator: Evaluator, model_directory: Path, tmp_path: Path
) -> None:
    evaluator.request(7, model_directory)
    evaluator.close()
    again = Evaluator(RULES, PLAN, tmp_path / "evaluating")
    for version, directory in again.left_behind().items():
        again.request(version, directory)
    (found,) = awaited(again, 1)
    again.close()
    assert (found.version, found.found is not None) == (7, True)


def test_a_process_that_answers_nonsense_is_ended_and_counts_as_one_that_has() -> None:
    told: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
    with subprocess.Popen(["sh", "-c", "echo nonsense; exec sleep 60"], stdout=subprocess.PIPE, text=True) as talking:
        _read(talking, told)
    assert told.get(timeout=10) is None
    assert talking.returncode == -signal.SIGKILL


def test_a_killed_process_is_replaced_and_the_version_evaluated(evaluator: Evaluator, model_directory: Path) -> None:
    evaluator.request(0, model_directory)
    assert evaluator._process is not None
    evaluator._process.send_signal(signal.SIGKILL)
    (result,) = awaited(evaluator, 1)
    assert result.version == 0
    assert result.found is not None


def test_a_version_whose_process_always_ends_is_given_up(evaluator: Evaluator, model_directory: Path) -> None:
    evaluator.request(0, model_directory)
    for _ in range(ATTEMPTS):
        process = evaluator._process
        assert process is not None
        process.kill()
        until(lambda ended=process: bool(evaluator.take()) or evaluator._process is not ended, 30, "the next process")
    assert evaluator.pending == set()


def test_a_directory_without_a_model_is_told_and_not_repeated(evaluator: Evaluator, tmp_path: Path) -> None:
    evaluator.request(0, tmp_path)
    (result,) = awaited(evaluator, 1)
    assert result.found is None
    assert evaluator.pending == set()


def test_a_version_taken_back_is_not_told(evaluator: Evaluator, model_directory: Path) -> None:
    evaluator.request(3, model_directory)
    evaluator.forget(3)
    evaluator.request(0, model_directory)
    assert [each.version for each in awaited(evaluator, 1)] == [0]


def test_the_process_ends_with_a_trainer_that_was_killed(model_directory: Path, tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from tests.coordinator.swarm import RULES;"
        "from trainer.evaluator import Evaluator, EvaluationPlan;"
        "made = Evaluator(RULES, EvaluationPlan(4), Path(sys.argv[1]));"
        "made.request(0, Path(sys.argv[2])); print(made._process.pid, flush=True); time.sleep(600)"
    )
    words = [sys.executable, "-c", script, str(tmp_path), str(model_directory)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 60, "the end of the process")


def test_pass_at_k_counts_problems_and_accuracy_completions(model_directory: Path) -> None:
    model, tasks = load_model(model_directory, DTYPES[RULES.model.dtype]), Arithmetic(2)
    one, four = (evaluate(model, tasks, RULES, 4, count=16, samples=samples) for samples in (1, 4))
    assert one.pass_at_k == one.accuracy
    assert four.pass_at_k >= four.accuracy
    assert four.samples == 4


def test_more_problems_than_an_environment_has_are_refused_by_the_setting_s_name() -> None:
    with pytest.raises(Misconfigured, match="invalid evaluation_problems"):
        held_out(Arithmetic(1), 0, 10**6)
