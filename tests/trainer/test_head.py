"""The loss through the LM head, against all logits at once. Axes as in ``trainer.head``."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.padded import whole_loss
from trainer import grpo, head
from trainer.config import Recipe
from trainer.head import Head, Reference
from trainer.losses import Tokens

WEIGHED = Recipe(kl_coefficient=0.3, entropy_coefficient=0.2)


def _draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _head(
    vocabulary: int, hidden: int, *, bias: bool = False, seed: int = 0, temperature: float = 1.0, dtype: str = "float32"
) -> Head:
    module = torch.nn.Linear(hidden, vocabulary, bias=bias)
    with torch.no_grad():
        module.weight.copy_(_draw(seed, vocabulary, hidden))
        if bias:
            module.bias.copy_(_draw(seed + 1, vocabulary))
    return Head(module, getattr(torch, dtype), temperature)


def _tokens(tokens: int) -> Tokens:
    return Tokens(_draw(7, tokens), -_draw(8, tokens).abs() - 1)


def _whole(
    own: Head, hidden_KH: torch.Tensor, targets_K: torch.Tensor, recipe: Recipe, reference: Reference | None
) -> grpo.Loss:
    """The same loss from the logits of all tokens."""

    def logits(of: Head, inputs_KH: torch.Tensor) -> torch.Tensor:
        whole_KV: torch.Tensor = of.module(inputs_KH).float() / (of.temperature or 1.0)
        return whole_KV

    reference_KV = None if reference is None else logits(reference.head, reference.hidden_KH).detach()
    return whole_loss(logits(own, hidden_KH), targets_K, _tokens(len(targets_K)), recipe, 11, reference_KV)


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(1, 9),
    vocabulary=st.integers(2, 40),
    chunk=st.integers(1, 10),
    bias=st.booleans(),
    refers=st.booleans(),
    temperature=st.sampled_from([0.0, 0.5, 1.0]),
    recipe=st.sampled_from([WEIGHED, Recipe(kl_coefficient=0.0, entropy_coefficient=0.0), Recipe()]),
)
def test_loss_and_gradients_in_chunks_are_those_of_all_logits_at_once(
    tokens: int, vocabulary: int, chunk: int, bias: bool, refers: bool, temperature: float, recipe: Recipe
) -> None:
    targets_K = torch.arange(tokens) % vocabulary
    reference = None
    if refers:
        reference = Reference(_head(vocabulary, 6, bias=bias, seed=5, temperature=temperature), _draw(6, tokens, 6))
    found = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(head.LOGITS_AT_ONCE, "cpu", chunk * vocabulary)
        for whole in (False, True):
            own, hidden_KH = _head(vocabulary, 6, bias=bias, temperature=temperature), _draw(3, tokens, 6)
            hidden_KH.requires_grad_()
            if whole:
                loss = _whole(own, hidden_KH, targets_K, recipe, reference)
            else:
                loss = head.loss(own, hidden_KH, targets_K, _tokens(tokens), recipe, 11, reference)
            (2 * loss.total).backward()
            assert hidden_KH.grad is not None
            found.append(
                [*(each.detach() for each in loss), hidden_KH.grad, *(p.grad for p in own.module.parameters())]
            )
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("logits", ["float32", "bfloat16"])
def test_a_bf16_heads_gradients_are_those_of_all_logits_at_once_within_its_rounding(logits: str) -> None:
    targets_K, found = torch.arange(9), []
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(head.LOGITS_AT_ONCE, "cpu", 4 * 40)
        for whole in (False, True):
            own = _head(40, 16, dtype=logits)
            own.module.bfloat16()
            hidden_KH = (_draw(3, 9, 16) / 4).bfloat16().requires_grad_()
            if whole:
                weight_VH = own.module.weight.to(own.dtype)
                logits_KV = torch.nn.functional.linear(hidden_KH.to(own.dtype), weight_VH).float()
                loss = whole_loss(logits_KV, targets_K, _tokens(9), WEIGHED, 9)
            else:
                loss = head.loss(own, hidden_KH, targets_K, _tokens(9), WEIGHED, 9)
            loss.total.backward()
            assert hidden_KH.grad is not None
            found.append([hidden_KH.grad, own.module.weight.grad])
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == torch.bfloat16
        apart = (ours.float() - theirs.float()).norm() / theirs.float().norm()
        assert apart < 0.02


def test_no_gradient_is_made_where_none_is_asked_for() -> None:
    own, hidden_KH = _head(5, 6), _draw(3, 4, 6)
    own.module.requires_grad_(False)
    loss = head.loss(own, hidden_KH, torch.zeros(4, dtype=torch.int64), _tokens(4), WEIGHED, 4)
    assert not loss.total.requires_grad


def test_entropy_and_divergence_survive_tokens_of_no_probability() -> None:
    own, reference = _head(3, 2, bias=True), _head(3, 2, bias=True, seed=9)
    hidden_KH = _draw(3, 2, 2).requires_grad_()
    for each in (own, reference):
        each.module.bias.data[2] = -math.inf
    loss = head.loss(
        own, hidden_KH, torch.tensor([0, 1]), _tokens(2), WEIGHED, 2, Reference(reference, hidden_KH.detach())
    )
    loss.total.backward()
    assert all(value.isfinite() for value in loss)
    assert hidden_KH.grad is not None
    assert hidden_KH.grad.isfinite().all()


def test_logits_have_the_format_of_the_rules_before_they_are_widened() -> None:
    own = _head(50, 6, dtype="bfloat16")
    hidden_KH, targets_K = _draw(3, 4, 6), torch.arange(4)
    logits_KV = torch.nn.functional.linear(hidden_KH.bfloat16(), own.module.weight.bfloat16()).float()
    expected_K = logits_KV.log_softmax(-1)[torch.arange(4), targets_K]
    assert torch.equal(own.taken(hidden_KH, targets_K), expected_K)
    assert not torch.equal(_head(50, 6).taken(hidden_KH, targets_K), expected_K)


def test_a_frozen_head_keeps_the_weights_that_its_module_loses() -> None:
    own = _head(5, 6, bias=True)
    hidden_KH, targets_K = _draw(3, 4, 6), torch.zeros(4, dtype=torch.int64)
    frozen, before_K = own.frozen(), own.taken(hidden_KH, targets_K)
    own.module.weight.data = torch.zeros(5, 6)
    assert torch.equal(frozen.taken(hidden_KH, targets_K), before_K)
    assert not torch.equal(own.taken(hidden_KH, targets_K), before_K)
