"""Group-relative policy optimisation on torch tensors: advantages, and the loss of completion tokens. PURE.

    loss = surrogate (``trainer.losses``) + kl_coefficient KL(policy || reference) - entropy_coefficient H(policy)

KL and entropy are exact sums over the vocabulary and both carry a gradient (INTELLECT-2, arXiv 2505.07291, 3.4).

Axes: G groups, S samples of a group, K completion tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from trainer.config import Recipe
from trainer.losses import Tokens, surrogate

ADVANTAGE_FLOOR = 1e-4
"""Keeps the advantages of a group with equal rewards at 0 instead of 0 / 0."""


class TokenScores(NamedTuple):
    """Scores of completion tokens under the policy, in fp32 and nats.

    ``logprobs_K`` of the tokens, ``entropy_K`` of the distributions that they were sampled from, ``kl_K`` of these to
    the reference's (0 without one).
    """

    logprobs_K: torch.Tensor
    entropy_K: torch.Tensor
    kl_K: torch.Tensor


class Loss(NamedTuple):
    """Loss of some tokens: ``total`` carries the gradient; the others are sums over the tokens, without it."""

    total: torch.Tensor
    tokens: torch.Tensor
    clipped: torch.Tensor
    ratio: torch.Tensor
    entropy: torch.Tensor
    kl: torch.Tensor


def advantages(rewards_GS: torch.Tensor, standardised: bool = True) -> torch.Tensor:
    """Returns reward - mean within each group, over (population standard deviation + 1e-4) if standardised, fp32."""
    rewards_GS = rewards_GS.float()
    centred_GS = rewards_GS - rewards_GS.mean(-1, keepdim=True)
    if not standardised:
        return centred_GS
    return centred_GS / (rewards_GS.std(-1, correction=0, keepdim=True) + ADVANTAGE_FLOOR)


def loss(scores: TokenScores, tokens: Tokens, recipe: Recipe, denominator: int) -> Loss:
    """Returns the loss of some completion tokens.

    ``denominator`` is the number of completion tokens of the whole optimizer step, over all its micro-batches and
    ranks, so that every token has the same weight however the step is split.
    """
    surrogate_K, clipped_K, ratio_K = surrogate(scores.logprobs_K, tokens, recipe)
    token_K = surrogate_K - recipe.entropy_coefficient * scores.entropy_K
    token_K = token_K + recipe.kl_coefficient * scores.kl_K
    total = token_K.sum() / denominator
    count = total.new_tensor(float(len(ratio_K)))
    sums = (values_K.detach().sum().float() for values_K in (clipped_K, ratio_K, scores.entropy_K, scores.kl_K))
    return Loss(total, count, *sums)
