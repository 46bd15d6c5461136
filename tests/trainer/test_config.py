"""The recipe: its defaults, its overrides and its learning rate."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from protocol.wire.rules import Rules
from trainer.config import Recipe


def test_defaults_are_those_of_intellect_2() -> None:
    recipe = Recipe()
    assert (recipe.epsilon, recipe.delta, recipe.kl_coefficient, recipe.entropy_coefficient) == (0.2, 4.0, 0.001, 1e-4)
    assert (recipe.learning_rate, recipe.warmup_steps, recipe.gradient_clip) == (3e-7, 25, 0.1)
    assert (recipe.groups_per_step, recipe.optimizer_steps) == (256, 8)


def test_builtin_recipe_takes_changes() -> None:
    assert Recipe.builtin(steps=7).steps == 7
    assert Recipe.builtin().groups_per_step == 64


@pytest.mark.parametrize("wrong", [{"epsilon": 1.5}, {"stepz": 3}, {"groups_per_step": 0}, {"ratio": "none"}])
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Recipe.builtin(**wrong)


def test_recipe_and_rules_share_no_number() -> None:
    assert not set(Recipe.model_fields) & set(Rules.model_fields)


def test_rate_warms_up_and_falls_to_its_final_share() -> None:
    recipe = Recipe(learning_rate=1.0, warmup_steps=4, steps=50, optimizer_steps=2, final_rate=0.2)
    assert [recipe.rate(step) for step in range(4)] == pytest.approx([0.25, 0.496, 0.738, 0.976])
    assert recipe.rate(50) == pytest.approx(0.6)
    assert recipe.rate(100) == recipe.rate(10_000) == pytest.approx(0.2)
    assert Recipe(warmup_steps=0).rate(0) == 3e-7


def test_the_recipe_is_read_without_torch() -> None:
    check = "import sys, trainer.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
