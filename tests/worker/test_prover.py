"""From an assignment to what is signed: all of it follows from the beacon and the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from protocol.environments.arithmetic import Arithmetic
from protocol.tensor.completions import Completion
from protocol.tensor.decode import decode
from protocol.tensor.model import Model, load_model
from protocol.tensor.proofs import build_proofs_batch
from protocol.wire.rollout import decode as decode_artifact
from protocol.wire.rollout import rollouts_root
from protocol.wire.seeds import job_seed, prompt_seed
from protocol.wire.units import parse_shape, units
from tests.coordinator.swarm import RULES
from tests.worker.finishing import finish
from worker.prover import Deployed, Task, Work, tasks_of

DEPLOYED = Deployed(31337, "0x5FbDB2315678afecb367f032d93F642f64180aa3")
RULES_HERE = RULES.model_copy(update={"groups_per_job": 2, "samples_per_group": 3, "max_tokens": 40})
WORK = Work(5, 7, (2, 9), b"\x0b" * 32, 1, b"\x3a" * 32, max_units=1 << 60)
TASKS_PER_JOB = 6


@pytest.fixture(scope="module")
def model(small_model: Path) -> Model:
    torch.set_num_threads(1)
    return load_model(small_model, torch.float32)


@pytest.fixture(scope="module")
def tasks(model: Model) -> list[Task]:
    return tasks_of(WORK, DEPLOYED, RULES_HERE, Arithmetic(3), model)


@pytest.fixture(scope="module")
def completions(model: Model, tasks: list[Task]) -> list[Completion]:
    return decode(model.network, [task.request for task in tasks])


def shape(small_model: Path) -> object:
    import json

    return parse_shape(json.loads((small_model / "config.json").read_text()))


def test_prompts_follow_from_the_beacon_job_by_job_and_group_by_group(model: Model, tasks: list[Task]) -> None:
    assert len(tasks) == len(WORK.jobs) * TASKS_PER_JOB
    expected = [
        Arithmetic(3).problem(prompt_seed(job_seed(DEPLOYED.chain_id, DEPLOYED.rounds, 5, WORK.beacon, job), group))
        for job in WORK.jobs
        for group in range(2)
        for _ in range(3)
    ]
    assert [task.problem for task in tasks] == expected
    assert all(task.request.prompt_tokens == model.prompt_tokens(task.problem.prompt, RULES) for task in tasks)


def test_samples_of_a_group_share_the_prompt_and_not_the_noise(tasks: list[Task]) -> None:
    assert len({task.request.noise_key for task in tasks}) == len(tasks)
    assert len({task.request.prompt_tokens for task in tasks}) == 4


@pytest.mark.parametrize("change", [{"beacon": b"\x0c" * 32}, {"round": 6}])
def test_another_beacon_or_round_is_other_work(model: Model, tasks: list[Task], change: dict[str, object]) -> None:
    others = tasks_of(replace(WORK, **change), DEPLOYED, RULES_HERE, Arithmetic(3), model)  # type: ignore[arg-type]
    assert {task.request.noise_key for task in others}.isdisjoint(task.request.noise_key for task in tasks)


def test_a_job_alone_is_the_same_work_as_in_company(model: Model, tasks: list[Task]) -> None:
    alone = tasks_of(replace(WORK, jobs=(9,)), DEPLOYED, RULES_HERE, Arithmetic(3), model)
    assert alone == tasks[TASKS_PER_JOB:]


def test_each_job_becomes_an_artifact_of_its_own_share_with_its_root_and_units(
    small_model: Path, tasks: list[Task], completions: list[Completion]
) -> None:
    model_shape = shape(small_model)
    finished = finish(WORK, DEPLOYED, model_shape, tasks, completions)  # type: ignore[arg-type]
    assert [job.job for job in finished] == [2, 9]
    for place, job in enumerate(finished):
        artifact = decode_artifact(job.file)
        share = slice(place * TASKS_PER_JOB, (place + 1) * TASKS_PER_JOB)
        assert (artifact.round, artifact.job, artifact.node) == (5, job.job, 7)
        assert artifact.manifest_root == WORK.manifest_root
        assert rollouts_root(DEPLOYED.chain_id, DEPLOYED.rounds, artifact) == job.head.rollouts_root
        done = 0
        for rollout, task, completion in zip(artifact.rollouts, tasks[share], completions[share], strict=True):
            assert tuple(rollout.prompt_tokens) == task.request.prompt_tokens
            assert tuple(rollout.output_tokens) == completion.output_tokens
            assert rollout.finish_reason == completion.finish_reason
            assert (rollout.logprobs <= 0).all()
            (proofs,) = build_proofs_batch(completion.hidden_TH, [len(completion.hidden_TH)])
            assert rollout.proofs == tuple(proofs)
            done += units(model_shape, len(rollout.prompt_tokens), len(rollout.output_tokens))  # type: ignore[arg-type]
        assert job.units == done > 0


def test_units_are_capped_at_what_the_run_pays_for_a_job(
    small_model: Path, tasks: list[Task], completions: list[Completion]
) -> None:
    modest = replace(WORK, max_units=10)
    finished = finish(modest, DEPLOYED, shape(small_model), tasks, completions)  # type: ignore[arg-type]
    assert [job.units for job in finished] == [10, 10]
