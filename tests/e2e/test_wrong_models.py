"""Models and recipes that cannot be trained, as requesters bring them: one sentence, exit 2, nothing started."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from deploy.runs.run_file import BUILTIN
from tests.e2e.test_wrong_input import Person, person, refused, tiny_model

__all__ = ["person", "tiny_model"]
pytestmark = pytest.mark.e2e

WEIGHT = "model.layers.0.mlp.down_proj.weight"


def _unknown(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))


def _cut(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    save_file(tensors | {WEIGHT: tensors[WEIGHT][:, :16].contiguous()}, model / "model.safetensors")


def _short_of_one(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    tensors.pop(WEIGHT)
    save_file(tensors, model / "model.safetensors")


MODELS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "an unknown architecture": (_unknown, ("unknown architecture 'mamba'", "expected llama")),
    "a tensor of another shape": (_cut, (WEIGHT, "with shape (32, 16)", "is (32, 32)")),
    "a missing tensor": (_short_of_one, ("lacks the tensor", WEIGHT)),
}


@pytest.mark.parametrize("what", MODELS)
def test_no_run_is_made_of_a_model_that_cannot_be_trained(
    person: Person, tiny_model: Path, tmp_path: Path, what: str
) -> None:
    change, words = MODELS[what]
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    change(model)
    refused(person.types("run", "new", tmp_path / "new", "--model", model, "--environment", "sums"), 2, *words)
    assert not (tmp_path / "new").exists()


def test_the_local_network_does_not_begin_with_a_model_that_cannot_be_trained(
    person: Person, tiny_model: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    _cut(model)
    network = person.types("localnet", "run", "--root", tmp_path / "net", "--model", model)
    refused(network, 2, WEIGHT, "with shape (32, 16)")
    assert not (tmp_path / "net" / "addresses.json").exists()


def test_a_chat_run_of_a_tokenizer_without_a_template_is_refused(
    person: Person, tiny_model: Path, tmp_path: Path
) -> None:
    words = ("--model", tiny_model, "--chat")
    new = person.types("run", "new", tmp_path / "new", *words, "--environment", "sums", "--params", "{}")
    refused(new, 2, "no chat template", "leave --chat out")
    measuring = person.types("validator", "calibrate", *words, "--rollouts", 8, "--out", tmp_path / "rules.json")
    refused(measuring, 2, "no chat template")


RECIPES = {
    "temperature = 0.7": ("recipe.temperature", "set by the run's rules"),
    "microbatch_tokens = 2_000_000_000": ("takes about", "GiB", "this machine has", "lower microbatch_tokens"),
}
"""By a line of [recipe]: words of the refusal."""


@pytest.mark.parametrize("line", RECIPES)
def test_a_recipe_that_contradicts_the_rules_or_the_machine_is_refused_before_anything_starts(
    person: Person, tiny_model: Path, tmp_path: Path, line: str
) -> None:
    run_file = tmp_path / "run.toml"
    shutil.copy(BUILTIN.with_name("builtin-rules.json"), tmp_path)
    run_file.write_text(f"{BUILTIN.read_text()}\n{line}\n")
    network = ("localnet", "run", "--root", tmp_path / "net", "--run-file", run_file, "--model", tiny_model)
    refused(person.types(*network), 2, *RECIPES[line])
    assert not (tmp_path / "net" / "addresses.json").exists()
