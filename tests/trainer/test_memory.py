"""The memory that training takes is told before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.errors import Misconfigured
from protocol.wire.units import ModelShape
from tests.coordinator.swarm import RULES
from trainer import memory
from trainer.config import Recipe
from trainer.memory import check_memory, memory_need

QWEN = ModelShape(
    layers=28, hidden=1024, heads=16, kv_heads=8, head_dim=128, intermediate=3072, vocab=151_936, tied=True
)
PARAMETERS = 596_000_000


def _need(dtype: str = "bfloat16", **recipe: object) -> memory.MemoryNeed:
    return memory_need(QWEN, PARAMETERS, dtype, Recipe.model_validate(recipe), 10 << 20, 1024)


def test_a_row_of_32k_tokens_of_a_small_qwen_fits_once_its_activations_are_checkpointed() -> None:
    kept, checkpointed = _need(), _need(checkpoint_activations=True)
    assert kept.total > 60 << 30
    assert checkpointed.total < 20 << 30
    assert (kept.weights, kept.gradients, kept.moments) == (6 * PARAMETERS, 6 * PARAMETERS, 8 * PARAMETERS)


def test_fp32_has_no_masters_apart_and_twice_the_activations() -> None:
    full, half = _need("float32"), _need()
    assert (full.weights, full.gradients) == (4 * PARAMETERS, 4 * PARAMETERS)
    assert full.activations == 2 * half.activations


def test_fewer_tokens_at_once_take_less() -> None:
    assert _need(microbatch_tokens=1024).activations * 32 == _need(microbatch_tokens=32_768).activations


def test_a_model_that_does_not_fit_is_refused_with_both_numbers(
    model_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need = check_memory(model_directory, Recipe.builtin(), RULES, "cpu", evaluated=False)
    monkeypatch.setattr(memory, "available", lambda device: need.total - 1)
    with pytest.raises(Misconfigured, match=r"takes about 0\.\d GiB, .* has 0\.\d GiB: lower microbatch"):
        check_memory(model_directory, Recipe.builtin(), RULES, "cpu", evaluated=False)


def test_an_unknown_architecture_is_refused_by_name(model_directory: Path, tmp_path: Path) -> None:
    config = json.loads((model_directory / "config.json").read_text()) | {"model_type": "mamba"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(model_directory / "model.safetensors")
    with pytest.raises(Misconfigured, match=r"config\.json.*unknown architecture 'mamba'.*llama"):
        check_memory(tmp_path, Recipe.builtin(), RULES, "cpu", evaluated=False)
