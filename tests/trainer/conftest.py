"""A built-in model without warm-up: the real thing, made in a moment."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from protocol.environments.arithmetic import Arithmetic
from trainer.builtin import Warmup, make_builtin


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("model")
    make_builtin(directory, seed=3, environment=Arithmetic(1), warmup=Warmup(hidden=32, intermediate=32, steps=0))
    return directory
