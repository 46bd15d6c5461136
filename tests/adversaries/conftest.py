"""A policy that was trained a little, the version before it, a sibling and a smaller model; made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deploy.adversaries.models import Kind
from deploy.runs.run_file import BUILTIN, read_run_file
from protocol.environments.arithmetic import Arithmetic
from protocol.environments.environment import Environment
from protocol.tensor.model import load_model
from protocol.wire.rules import decode_rules
from tests.zoo.stage import Stage
from trainer.builtin import Warmup, make_builtin

ENVIRONMENT = Arithmetic(3)
LESSONS = 60
STEP = 2e-3
"""Size of the step between the two versions, in standard deviations of each weight matrix's change."""


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The zoo's stage on models that are made in seconds, under the built-in run's rules."""
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("zoo")
    warmup = Warmup(hidden=64, intermediate=128, steps=LESSONS)
    make_builtin(directory / "older", 1, ENVIRONMENT, warmup)
    make_builtin(directory / "sibling", 2, ENVIRONMENT, warmup)
    make_builtin(directory / "smaller", 3, ENVIRONMENT, replace(warmup, hidden=32, intermediate=64, layers=1))
    _step(directory / "older", directory / "policy")
    rules = read_run_file().rules
    rules = rules.model_copy(update={"groups_per_job": 2})
    stage = Stage.of(rules, directory / "older", directory / "policy")
    return replace(stage, models=_models(directory))


@pytest.fixture(scope="package")
def half(stage: Stage) -> Stage:
    """The same models under the calibrated rules in bfloat16."""
    rules = decode_rules(BUILTIN.with_name("builtin-bfloat16-rules.json").read_bytes())
    return Stage.of(rules.model_copy(update={"groups_per_job": 2}), stage.older, stage.directory)


def _models(directory: Path) -> Callable[[Kind, Environment], Path]:
    return lambda kind, environment: directory / kind


def _step(older: Path, newer: Path) -> None:
    """A small step in a random direction: as far as one of the trainer's, and quicker."""
    model = load_model(older, torch.float32)
    chance = torch.Generator().manual_seed(4)
    for weight in model.weights().values():
        weight += STEP * weight.std() * torch.randn(weight.shape, generator=chance)
    model.network.save_pretrained(newer)
    model.tokenizer.save_pretrained(newer)
