"""Two-sided clipped GRPO on torch tensors. PURE.

Per completion token, with advantage A and ratio r of the policy to the version that sampled the token,

    loss = max(-min(r, delta) A, -clip(r, 1 - epsilon, 1 + epsilon) A)
           + kl_coefficient KL(policy || reference) - entropy_coefficient H(policy)

The outer bound delta also limits the loss of a token with a negative advantage, which one-sided clipping leaves
unbounded (INTELLECT-2, arXiv 2505.07291, section 3.4). KL and entropy are exact sums over the vocabulary and both
carry a gradient.

Axes: G groups, S samples of a group, K completion tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from trainer.config import Recipe

ADVANTAGE_FLOOR = 1e-4
"""Keeps the advantages of a group with equal rewards at 0 instead of 0 / 0."""
MAX_LOG_RATIO = 20.0
"""exp(20) is far beyond delta and still finite in fp32."""
MAX_DECOUPLED_WEIGHT = 2.0
"""Bounds the weight of a token that its own policy thought unlikely."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Completion tokens, end-of-text included, as inputs of the loss.

    ``advantages_K`` fp32, ``behaviour_K`` fp32 logprobs of the policy that sampled them, ``start_K`` those of the
    policy at the start of the step if the ratio is decoupled.
    """

    advantages_K: torch.Tensor
    behaviour_K: torch.Tensor
    start_K: torch.Tensor | None = None

    def __getitem__(self, part: slice) -> Tokens:
        start_K = None if self.start_K is None else self.start_K[part]
        return Tokens(self.advantages_K[part], self.behaviour_K[part], start_K)

    def to(self, device: torch.device) -> Tokens:
        """Returns the tokens on ``device``."""
        start_K = None if self.start_K is None else self.start_K.to(device)
        return Tokens(self.advantages_K.to(device), self.behaviour_K.to(device), start_K)


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


def advantages(rewards_GS: torch.Tensor) -> torch.Tensor:
    """Returns (reward - mean) / (population standard deviation + 1e-4) within each group, fp32."""
    rewards_GS = rewards_GS.float()
    mean_G1 = rewards_GS.mean(-1, keepdim=True)
    return (rewards_GS - mean_G1) / (rewards_GS.std(-1, correction=0, keepdim=True) + ADVANTAGE_FLOOR)


def clipped_surrogate(
    ratio_K: torch.Tensor, advantages_K: torch.Tensor, recipe: Recipe
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the two-sided clipped loss per token, and a bool mask of the tokens whose gradient was clipped."""
    inner_K = -ratio_K.clamp(max=recipe.delta) * advantages_K
    outer_K = -ratio_K.clamp(1 - recipe.epsilon, 1 + recipe.epsilon) * advantages_K
    beyond_K = (ratio_K < 1 - recipe.epsilon) | (ratio_K > 1 + recipe.epsilon)
    clipped_K = (beyond_K & (outer_K > inner_K)) | ((ratio_K > recipe.delta) & (inner_K >= outer_K))
    return torch.maximum(inner_K, outer_K), clipped_K


def ratios(policy_K: torch.Tensor, tokens: Tokens) -> tuple[torch.Tensor, torch.Tensor | float]:
    """Returns the ratio that carries the gradient, and the weight (no gradient) of each token's surrogate.

    Plain: policy / behaviour, weight 1. Decoupled: policy / start, weight min(start / behaviour, 2).
    """
    if tokens.start_K is None:
        return _ratio(policy_K, tokens.behaviour_K), 1.0
    weight_K = _ratio(tokens.start_K, tokens.behaviour_K).clamp(max=MAX_DECOUPLED_WEIGHT)
    return _ratio(policy_K, tokens.start_K), weight_K.detach()


def _ratio(above_K: torch.Tensor, below_K: torch.Tensor) -> torch.Tensor:
    return (above_K - below_K).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def loss(scores: TokenScores, tokens: Tokens, recipe: Recipe, denominator: int) -> Loss:
    """Returns the loss of some completion tokens.

    ``denominator`` is the number of completion tokens of the whole optimizer step, over all its micro-batches and
    ranks, so that every token has the same weight however the step is split.
    """
    ratio_K, weight_K = ratios(scores.logprobs_K, tokens)
    surrogate_K, clipped_K = clipped_surrogate(ratio_K, tokens.advantages_K, recipe)
    token_K = weight_K * surrogate_K - recipe.entropy_coefficient * scores.entropy_K
    token_K = token_K + recipe.kl_coefficient * scores.kl_K
    total = token_K.sum() / denominator
    count = total.new_tensor(float(len(ratio_K)))
    sums = (values_K.detach().sum().float() for values_K in (clipped_K, ratio_K, scores.entropy_K, scores.kl_K))
    return Loss(total, count, *sums)
