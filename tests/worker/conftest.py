"""A real chain, a real coordinator, real weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from protocol.chain.reading.client import Chain
from protocol.environments.arithmetic import Arithmetic
from protocol.node.wallet import Wallet
from tests.conftest import Anvil
from tests.coordinator.conftest import redis_process, redis_url
from tests.coordinator.swarm import Swarm
from tests.worker.farm import Farm
from trainer.builtin import Warmup, make_builtin

__all__ = ["redis_process", "redis_url"]


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built-in model without warm-up: the real thing, made in a moment."""
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("weights") / "v0"
    make_builtin(directory, seed=3, environment=Arithmetic(3), warmup=Warmup(hidden=32, intermediate=32, steps=0))
    return directory


@pytest.fixture
def farm(
    chain: Chain, anvil: Anvil, make_wallet: Callable[[str], Wallet], redis_url: str, tmp_path: Path, small_model: Path
) -> Iterator[Farm]:
    """An open run with its coordinator; no worker yet."""
    swarm = Swarm(chain, anvil, make_wallet, redis_url, tmp_path)
    made = Farm(swarm, small_model, tmp_path)
    yield made
    made.close()
    swarm.close()
