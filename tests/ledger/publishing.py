"""A story whose versions are published: weights, rewards and signed manifests in a store that is served."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from protocol.broadcast.publishing import publish
from protocol.broadcast.server import create_app
from protocol.broadcast.version_store import VersionStore
from protocol.chain.deployment import Deployment
from protocol.chain.reading.client import Chain
from protocol.wire.assignments import jobs_in
from protocol.wire.manifest import SignedManifest
from protocol.wire.pins import REWARDS_FILE
from protocol.wire.rewards import JobRewards, Rewards
from tests.checkpoints import smallest
from tests.conftest import Anvil, Served, wallet_on
from tests.ledger.scenario import Market, Story, tell

REWARDS = {1: (0.0, 0.0, 1.0, 0.0), 3: (1.0, 1.0, 0.0, 1.0)}
"""Rewards of the one job that each version was trained on."""


@dataclass
class Publishing:
    """Publishes what the trainer of a story makes; ``url`` is its origin."""

    folder: Path
    url: str = ""
    signed: dict[int, SignedManifest] = field(default_factory=dict)

    @property
    def store(self) -> VersionStore:
        return VersionStore(self.folder / "origin")

    def root_of(self, story: Story, version: int, round_: int, jobs: int) -> bytes:
        """Publishes a version with the rewards of its jobs, and returns its root."""
        model, deployment = smallest(self.folder / f"version-{version}", bytes([version] * 8)), story.market.deployment
        rewards = [JobRewards(round_, job, np.array(REWARDS[version], "<f4")) for job in jobs_in(jobs)]
        (model / REWARDS_FILE).write_bytes(Rewards(tuple(rewards)).canonical)
        place = (story.market.run, version, deployment.chain_id, deployment.market, story.trainer)
        self.signed[version] = publish(model, *place, self.store)
        return self.signed[version].manifest.root


@pytest.fixture(scope="module")
def publishing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publishing]:
    """An origin that serves the versions of ``published``."""
    made = Publishing(tmp_path_factory.mktemp("publishing"))
    server = Served(create_app(made.store))
    made.url = server.url
    yield made
    server.stop()


@pytest.fixture(scope="module")
def published(
    anvil_process: Anvil, deployment: Deployment, publishing: Publishing, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    """A story whose versions have manifests and rewards."""
    snapshot = anvil_process.rpc.call("evm_snapshot")
    anvil_process.rpc.call("anvil_setTime", int(time.time()))
    with closing(Chain(anvil_process.url, deployment)) as chain:
        folder = tmp_path_factory.mktemp("published")
        with closing(Market(chain, anvil_process, partial(wallet_on, anvil_process), folder)) as market:
            yield tell(market, root_of=publishing.root_of)
    anvil_process.rpc.call("evm_revert", snapshot)
