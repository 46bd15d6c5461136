"""A training step as it is written down: rows padded to one length, and the logits of all positions at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainer import grpo
from trainer.batch import Group
from trainer.config import Recipe
from trainer.losses import Tokens


def whole_loss(
    logits_KV: torch.Tensor,
    targets_K: torch.Tensor,
    tokens: Tokens,
    recipe: Recipe,
    denominator: int,
    reference_KV: torch.Tensor | None = None,
) -> grpo.Loss:
    """Returns the loss of K tokens from their fp32 logits and the reference's, by autograd alone."""
    logprobs_KV = logits_KV.log_softmax(-1)
    taken_K = logprobs_KV.gather(1, targets_K[:, None])[:, 0]
    entropy_K = -(logprobs_KV.exp() * logprobs_KV).sum(-1)
    kl_K = torch.zeros_like(entropy_K)
    if reference_KV is not None:
        kl_K = (logprobs_KV.exp() * (logprobs_KV - reference_KV.log_softmax(-1))).sum(-1)
    return grpo.loss(grpo.TokenScores(taken_K, entropy_K, kl_K), tokens, recipe, denominator)


@dataclass(frozen=True, slots=True)
class Row:
    """A rollout: its tokens, of which the first ``prompt`` are the prompt's, its advantage and its logprobs."""

    version: int
    prompt: int
    tokens: tuple[int, ...]
    advantage: float
    behaviour: torch.Tensor


def rows_of(groups: Sequence[Group]) -> list[Row]:
    """Returns the rollouts of weighed groups, by version and length."""
    rows = []
    for group in groups:
        values = grpo.advantages(torch.tensor([group.rewards]))[0].tolist()
        for value, completion, logprobs in zip(values, group.completions, group.behaviour or (), strict=True):
            tokens = (*group.prompt_tokens.tolist(), *completion.tolist())
            rows.append(Row(group.version, len(group.prompt_tokens), tokens, value, torch.from_numpy(logprobs)))
    return sorted(rows, key=lambda row: (row.version, len(row.tokens)))


def padded_parts(rows: Sequence[Row], most: int) -> list[list[Row]]:
    """Returns the rows in parts of one version and at most ``most`` padded tokens."""
    parts: list[list[Row]] = []
    for row in rows:
        if parts and parts[-1][0].version == row.version and (len(parts[-1]) + 1) * len(row.tokens) <= most:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def padded_loss(
    network: Any, rows: Sequence[Row], recipe: Recipe, temperature: float, denominator: int, reference: Any = None
) -> grpo.Loss:
    """Returns the loss of rows in one padded batch."""
    width = max(len(row.tokens) for row in rows)
    tokens_BT = torch.tensor([[*row.tokens, *[0] * (width - len(row.tokens))] for row in rows])
    places = [
        number * (width - 1) + place
        for number, row in enumerate(rows)
        for place in range(row.prompt - 1, len(row.tokens) - 1)
    ]

    def logits(of: Any) -> torch.Tensor:
        logits_BTV = of(input_ids=tokens_BT[:, :-1], use_cache=False).logits
        return logits_BTV.flatten(0, 1)[places].float() / (temperature or 1.0)

    with torch.no_grad():
        reference_KV = None if reference is None else logits(reference)
    lengths = torch.tensor([len(row.behaviour) for row in rows])
    advantages_K = torch.tensor([row.advantage for row in rows]).repeat_interleave(lengths)
    inputs = Tokens(advantages_K, torch.cat([row.behaviour for row in rows]))
    targets_K = torch.tensor([token for row in rows for token in row.tokens[row.prompt :]])
    return whole_loss(logits(network), targets_K, inputs, recipe, denominator, reference_KV)
