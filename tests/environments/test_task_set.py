"""Tasks from a file: drawn by the beacon under a version's weights, and refused where they are not the run's."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.environments.environment import Environment, Problem, at_version
from protocol.environments.registry import environment
from protocol.environments.task_set import TaskSet
from protocol.environments.verifiers.registry import verifier
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.wire.pins import CURRICULUM_FILE, TASKS_FILE, UnfitCheckpoint, check_directory, pin_directory
from protocol.wire.tasks import LengthTarget, TaskHeader, TaskRow, TaskSource, encode_curriculum, encode_tasks
from tests.trainer.conftest import model_directory  # noqa: F401

HEADER = TaskHeader(bytes(32), (TaskSource("easy", 3), TaskSource("hard", 1)))
ROWS = [
    *(TaskRow((1 + n % 5, 2), str(n), "exact", source=0, weight=1 + n % 2) for n in range(6)),
    *(TaskRow((3, 1 + n % 5), str(n), "exact", source=1, weight=9) for n in range(4)),
    *(TaskRow((4, 1 + n), str(n), "exact", source=1, held_out=True) for n in range(4)),
]
SEEDS = [n.to_bytes(32, "big") for n in range(8_000)]


@pytest.fixture
def version(model_directory: Path, tmp_path: Path) -> Path:  # noqa: F811
    """A version of a model with tasks among its files."""
    directory = tmp_path / "version"
    directory.mkdir()
    for path in model_directory.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    (directory / TASKS_FILE).write_bytes(encode_tasks(HEADER, ROWS))
    return directory


def unopened(version: Path) -> Environment:
    return environment("tasks", TaskSet.of_file((version / TASKS_FILE).read_bytes()).params)


def shares(tasks: Environment) -> Counter[int]:
    return Counter(row for seed in SEEDS if (row := tasks.problem(seed).row) is not None)


def test_sources_and_tasks_are_drawn_by_their_weights_and_held_out_ones_never(version: Path) -> None:
    drawn = shares(at_version(unopened(version), version))
    assert set(drawn) == set(range(10))
    easy = sum(drawn[row] for row in range(6)) / len(SEEDS)
    assert easy == pytest.approx(3 / 4, abs=0.02)
    assert drawn[1] / drawn[0] == pytest.approx(2, abs=0.25)
    assert drawn[6] / drawn[7] == pytest.approx(1, abs=0.15)


def test_a_version_brings_its_own_weights_and_takes_tasks_out(version: Path) -> None:
    weights = np.zeros(len(ROWS), np.uint16)
    weights[[2, 12]] = 5  # the second is held out
    (version / CURRICULUM_FILE).write_bytes(encode_curriculum(weights))
    assert set(shares(at_version(unopened(version), version))) == {2}


def test_the_curriculum_is_no_part_of_what_rules_pin_but_the_tasks_are(version: Path) -> None:
    pins = pin_directory(version)
    (version / CURRICULUM_FILE).write_bytes(encode_curriculum(np.ones(len(ROWS), np.uint16)))
    assert pin_directory(version) == pins
    check_directory(version, pins)
    data = bytearray((version / TASKS_FILE).read_bytes())
    data[len(data) // 2] ^= 1
    (version / TASKS_FILE).write_bytes(bytes(data))
    with pytest.raises(UnfitCheckpoint, match=r"tasks\.parquet is another file"):
        check_directory(version, pins)


def test_a_changed_byte_of_the_tasks_is_refused_by_their_root(version: Path) -> None:
    file = encode_tasks(HEADER, [replace(ROWS[0], answer="not opened before"), *ROWS[1:]])
    tasks = environment("tasks", TaskSet.of_file(file).params)
    (version / TASKS_FILE).write_bytes(file.replace(b"PAR1", b"PAR2"))
    with pytest.raises(UnfitCheckpoint, match="has root 0x"):
        at_version(tasks, version)


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (b"\x01", "expected 2 for each of 14 tasks"),
        (bytes(2 * len(ROWS)), "every task has weight 0"),
        (encode_curriculum(np.uint16([0] * 10 + [1] * 4)), "every task has weight 0"),
    ],
)
def test_weights_by_which_nothing_could_be_drawn_are_the_trainers_fault(
    version: Path, file: bytes, sentence: str
) -> None:
    (version / CURRICULUM_FILE).write_bytes(file)
    with pytest.raises(UnfitCheckpoint, match=sentence):
        at_version(unopened(version), version)


def test_a_token_that_the_model_lacks_is_refused(version: Path) -> None:
    (version / TASKS_FILE).write_bytes(encode_tasks(HEADER, [replace(ROWS[0], prompt_tokens=(10_000,)), *ROWS[1:]]))
    with pytest.raises(UnfitCheckpoint, match="has token 10000"):
        at_version(unopened(version), version)


def test_what_other_rules_or_another_model_forbid_is_refused_although_the_file_is_known(version: Path) -> None:
    tasks = unopened(version)
    at_version(tasks, version)
    assert isinstance(tasks, TaskSet)
    with pytest.raises(UnfitCheckpoint, match="the run's rules allow 1"):
        replace(tasks, longest_prompt=1).at(version)
    config = json.loads((version / "config.json").read_text())
    (version / "config.json").write_text(json.dumps(config | {"vocab_size": 2}))
    with pytest.raises(UnfitCheckpoint, match="the model has 2"):
        at_version(tasks, version)


def test_a_version_that_was_removed_has_no_tasks_rather_than_those_of_version_0(version: Path) -> None:
    tasks = at_version(unopened(version), version)
    shutil.rmtree(version)
    with pytest.raises(Unavailable):
        at_version(tasks, version)


def test_tasks_that_were_not_opened_say_so(version: Path) -> None:
    with pytest.raises(Misconfigured, match="was not read yet"):
        unopened(version).problem(bytes(32))


def test_a_length_budget_is_put_into_its_place_and_missing_it_costs(version: Path) -> None:
    header = replace(HEADER, targets=(LengthTarget(10, (7, 8)), LengthTarget(20, (9,))), penalty=0.01)
    rows = [replace(row, budget_at=1) if row.source == 0 else row for row in ROWS]
    tasks = TaskSet.of_file(encode_tasks(header, rows))
    problems = [tasks.problem(seed) for seed in SEEDS[:400]]
    for problem in problems:
        row = rows[problem.row or 0]
        asked = {10: (7, 8), 20: (9,), None: ()}[problem.target]
        assert problem.prompt == (*row.prompt_tokens[:1], *asked, *row.prompt_tokens[1:])
        assert (problem.target is None) == (row.source == 1)
    assert {problem.target for problem in problems} == {None, 10, 20}
    budgeted = next(problem for problem in problems if problem.target == 20)
    assert budgeted.total(1.0, 20) == 1.0
    assert budgeted.total(1.0, 5) == budgeted.total(1.0, 35) == pytest.approx(0.85)
    assert next(problem for problem in problems if problem.target is None).total(0.5, 1000) == 0.5


def test_held_out_tasks_are_distinct_and_follow_from_the_seed(version: Path) -> None:
    tasks = at_version(unopened(version), version)
    found = tasks.held_out_problems(4, 7)
    assert {problem.row for problem in found} == {10, 11, 12, 13}
    assert tasks.held_out_problems(4, 7) == found
    assert len({tuple(problem.row for problem in tasks.held_out_problems(4, seed)) for seed in range(9)}) > 1
    with pytest.raises(ValueError, match="4 held-out"):
        tasks.held_out_problems(5, 7)


@given(seed=st.binary(min_size=32, max_size=32))
def test_a_seed_sets_one_task_whose_answer_earns_the_reward(seed: bytes) -> None:
    tasks = TaskSet.of_file(encode_tasks(HEADER, ROWS))
    problem: Problem = tasks.problem(seed)
    assert problem == tasks.problem(seed)
    assert not problem.held_out
    assert tasks.reward(problem, f"The answer is {problem.answer}") == 1.0
    assert tasks.reward(problem, f"The answer is 1{problem.answer}") == 0.0


def test_the_reference_of_a_task_is_checked_for_its_verifier_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [TaskRow((1,), "2", "exact"), TaskRow((2,), "x" * 10_000, "math", source=1)]
    tasks, checked = TaskSet.of_file(encode_tasks(HEADER, rows)), list[str]()
    monkeypatch.setattr(type(verifier("exact")), "check_task", lambda _, answer, info: checked.append(answer))
    good, bad = (tasks.opened.problem(row, 0) for row in range(2))
    assert [tasks.reward(good, "2") for _ in range(3)] == [1.0] * 3
    assert checked == ["2"]
    for _ in range(2):
        with pytest.raises(Rejected):
            tasks.reward(bad, "2")


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"root": "0x12", "longest_prompt": 3},
        {"root": 7, "longest_prompt": 3},
        {"root": "0x" + "00" * 32, "longest_prompt": 0},
        {"root": "0x" + "00" * 32, "longest_prompt": True},
        {"root": "0x" + "00" * 32, "longest_prompt": 3, "once": 1},
        {"root": "0x" + "00" * 32, "longest_prompt": 3, "more": 1},
    ],
)
def test_parameters_that_name_no_file_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(Misconfigured, match=r"of tasks: expected"):
        environment("tasks", params)
