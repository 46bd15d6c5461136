"""The models of the zoo: the built-in one as it is made, and after steps of the trainer; made once, then kept."""

from __future__ import annotations

from pathlib import Path

import torch

from deploy.adversaries.models import KEPT_IN, make_once, other_model
from deploy.runs.run_file import read_run_file
from protocol.environments.arithmetic import Arithmetic
from tests.bench.tax.bare_loop import Loop
from trainer.builtin import Warmup
from trainer.config import Recipe

SEED = 1
STEPS = 8
"""The policy is the built-in model after so many steps of reinforcement; a stale worker is one step behind."""


def policies(environment: Arithmetic) -> tuple[Path, Path]:
    """Returns the directories of the policy before its last step, and of the policy."""
    older, newer = (KEPT_IN / f"policy-{environment.digits}-v{version}" for version in (STEPS - 1, STEPS))
    if not newer.is_dir():
        first = make_once(KEPT_IN / f"policy-{environment.digits}-v0", SEED, environment, Warmup())
        with torch.enable_grad():
            _train(first, environment, older, newer)
    return older, newer


def prepare(environment: Arithmetic) -> tuple[Path, Path]:
    """Makes everything that is made once, and returns what ``policies`` does."""
    other_model("sibling", environment)
    other_model("smaller", environment)
    return policies(environment)


def _train(first: Path, environment: Arithmetic, older: Path, newer: Path) -> None:
    loop = Loop(first, environment, read_run_file().rules, Recipe.builtin(), SEED)
    loop.staleness, loop.lose = 1, lambda round_, group: False
    for step in range(1, STEPS + 1):
        loop.advance(measured=False)
        if step >= STEPS - 1:
            loop.policy.save_weights(older if step < STEPS else newer, {})
