"""Losses by name: surrogates of completion tokens, by how likely these are now and were before.

With advantage A, logprob l under the policy, ratios r = policy / behaviour, s = policy / start of the step and
w = start / behaviour, the behaviour being the version that made the rollout, and [x] for x without gradient:

    two-sided   max(-min(r, delta) A, -clip(r) A): bounded for negative advantages too (INTELLECT-2, arXiv 2505.07291)
    decoupled   the same of s, times [min(w, 2)] (arXiv 2110.00641)
    dppo        -r A, and 0 where r A would move a probability further that has moved by ``shift`` (arXiv 2602.04879)
    icepop      -min(s A, clip(s) A), times [w], and 0 where w is not from 0.5 to 5 (arXiv 2510.18855)
    cispo       -[min(r, delta)] A l: no token is without a gradient (arXiv 2506.13585)
    gspo        -min(r A, clip(r) A) with the geometric mean of a rollout's ratios as r of its tokens (arXiv 2507.18071)

clip is to 1 -/+ epsilon. All are averaged over the tokens of the step. PURE.

Axis: K completion tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.config import Recipe

MAX_LOG_RATIO = 20.0
"""exp(20) is far beyond delta and still finite in fp32."""
MAX_DECOUPLED_WEIGHT = 2.0
"""Bounds the weight of a token that its own policy thought unlikely."""
ICEPOP_BOUNDS = (0.5, 5.0)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Completion tokens, end-of-text included, as inputs of the loss.

    advantages_K    fp32
    behaviour_K     fp32 logprobs under the version that made the rollout
    start_K         those of the policy at the start of the step, where the loss needs them
    """

    advantages_K: Tensor
    behaviour_K: Tensor
    start_K: Tensor | None = None

    def __getitem__(self, part: slice) -> Tokens:
        start_K = None if self.start_K is None else self.start_K[part]
        return Tokens(self.advantages_K[part], self.behaviour_K[part], start_K)

    def to(self, device: torch.device) -> Tokens:
        """Returns the tokens on ``device``."""
        start_K = None if self.start_K is None else self.start_K.to(device)
        return Tokens(self.advantages_K.to(device), self.behaviour_K.to(device), start_K)


class Surrogate(NamedTuple):
    """Surrogate loss of each token, whether its gradient was cut off, and the ratio that is reported of it."""

    loss_K: Tensor
    clipped_K: Tensor
    ratio_K: Tensor


def surrogate(policy_K: Tensor, tokens: Tokens, recipe: Recipe) -> Surrogate:
    """Returns the recipe's surrogate of tokens with logprobs ``policy_K``, whose gradient it carries."""
    return LOSSES[recipe.loss](policy_K, tokens, recipe)


def of_rollouts(tokens: Tokens, policy_K: Tensor, rollout_K: Tensor) -> Tokens:
    """Returns tokens whose ratio to ``policy_K`` is the geometric mean of their rollout's.

    Args:
        tokens: of whole rollouts.
        policy_K: their present logprobs, without gradient.
        rollout_K: index of each token's rollout, from 0 and without gaps, int64.
    """
    apart_K, counts_R = policy_K - tokens.behaviour_K, torch.bincount(rollout_K)
    means_R = apart_K.new_zeros(len(counts_R)).index_add_(0, rollout_K, apart_K) / counts_R
    return replace(tokens, behaviour_K=policy_K - means_R[rollout_K])


def _two_sided(policy_K: Tensor, tokens: Tokens, recipe: Recipe) -> Surrogate:
    return _bounded(_ratio(policy_K, tokens.behaviour_K), tokens.advantages_K, recipe)


def _decoupled(policy_K: Tensor, tokens: Tokens, recipe: Recipe) -> Surrogate:
    found = _bounded(_ratio(policy_K, _start(tokens)), tokens.advantages_K, recipe)
    weight_K = _ratio(_start(tokens), tokens.behaviour_K).clamp(max=MAX_DECOUPLED_WEIGHT)
    return found._replace(loss_K=weight_K * found.loss_K)


def _dppo(policy_K: Tensor, tokens: Tokens, recipe: Recipe) -> Surrogate:
    ratio_K = _ratio(policy_K, tokens.behaviour_K)
    moved_K = policy_K.detach().exp() - tokens.behaviour_K.exp()
    beyond_K = moved_K * tokens.advantages_K.sign() > recipe.shift
    return Surrogate(-ratio_K.masked_fill(beyond_K, 0.0) * tokens.advantages_K, beyond_K, ratio_K)


def _icepop(policy_K: Tensor, tokens: Tokens, recipe: Recipe) -> Surrogate:
    found = _clipped(_ratio(policy_K, _start(tokens)), tokens.advantages_K, recipe)
    weight_K = _ratio(_start(tokens), tokens.behaviour_K)
    strange_K = (weight_K < ICEPOP_BOUNDS[0]) | (weight_K > ICEPOP_BOUNDS[1])
    return Surrogate(weight_K.masked_fill(strange_K, 0.0) * found.loss_K, found.clipped_K | strange_K, found.ratio_K)


def _cispo(policy_K: Tensor, tokens: Tokens, recipe: Recipe) -> Surrogate:
    ratio_K = _ratio(policy_K, tokens.behaviour_K).detach()
    return Surrogate(-ratio_K.clamp(max=recipe.delta) * tokens.advantages_K * policy_K, ratio_K > recipe.delta, ratio_K)


def _gspo(policy_K: Tensor, tokens: Tokens, recipe: Recipe) -> Surrogate:
    """Takes tokens of ``of_rollouts``."""
    return _clipped(_ratio(policy_K, tokens.behaviour_K), tokens.advantages_K, recipe)


LOSSES: dict[str, Callable[[Tensor, Tokens, Recipe], Surrogate]] = {
    "two-sided": _two_sided,
    "decoupled": _decoupled,
    "dppo": _dppo,
    "icepop": _icepop,
    "cispo": _cispo,
    "gspo": _gspo,
}
OF_THE_START = frozenset({"decoupled", "icepop"})
"""Losses that take logprobs of the policy at the start of the step."""
OF_ROLLOUTS = frozenset({"gspo"})
"""Losses that take tokens of ``of_rollouts``."""


def _bounded(ratio_K: Tensor, advantages_K: Tensor, recipe: Recipe) -> Surrogate:
    """Returns the two-sided loss."""
    inner_K = -ratio_K.clamp(max=recipe.delta) * advantages_K
    outer_K = -ratio_K.clamp(1 - recipe.epsilon, 1 + recipe.epsilon) * advantages_K
    clipped_K = (_beyond(ratio_K, recipe) & (outer_K > inner_K)) | ((ratio_K > recipe.delta) & (inner_K >= outer_K))
    return Surrogate(torch.maximum(inner_K, outer_K), clipped_K, ratio_K)


def _clipped(ratio_K: Tensor, advantages_K: Tensor, recipe: Recipe) -> Surrogate:
    """Returns PPO's clipped loss."""
    inner_K = -ratio_K * advantages_K
    outer_K = -ratio_K.clamp(1 - recipe.epsilon, 1 + recipe.epsilon) * advantages_K
    return Surrogate(torch.maximum(inner_K, outer_K), _beyond(ratio_K, recipe) & (outer_K > inner_K), ratio_K)


def _beyond(ratio_K: Tensor, recipe: Recipe) -> Tensor:
    return (ratio_K < 1 - recipe.epsilon) | (ratio_K > 1 + recipe.epsilon)


def _ratio(above_K: Tensor, below_K: Tensor) -> Tensor:
    return (above_K - below_K).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def _start(tokens: Tokens) -> Tensor:
    assert tokens.start_K is not None, "the loss needs logprobs of the start of the step"
    return tokens.start_K
