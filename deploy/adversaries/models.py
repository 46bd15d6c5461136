"""The models that adversaries run in place of the policy: made once, then kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import torch

from protocol.environments.environment import Environment
from protocol.errors import Misconfigured

KEPT_IN = Path(__file__).resolve().parents[2] / ".zoo"
SEED = 7

Kind = Literal["sibling", "smaller"]


def other_model(kind: Kind, environment: Environment) -> Path:
    """Returns the directory of the built-in model's sibling, or of a smaller one; about a minute's work once."""
    from protocol.environments.arithmetic import Arithmetic
    from trainer.builtin import Warmup

    if not isinstance(environment, Arithmetic):
        raise Misconfigured(f"there is no {kind} of a model for {environment.name!r}: run it on the built-in model")
    warmup = Warmup() if kind == "sibling" else Warmup(hidden=64, intermediate=128, layers=1)
    return make_once(KEPT_IN / f"{kind}-{environment.digits}", SEED, environment, warmup)


def make_once(directory: Path, seed: int, environment: object, warmup: object) -> Path:
    """Returns ``directory``, made by ``trainer.builtin`` if it is not there. Two makers at once do no harm."""
    from trainer.builtin import make_builtin

    if not directory.is_dir():
        partial = directory.with_name(f".{directory.name}-{os.getpid()}")
        partial.mkdir(parents=True)
        with torch.enable_grad():
            make_builtin(partial, seed, environment, warmup)  # type: ignore[arg-type]
        try:
            partial.rename(directory)
        except OSError:  # another was quicker
            assert directory.is_dir()
    return directory
