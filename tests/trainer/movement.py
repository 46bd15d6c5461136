"""How far training moves weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from trainer.batch import MicroBatch
from trainer.policy import Policy


def moved(policy: Policy, batches: Callable[[int], Sequence[Sequence[MicroBatch]]], steps: int) -> float:
    """Returns the distance that the masters go in so many optimizer steps, two a version."""
    before = [master.detach().clone() for master in policy.masters.parameters()]
    for version in range(steps // 2):
        policy.step(batches(version))
    pairs = zip(policy.masters.parameters(), before, strict=True)
    return math.sqrt(sum((now - then).square().sum().item() for now, then in pairs))
