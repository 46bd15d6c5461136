"""Models that adversaries run in place of the policy: made once, then kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from protocol.environments.arithmetic import Arithmetic
from protocol.environments.environment import Environment
from protocol.errors import Misconfigured

if TYPE_CHECKING:
    from trainer.builtin import Warmup

KEPT_IN = Path(__file__).resolve().parents[2] / ".zoo"
SEED = 7

Kind = Literal["sibling", "smaller"]


def other_model(kind: Kind, environment: Environment) -> Path:
    """Returns the directory of the built-in model's sibling or of a smaller one, made in about a minute if missing."""
    from trainer.builtin import Warmup

    sums = arithmetic(environment)
    warmup = Warmup() if kind == "sibling" else Warmup(hidden=64, intermediate=128, layers=1)
    return make_once(KEPT_IN / f"{kind}-{sums.digits}", SEED, sums, warmup)


def arithmetic(environment: Environment) -> Arithmetic:
    """Returns ``environment``.

    Raises:
        Misconfigured: it is another than arithmetic, whose answers and models an adversary does not know.
    """
    if not isinstance(environment, Arithmetic):
        raise Misconfigured("this adversary works on the arithmetic environment only: choose a run file with it")
    return environment


def make_once(directory: Path, seed: int, environment: Arithmetic, warmup: Warmup) -> Path:
    """Returns ``directory``, made by ``trainer.builtin`` if it is missing. Safe for concurrent processes."""
    from trainer.builtin import make_builtin

    if not directory.is_dir():
        partial = directory.with_name(f".{directory.name}-{os.getpid()}")
        partial.mkdir(parents=True)
        with torch.enable_grad():
            make_builtin(partial, seed, environment, warmup)
        try:
            partial.rename(directory)
        except OSError:  # another process was first
            assert directory.is_dir()
    return directory
