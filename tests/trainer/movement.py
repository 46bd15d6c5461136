"""Training steps of test groups, and how far they move weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from trainer.batch import Group, micro_batches
from trainer.config import Recipe
from trainer.policy import Policy, StepRecord

Tokens = Sequence[int]


def group_of(
    round_: int,
    job: int,
    prompt: Tokens,
    completions: Sequence[Tokens],
    rewards: Sequence[float],
    *,
    version: int = 0,
    group: int = 0,
) -> Group:
    """A group of these tokens, without behaviour logprobs."""
    arrays = tuple(np.array(completion, np.int32) for completion in completions)
    return Group(round_, job, group, version, np.array(prompt, np.int32), arrays, tuple(rewards))


def packed_by(optimizer_steps: int, most: int) -> Recipe:
    """A recipe of which only the packing matters: nodes of a pass, and passes spread over optimizer steps."""
    return Recipe(optimizer_steps=optimizer_steps, microbatch_tokens=most)


def stepped(
    policy: Policy,
    groups: Sequence[Group],
    optimizer_steps: int = 2,
    weights: Mapping[str, torch.Tensor] | None = None,
    most: int = 64,
) -> StepRecord:
    """One training step on groups that were made with these weights, or with the present ones."""
    return policy.step(micro_batches(policy.weigh(groups, weights), packed_by(optimizer_steps, most)))


def moved(policy: Policy, groups: Callable[[int], Sequence[Group]], steps: int) -> float:
    """Returns the distance that the masters go in so many optimizer steps, two a version."""
    before = [master.detach().clone() for master in policy.masters.parameters()]
    for version in range(steps // 2):
        stepped(policy, groups(version))
    after = policy.masters.parameters()
    return math.sqrt(sum(((new - old) ** 2).sum().item() for new, old in zip(after, before, strict=True)))
