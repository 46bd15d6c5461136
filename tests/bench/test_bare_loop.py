"""The bare loop: seeded, stale on purpose, and accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from deploy.runs.run_file import read_run_file
from protocol.environments.arithmetic import Arithmetic
from tests.bench.tax.bare_loop import BareRecord, BareStep, run_bare
from trainer.builtin import Warmup, make_builtin
from trainer.config import Recipe

RECIPE = Recipe.builtin(steps=4, groups_per_step=16)
RULES = read_run_file().rules.model_copy(update={"samples_per_group": 4, "max_tokens": 40})


@pytest.fixture(scope="module")
def warm_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two-digit sums, half learnt: right often enough that groups disagree."""
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("model")
    warmup = Warmup(hidden=48, intermediate=96, steps=150, batch=32, rate=6e-3)
    make_builtin(directory, seed=1, environment=Arithmetic(2), warmup=warmup)
    return directory


def _run(directory: Path, **options: object) -> BareRecord:
    return run_bare(directory, Arithmetic(2), RULES, RECIPE, 5, **{"problems": 64, **options})  # type: ignore[arg-type]


def test_a_seed_gives_the_same_run_twice(warm_directory: Path) -> None:
    first, second = _run(warm_directory), _run(warm_directory)
    assert [step.reward for step in first.steps] == [step.reward for step in second.steps]
    assert [step.step for step in first.steps] == [step.step for step in second.steps]
    assert first.accuracy_after == second.accuracy_after


def test_rollouts_are_as_stale_as_asked(warm_directory: Path) -> None:
    record = _run(warm_directory, staleness=2)
    assert [step.step.staleness for step in record.steps if step.step is not None] == [0.0, 1.0, 2.0, 2.0]
    assert record.rollouts == 4 * 16 * 4
    assert record.trained_tokens == sum(step.step.tokens for step in record.steps if step.step is not None) > 0


def test_lost_groups_are_not_trained_on(warm_directory: Path) -> None:
    steps: list[BareStep] = []
    _run(warm_directory, lose=lambda round_, group: round_ == 0, progress=steps.append)
    assert steps[0].step is None
    assert steps[1].step is not None


def test_a_run_ends_at_its_target(warm_directory: Path) -> None:
    record = _run(warm_directory, target_accuracy=0.0, evaluate_every=2)
    assert (record.rounds, record.reached_round) == (2, 2)


def test_the_parts_of_the_time_make_the_whole(warm_directory: Path) -> None:
    record = _run(warm_directory)
    assert record.generation_seconds > 0
    assert record.training_seconds > 0
    assert record.other_seconds >= 0, "no second is counted twice"
    parts = record.generation_seconds + record.training_seconds + record.other_seconds
    assert record.wall_seconds == pytest.approx(parts)
