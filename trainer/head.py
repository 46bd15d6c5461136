"""Loss through the LM head, a few tokens at a time: logits of all tokens at once would not fit in memory.

The loss of a token depends on no other token's logits. So each chunk of tokens is taken from its logits to their
gradient before the next one is begun, and only the gradients of the LM head's inputs and weights are kept. With logits
z = l / T of one token, p = softmax(z), entropy H, and KL to a reference with logprobs log q,

    d logprob(t) / dz = [t] - p        dH / dz = -p (log p + H)        dKL / dz = p (log p - log q - KL)

Axes: K tokens, C tokens of a chunk, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from protocol.tensor.model import logits_of
from trainer import grpo
from trainer.config import Recipe
from trainer.losses import Tokens

LOGITS_AT_ONCE = {"cpu": 10 << 20, "cuda": 1 << 28}
"""Logits of a chunk, in fp32: of 69 tokens for a vocabulary of 152k. A chunk holds three to four times as much."""


@dataclass(frozen=True, slots=True)
class Head:
    """An LM head: its module, the number format of its logits, and the temperature T (0, greedy, counts as 1)."""

    module: Any
    dtype: torch.dtype
    temperature: float

    def logprobs(self, hidden_CH: Tensor) -> Tensor:
        """Returns logprobs_CV over the whole vocabulary: log-softmax(l / T) in fp32, finite for impossible tokens."""
        logits_CV = logits_of(self.module, hidden_CH, self.dtype)
        if self.temperature not in (0.0, 1.0):
            logits_CV /= self.temperature
        return logits_CV.log_softmax(-1).clamp_(min=torch.finfo(torch.float32).min)

    def chunks(self, tokens: int) -> Iterator[slice]:
        """Yields the chunks of so many tokens."""
        weight_VH = self.module.weight
        size = max(1, LOGITS_AT_ONCE[weight_VH.device.type] // weight_VH.shape[0])
        return (slice(start, min(start + size, tokens)) for start in range(0, tokens, size))

    def frozen(self) -> Head:
        """Returns this head with its present weights, whatever the module's are later: not copied."""
        module = torch.nn.Linear(1, 1, bias=False, device="meta")
        module.weight = torch.nn.Parameter(self.module.weight.data, requires_grad=False)
        if (bias_V := getattr(self.module, "bias", None)) is not None:
            module.bias = torch.nn.Parameter(bias_V.data, requires_grad=False)
        return replace(self, module=module)

    @torch.no_grad()
    def taken(self, hidden_KH: Tensor, targets_K: Tensor) -> Tensor:
        """Returns logprobs_K of ``targets_K``, without gradient."""
        parts = [_taken(self.logprobs(hidden_KH[part]), targets_K[part]) for part in self.chunks(len(targets_K))]
        return torch.cat(parts) if parts else torch.empty(0)


@dataclass(frozen=True, slots=True)
class Reference:
    """LM head of the reference of a KL term, and its inputs hidden_KH."""

    head: Head
    hidden_KH: Tensor


def loss(
    head: Head,
    hidden_KH: Tensor,
    targets_K: Tensor,
    tokens: Tokens,
    recipe: Recipe,
    denominator: int,
    reference: Reference | None = None,
) -> grpo.Loss:
    """Returns the loss of K completion tokens with the gradient of ``hidden_KH`` and of the LM head's parameters.

    Args:
        head: of the policy.
        hidden_KH: its inputs at the positions that the tokens follow.
        targets_K: the tokens, int64.
        tokens: the other inputs of ``grpo.loss``.
        recipe: whose coefficients weigh entropy and KL.
        denominator: completion tokens of the whole optimizer step.
        reference: of the KL term; None leaves it out.
    """
    inputs = _LossInputs(head, targets_K, tokens, recipe, denominator, reference)
    parameters = head.module.weight, getattr(head.module, "bias", None)
    total, *sums = _Chunked.apply(hidden_KH, *parameters, inputs)  # type: ignore[no-untyped-call]
    return grpo.Loss(total, *sums)


@dataclass(frozen=True, slots=True)
class _LossInputs:
    head: Head
    targets_K: Tensor
    tokens: Tokens
    recipe: Recipe
    denominator: int
    reference: Reference | None


class _Chunked(torch.autograd.Function):
    """Loss and gradients in one pass: the backward pass only hands out what the forward pass has made."""

    @staticmethod
    def forward(ctx: Any, hidden_KH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, inputs: _LossInputs) -> Any:
        """Returns the total of the loss and the sums of ``grpo.Loss``, the latter without gradient."""
        gradients = _Gradients.zeros(hidden_KH, weight_VH, bias_V)
        losses = [
            _chunk(part, hidden_KH, inputs, gradients if any(ctx.needs_input_grad) else None)
            for part in inputs.head.chunks(len(inputs.targets_K))
        ]
        ctx.gradients = gradients.like(hidden_KH, weight_VH, bias_V)
        total, *others = torch.stack([torch.stack(each) for each in losses]).sum(0).unbind()
        ctx.mark_non_differentiable(*others)
        return total, *others

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, total: Tensor, *_: Tensor) -> Any:
        """Returns the gradients of hidden states, weights and bias: themselves, as a copy would double the peak."""
        gradients, ctx.gradients = ctx.gradients, None
        return *(None if each is None else each.mul_(total) for each in gradients), None


@dataclass(slots=True)
class _Gradients:
    """Gradients of the LM head's inputs, and of its parameters in fp32: many chunks add up in them."""

    hidden_KH: Tensor
    weight_VH: Tensor
    bias_V: Tensor | None

    @classmethod
    def zeros(cls, hidden_KH: Tensor, weight_VH: Tensor, bias_V: Tensor | None) -> _Gradients:
        weight = torch.zeros(weight_VH.shape, dtype=torch.float32, device=weight_VH.device)
        bias = None if bias_V is None else torch.zeros(bias_V.shape, dtype=torch.float32, device=bias_V.device)
        return cls(torch.empty_like(hidden_KH), weight, bias)

    def add(self, part: slice, slopes_CV: Tensor, hidden_CH: Tensor, weight_VH: Tensor) -> None:
        """Adds those of a chunk whose gradient of the logits is ``slopes_CV``, fp32."""
        if self.bias_V is not None:
            self.bias_V += slopes_CV.sum(0)
        slopes_CV = slopes_CV.to(weight_VH.dtype)
        torch.mm(slopes_CV, weight_VH, out=self.hidden_KH[part])
        if weight_VH.dtype == torch.float32:
            self.weight_VH.addmm_(slopes_CV.T, hidden_CH)
        else:
            self.weight_VH += slopes_CV.T @ hidden_CH

    def like(self, hidden_KH: Tensor, weight_VH: Tensor, bias_V: Tensor | None) -> tuple[Tensor | None, ...]:
        """Returns them in the formats of what they are of."""
        pairs = ((self.hidden_KH, hidden_KH), (self.weight_VH, weight_VH), (self.bias_V, bias_V))
        return tuple(None if own is None or of is None else own.to(of.dtype) for own, of in pairs)


def _chunk(part: slice, hidden_KH: Tensor, inputs: _LossInputs, gradients: _Gradients | None) -> grpo.Loss:
    """Returns the loss of one chunk of tokens, and adds its gradients."""
    targets_C, reference_CV = inputs.targets_K[part], None
    logprobs_CV = inputs.head.logprobs(hidden_KH[part])
    p_CV = logprobs_CV.exp()
    entropy_C = -_dot(p_CV, logprobs_CV)
    kl_C = torch.zeros_like(entropy_C)
    if inputs.reference is not None:
        reference_CV = inputs.reference.head.logprobs(inputs.reference.hidden_KH[part])
        kl_C = -entropy_C - _dot(p_CV, reference_CV)
    scores = grpo.TokenScores(_taken(logprobs_CV, targets_C), entropy_C, kl_C)
    with torch.enable_grad():
        leaves = grpo.TokenScores(*(each.requires_grad_() for each in scores))
        result = grpo.loss(leaves, inputs.tokens[part], inputs.recipe, inputs.denominator)
    if gradients is not None:
        slopes = grpo.TokenScores(*torch.autograd.grad(result.total, leaves, materialize_grads=True, allow_unused=True))
        slopes_CV = _slopes(p_CV, logprobs_CV, reference_CV, scores, slopes, inputs)
        slopes_CV.scatter_add_(1, targets_C[:, None], slopes.logprobs_K[:, None])
        slopes_CV.div_(inputs.head.temperature or 1.0)
        gradients.add(part, slopes_CV, hidden_KH[part], inputs.head.module.weight)
    return grpo.Loss(*(value.detach() for value in result))


def _slopes(
    p_CV: Tensor,
    logprobs_CV: Tensor,
    reference_CV: Tensor | None,
    scores: grpo.TokenScores,
    slopes: grpo.TokenScores,
    inputs: _LossInputs,
) -> Tensor:
    """Returns the gradient of z without the [t] of each token's own logprob, in the place of one of the inputs."""
    constant_C = -slopes.logprobs_K - slopes.entropy_K * scores.entropy_K
    if reference_CV is not None:
        constant_C = constant_C - slopes.kl_K * scores.kl_K
        slopes_CV = logprobs_CV.mul_((slopes.kl_K - slopes.entropy_K)[:, None])
        slopes_CV.addcmul_(reference_CV, slopes.kl_K[:, None], value=-1)
    elif inputs.recipe.entropy_coefficient:
        slopes_CV = logprobs_CV.mul_(-slopes.entropy_K[:, None])
    else:
        return p_CV.mul_(constant_C[:, None])
    return slopes_CV.add_(constant_C[:, None]).mul_(p_CV)


def _taken(logprobs_CV: Tensor, targets_C: Tensor) -> Tensor:
    return logprobs_CV.gather(1, targets_C[:, None])[:, 0]


def _dot(one_CV: Tensor, other_CV: Tensor) -> Tensor:
    """Returns the product of each row with the other's, summed, without a third array."""
    return torch.bmm(one_CV[:, None], other_CV[:, :, None])[:, 0, 0]
