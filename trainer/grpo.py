"""Two-sided clipped GRPO on torch tensors. PURE.

Per completion token, with advantage A and ratio r of the policy to the version that sampled the token,

    loss = max(-min(r, delta) A, -clip(r, 1 - epsilon, 1 + epsilon) A)
           + kl_coefficient KL(policy || reference) - entropy_coefficient H(policy)

The outer bound delta also limits the loss of a token with a negative advantage, which one-sided clipping leaves
unbounded (INTELLECT-2, arXiv 2505.07291, section 3.4). KL and entropy are exact sums over the vocabulary and both
carry a gradient.

Axes: G groups, S samples of a group, B rows, T completion positions, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """The completions of a micro-batch, as inputs of the loss.

    ``targets_BT`` int64 tokens, ``mask_BT`` bool, true on completion tokens (end-of-text included), ``advantages_B``
    fp32, ``behaviour_BT`` fp32 logprobs of the policy that sampled them, ``start_BT`` those of the policy at the start
    of the step if the ratio is decoupled, ``reference_BTV`` fp32 logprobs of the reference if there is a KL term.
    """

    targets_BT: torch.Tensor
    mask_BT: torch.Tensor
    advantages_B: torch.Tensor
    behaviour_BT: torch.Tensor
    start_BT: torch.Tensor | None = None
    reference_BTV: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """Loss of a micro-batch: ``total`` carries the gradient; the others are sums over completion tokens, without it."""

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


def logprobs(logits_BTV: torch.Tensor, temperature: float) -> torch.Tensor:
    """Returns log-softmax(logits / T) in fp32 over the whole vocabulary; T = 1 if decoding is greedy."""
    return (logits_BTV.float() / (temperature or 1.0)).log_softmax(-1)


def taken(logprobs_BTV: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
    """Returns logprobs_BT of the sampled tokens."""
    return logprobs_BTV.gather(-1, targets_BT[..., None])[..., 0]


def clipped_surrogate(
    ratio_BT: torch.Tensor, advantages_BT: torch.Tensor, recipe: Recipe
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the two-sided clipped loss per token, and a bool mask of the tokens whose gradient was clipped."""
    inner_BT = -ratio_BT.clamp(max=recipe.delta) * advantages_BT
    outer_BT = -ratio_BT.clamp(1 - recipe.epsilon, 1 + recipe.epsilon) * advantages_BT
    beyond_BT = (ratio_BT < 1 - recipe.epsilon) | (ratio_BT > 1 + recipe.epsilon)
    clipped_BT = (beyond_BT & (outer_BT > inner_BT)) | ((ratio_BT > recipe.delta) & (inner_BT >= outer_BT))
    return torch.maximum(inner_BT, outer_BT), clipped_BT


def ratios(policy_BT: torch.Tensor, tokens: Tokens) -> tuple[torch.Tensor, torch.Tensor | float]:
    """Returns the ratio that carries the gradient, and the weight (no gradient) of each token's surrogate.

    Plain: policy / behaviour, weight 1. Decoupled: policy / start, weight min(start / behaviour, 2).
    """
    if tokens.start_BT is None:
        return _ratio(policy_BT, tokens.behaviour_BT), 1.0
    weight_BT = _ratio(tokens.start_BT, tokens.behaviour_BT).clamp(max=MAX_DECOUPLED_WEIGHT)
    return _ratio(policy_BT, tokens.start_BT), weight_BT.detach()


def _ratio(above_BT: torch.Tensor, below_BT: torch.Tensor) -> torch.Tensor:
    return (above_BT - below_BT).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def entropy(logprobs_BTV: torch.Tensor) -> torch.Tensor:
    """Returns the exact entropy_BT in nats. Tokens of probability 0 add nothing."""
    return -(logprobs_BTV.exp() * _finite(logprobs_BTV)).sum(-1)


def kl_divergence(logprobs_BTV: torch.Tensor, reference_BTV: torch.Tensor) -> torch.Tensor:
    """Returns the exact KL_BT(policy || reference) in nats, with the policy's gradient."""
    return (logprobs_BTV.exp() * (_finite(logprobs_BTV) - _finite(reference_BTV))).sum(-1)


def _finite(logprobs_BTV: torch.Tensor) -> torch.Tensor:
    return logprobs_BTV.clamp(min=torch.finfo(logprobs_BTV.dtype).min / 4)


def loss(logprobs_BTV: torch.Tensor, tokens: Tokens, recipe: Recipe, denominator: int) -> Loss:
    """Returns the loss of one micro-batch.

    ``denominator`` is the number of completion tokens of the whole optimizer step, over all its micro-batches and
    ranks, so that every token has the same weight however the step is split.
    """
    policy_BT, mask_BT = taken(logprobs_BTV, tokens.targets_BT), tokens.mask_BT
    ratio_BT, weight_BT = ratios(policy_BT, tokens)
    surrogate_BT, clipped_BT = clipped_surrogate(ratio_BT, tokens.advantages_B[:, None], recipe)
    entropy_BT = entropy(logprobs_BTV)
    token_BT = weight_BT * surrogate_BT - recipe.entropy_coefficient * entropy_BT
    kl_BT = torch.zeros_like(policy_BT)
    if tokens.reference_BTV is not None:
        kl_BT = kl_divergence(logprobs_BTV, tokens.reference_BTV)
        token_BT = token_BT + recipe.kl_coefficient * kl_BT
    total = token_BT.masked_fill(~mask_BT, 0.0).sum() / denominator
    sums = (_sum(values_BT, mask_BT) for values_BT in (mask_BT, clipped_BT, ratio_BT, entropy_BT, kl_BT))
    return Loss(total, *sums)


def _sum(values_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    return values_BT.detach().masked_fill(~mask_BT, 0).sum().float()
