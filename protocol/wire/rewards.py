"""Rewards of the rollouts that a version was trained on, as its trainer computed them.

``rewards.json`` is a file of the version, so that the root on chain binds it. Canonical JSON (sorted keys, no spaces,
ASCII), jobs ascending:

    {"format":"assize/rewards/1","jobs":[{"job":J,"rewards":"<base64 of little-endian f32>","round":R,"rows":[N,…]},…]}

A verdict says that tokens are the model's; it does not depend on rewards, nor does pay. Anyone can compute them again
from the artifacts and the tasks. PURE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from protocol.errors import Rejected
from protocol.wire.canonical import Canonical
from protocol.wire.evidence import F32

MAX_REWARDS_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, eq=False)
class JobRewards:
    """Rewards (N,) of one job's rollouts, in their order, as they are trained on: length budgets count.

    ``rows`` are the places of the tasks in their file, one for each group; none where tasks come from no file. A task's
    prompt is in the artifact, and that it follows from the beacon is in the verdict, so that nothing more is needed.
    """

    round: Annotated[int, Field(ge=0, lt=1 << 256)]
    job: Annotated[int, Field(ge=0, lt=256)]
    rewards: F32
    rows: tuple[Annotated[int, Field(ge=0, lt=1 << 32)], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Rewards:
    """Rewards of every job that one version consumed."""

    jobs: tuple[JobRewards, ...]
    format: Literal["assize/rewards/1"] = "assize/rewards/1"

    @property
    def canonical(self) -> bytes:
        """The file's bytes."""
        return _REWARDS.encode(self)


def parse_rewards(data: bytes) -> Rewards:
    """Returns the rewards in a version's file; raises ``Rejected`` for anything else."""
    rewards = _REWARDS.decode(data)
    places = [(each.round, each.job) for each in rewards.jobs]
    if places != sorted(set(places)):
        raise Rejected("invalid rewards: expected jobs in ascending order, each once")
    if not all(np.isfinite(each.rewards).all() for each in rewards.jobs):
        raise Rejected("invalid rewards: expected finite numbers")
    return rewards


_REWARDS = Canonical(Rewards, "rewards", MAX_REWARDS_BYTES)
