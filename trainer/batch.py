"""From accepted groups to the micro-batches of a step. PURE.

Axes: B rows, T positions of prompt and completion, K positions from the first completion token of any row onward.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from trainer.grpo import advantages


@dataclass(frozen=True, slots=True)
class Group:
    """All samples of one prompt, accepted, with the rewards the trainer computed itself.

    ``version`` is the policy version that made them.
    """

    round: int
    job: int
    group: int
    version: int
    prompt_tokens: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]
    rewards: tuple[float, ...]

    @property
    def informative(self) -> bool:
        """Whether any advantage differs from zero."""
        return min(self.rewards) != max(self.rewards)


@dataclass(frozen=True, slots=True)
class Selection:
    """What becomes of the groups at hand when a version is made.

    ``taken``       informative groups to train on, in (round, job, group) order; never part of a job
    ``idle``        groups without advantages: paid and recorded, not consumed
    ``left``        informative groups for a later step
    ``stale``       informative groups that are too old for this step and any later one
    """

    taken: tuple[Group, ...]
    idle: tuple[Group, ...]
    left: tuple[Group, ...]
    stale: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows made by one policy version, padded on the right, where a causal model needs no mask.

    ``tokens_BT`` int64; ``first`` is the least prompt length; ``mask_BK`` bool is true on completion tokens;
    ``advantages_B`` fp32.
    """

    version: int
    tokens_BT: torch.Tensor
    first: int
    mask_BK: torch.Tensor
    advantages_B: torch.Tensor

    @property
    def targets_BK(self) -> torch.Tensor:
        """Tokens from ``first`` onward: what the kept logits predict."""
        return self.tokens_BT[:, self.first :]

    @property
    def completion_tokens(self) -> int:
        """How many tokens count in the loss."""
        return int(self.mask_BK.sum())


def usable(version: int, newest: int, async_level: int) -> bool:
    """Whether rollouts of ``version`` may train the policy ``newest`` into the next one."""
    return 0 <= newest - version <= async_level


def select(groups: Iterable[Group], newest: int, async_level: int, wanted: int) -> Selection:
    """Choose what makes version ``newest + 1``: whole jobs in (round, job) order until ``wanted`` groups are there.

    A job is consumed by one checkpoint only, so it is taken whole even where that is more than wanted.
    """
    ordered = sorted(groups, key=lambda group: (group.round, group.job, group.group))
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


@dataclass(frozen=True, slots=True)
class _PackedRow:
    version: int
    prompt_tokens: tuple[int, ...]
    completion: tuple[int, ...]
    advantage: float

    @property
    def length(self) -> int:
        return len(self.prompt_tokens) + len(self.completion)


def pack(groups: Sequence[Group], optimizer_steps: int, max_tokens: int) -> list[list[MicroBatch]]:
    """Cut groups into ``optimizer_steps`` lists of micro-batches of at most ``max_tokens`` padded tokens (or one row).

    Groups are dealt out in turn, so that each optimizer step sees every round and job; with fewer groups than steps
    there are as many steps as groups. Within a step, rows of like version and length lie together.
    """
    hands = [groups[start::optimizer_steps] for start in range(optimizer_steps)]
    return [_micro_batches(hand, max_tokens) for hand in hands if hand]


def _micro_batches(groups: Sequence[Group], max_tokens: int) -> list[MicroBatch]:
    rows = sorted((row for group in groups for row in _rows(group)), key=lambda row: (row.version, row.length))
    batches: list[MicroBatch] = []
    pending: list[_PackedRow] = []
    for row in rows:
        full = pending and (len(pending) + 1) * row.length > max_tokens
        if pending and (full or pending[0].version != row.version):
            batches.append(_padded(pending))
            pending = []
        pending.append(row)
    if pending:
        batches.append(_padded(pending))
    return batches


def _rows(group: Group) -> list[_PackedRow]:
    values = advantages(torch.tensor([group.rewards]))[0].tolist()
    pairs = zip(group.completions, values, strict=True)
    return [_PackedRow(group.version, group.prompt_tokens, completion, value) for completion, value in pairs]


def _padded(rows: Sequence[_PackedRow]) -> MicroBatch:
    first, width = min(len(row.prompt_tokens) for row in rows), max(row.length for row in rows)
    tokens = [[*row.prompt_tokens, *row.completion, *[0] * (width - row.length)] for row in rows]
    starts_B1 = torch.tensor([[len(row.prompt_tokens)] for row in rows])
    ends_B1 = torch.tensor([[row.length] for row in rows])
    positions_1K = torch.arange(first, width)[None]
    return MicroBatch(
        version=rows[0].version,
        tokens_BT=torch.tensor(tokens),
        first=first,
        mask_BK=(positions_1K >= starts_B1) & (positions_1K < ends_B1),
        advantages_B=torch.tensor([row.advantage for row in rows]),
    )
