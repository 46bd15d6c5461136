"""Selection of accepted groups, and packing them into the micro-batches of a step. PURE.

Axes: P tokens of a prompt, T tokens of a completion, K completion tokens of a micro-batch one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray

from protocol.tensor import packing
from trainer import grpo
from trainer.config import Recipe
from trainer.losses import Tokens

I32 = NDArray[np.int32]
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """All accepted samples of one prompt, with rewards computed by the trainer.

    ``version`` is the policy version that generated them. ``behaviour`` are the logprobs (T,) of each completion's
    tokens under that version, which groups that have just come in lack; ``reported`` are the worker's. ``source`` and
    ``row`` are the task's, where it comes from a file.
    """

    round: int
    job: int
    group: int
    version: int
    prompt_tokens: I32
    completions: tuple[I32, ...]
    rewards: tuple[float, ...]
    behaviour: tuple[F32, ...] | None = None
    reported: tuple[F32, ...] | None = None
    source: str = ""
    row: int | None = None

    @property
    def key(self) -> tuple[int, int, int]:
        """Round, job and place in the job."""
        return self.round, self.job, self.group

    @property
    def informative(self) -> bool:
        """True if any advantage differs from zero."""
        return min(self.rewards) != max(self.rewards)


@dataclass(frozen=True, slots=True)
class Selection:
    """The available groups, divided by their use in the next step.

    taken    informative groups to train on, in (round, job, group) order; jobs are taken whole
    idle     groups without advantages: paid and recorded, not consumed
    left     informative groups for a later step
    stale    informative groups too old for this step and any later one
    """

    taken: tuple[Group, ...]
    idle: tuple[Group, ...]
    left: tuple[Group, ...]
    stale: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A prompt (P,) and a completion of it (T,), in tokens."""

    prompt_tokens: I32
    completion: I32


@dataclass(frozen=True, slots=True)
class Packed:
    """Rollouts packed for one pass of a model: prefixes that they share are run once, and nothing is padded.

    pack      the nodes of the pass
    members   index of each rollout in the caller's order, as their tokens follow one another
    nodes_K   node that each completion token follows, int64
    targets_K the completion tokens, int64
    """

    pack: packing.Pack
    members: tuple[int, ...]
    nodes_K: torch.Tensor
    targets_K: torch.Tensor


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rollouts packed for one forward and backward pass, of any versions.

    ``tokens`` are the inputs of the loss, ``versions_K`` the policy versions that made its tokens, ``lengths`` the
    numbers of completion tokens of the rollouts, in the order of ``packed.members``. All tasks are of ``source``, if
    sources are trained on apart.
    """

    packed: Packed
    tokens: Tokens
    versions_K: torch.Tensor
    lengths: tuple[int, ...]
    source: str = ""

    @property
    def completion_tokens(self) -> int:
        """Number of tokens in the loss."""
        return len(self.packed.targets_K)

    @property
    def rollout_K(self) -> torch.Tensor:
        """Index of each token's rollout in ``packed.members``, int64."""
        return torch.arange(len(self.lengths)).repeat_interleave(torch.tensor(self.lengths))


def usable(version: int, newest: int, async_level: int) -> bool:
    """Returns whether rollouts of ``version`` may be trained on when the policy is at version ``newest``."""
    return 0 <= newest - version <= async_level


def select(groups: Iterable[Group], newest: int, async_level: int, wanted: int) -> Selection:
    """Selects groups for version ``newest + 1``: whole jobs in (round, job) order, up to at least ``wanted`` groups.

    Only one checkpoint can consume a job, so a job is taken whole even if that exceeds ``wanted``.
    """
    ordered = sorted(groups, key=lambda group: group.key)
    informative = [group for group in ordered if group.informative]
    fresh = [group for group in informative if usable(group.version, newest, async_level)]
    taken: list[Group] = []
    for _, job in groupby(fresh, key=lambda group: (group.round, group.job)):
        if len(taken) >= wanted:
            break
        taken.extend(job)
    return Selection(
        taken=tuple(taken),
        idle=tuple(group for group in ordered if not group.informative),
        left=tuple(fresh[len(taken) :]),
        stale=tuple(group for group in informative if not usable(group.version, newest, async_level)),
    )


def pack_trajectories(rollouts: Sequence[Trajectory], most: int) -> Iterator[Packed]:
    """Packs rollouts for passes of at most ``most`` nodes, or of one rollout."""
    # The last token is not an input: nothing follows it.
    fed = [np.concatenate([each.prompt_tokens, each.completion[:-1]]).astype(np.int32) for each in rollouts]
    for pack in packing.pack(fed, most):
        members = tuple(pack.members_S.tolist())
        nodes = []
        for member, nodes_T in zip(members, pack.nodes_ST, strict=True):
            last = len(rollouts[member].prompt_tokens) - 1
            nodes.append(nodes_T[last : last + len(rollouts[member].completion)])
        targets = np.concatenate([rollouts[member].completion for member in members]).astype(np.int64)
        yield Packed(pack, members, torch.from_numpy(np.concatenate(nodes)), torch.from_numpy(targets))


def trajectories_of(groups: Iterable[Group]) -> list[Trajectory]:
    """Returns the rollouts of groups, one group's after another's."""
    return [Trajectory(group.prompt_tokens, completion) for group in groups for completion in group.completions]


def micro_batches(groups: Sequence[Group], recipe: Recipe) -> list[list[MicroBatch]]:
    """Packs groups into a list of micro-batches for each optimizer step, of up to as many nodes as the recipe allows.

    A rollout with more nodes is a micro-batch of its own. Groups are dealt round-robin, so that each optimizer step
    sees every round and job; with fewer groups than steps there are as many steps as groups. Sources are kept apart if
    the recipe has overrides for one.

    Raises:
        ValueError: a group has no behaviour logprobs.
    """
    hands = [groups[start :: recipe.optimizer_steps] for start in range(recipe.optimizer_steps)]
    return [
        [batch for source, part in _by_source(hand, recipe) for batch in _micro_batches(part, recipe, source)]
        for hand in hands
        if hand
    ]


def _by_source(groups: Sequence[Group], recipe: Recipe) -> Iterator[tuple[str, list[Group]]]:
    if not recipe.sources:
        yield "", list(groups)
        return
    for source in sorted({group.source for group in groups}):
        yield source, [group for group in groups if group.source == source]


def _micro_batches(groups: Sequence[Group], recipe: Recipe, source: str) -> list[MicroBatch]:
    standardised = recipe.of_source(source).advantages == "standardised"
    rollouts = trajectories_of(groups)
    rewards = (torch.tensor([group.rewards]) for group in groups)
    advantages = [value for each in rewards for value in grpo.advantages(each, standardised)[0].tolist()]
    versions = [group.version for group in groups for _ in group.completions]
    behaviour = [logprobs for group in groups for logprobs in _behaviour(group)]
    made = []
    for packed in pack_trajectories(rollouts, recipe.microbatch_tokens):
        members = list(packed.members)
        lengths = tuple(len(rollouts[member].completion) for member in members)
        repeats = torch.tensor(lengths)

        def by_token(values: Sequence[float]) -> torch.Tensor:
            return torch.tensor([values[member] for member in members]).repeat_interleave(repeats)  # noqa: B023

        behaviour_K = torch.from_numpy(np.concatenate([behaviour[member] for member in members]))
        tokens = Tokens(by_token(advantages), behaviour_K)
        made.append(MicroBatch(packed, tokens, by_token(versions), lengths, source))
    return made


def mismatch(groups: Iterable[Group]) -> float:
    """Returns the mean difference of workers' logprobs from those recomputed, in nats; 0 where none were reported."""
    pairs = [pair for group in groups for pair in zip(group.reported or (), group.behaviour or (), strict=False)]
    return float(np.abs(np.concatenate([one - other for one, other in pairs])).mean()) if pairs else 0.0


def _behaviour(group: Group) -> tuple[F32, ...]:
    if group.behaviour is None:
        raise ValueError(f"group {group.group} of job {group.job} in round {group.round} has no behaviour logprobs")
    return group.behaviour
