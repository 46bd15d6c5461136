"""A built-in model without warm-up: the real thing, made in a moment; and a run with it on a real chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from protocol.chain.reading.client import Chain
from protocol.environments.arithmetic import Arithmetic
from protocol.node.wallet import Wallet
from tests.conftest import Anvil
from tests.coordinator.swarm import Swarm
from tests.trainer.scene import Scene
from trainer.builtin import Warmup, make_builtin


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("model")
    make_builtin(directory, seed=3, environment=Arithmetic(1), warmup=Warmup(hidden=32, intermediate=32, steps=0))
    return directory


@pytest.fixture
def appealing_scene(
    chain: Chain, anvil: Anvil, make_wallet: Callable[[str], Wallet], tmp_path: Path, model_directory: Path
) -> Iterator[Scene]:
    """The same, with a committee of one and appeals."""
    swarm = Swarm(chain, anvil, make_wallet, "", tmp_path, committee=1, appeal_seats=3, challenge=3600)
    made = Scene(swarm, model_directory, tmp_path)
    yield made
    made.close()
    swarm.close()


@pytest.fixture
def scene(
    chain: Chain, anvil: Anvil, make_wallet: Callable[[str], Wallet], tmp_path: Path, model_directory: Path
) -> Iterator[Scene]:
    """A run with real weights, nothing judged yet."""
    swarm = Swarm(chain, anvil, make_wallet, "", tmp_path)
    made = Scene(swarm, model_directory, tmp_path)
    yield made
    made.close()
    swarm.close()
