"""Each loss beside the few lines in which its paper has it, one token or rollout at a time; values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainer.config import Recipe
from trainer.losses import LOSSES, OF_ROLLOUTS, Tokens, of_rollouts, surrogate

LENGTHS = (1, 4, 2, 7, 3)
RECIPE = {"epsilon": 0.2, "delta": 4.0, "shift": 0.2}


def _two_sided(now: Tensor, start: Tensor, made: Tensor, advantage: float) -> Tensor:
    ratio = (now - made).exp()
    return torch.maximum(-ratio.clamp(max=4.0) * advantage, -ratio.clamp(0.8, 1.2) * advantage)


def _decoupled(now: Tensor, start: Tensor, made: Tensor, advantage: float) -> Tensor:
    return min(float((start - made).exp()), 2.0) * _two_sided(now, start, start, advantage)


def _dppo(now: Tensor, start: Tensor, made: Tensor, advantage: float) -> Tensor:
    moved = float(now.detach().exp() - made.exp())
    too_far = (advantage > 0 and moved > 0.2) or (advantage < 0 and moved < -0.2)
    return now * 0.0 if too_far else -(now - made).exp() * advantage


def _icepop(now: Tensor, start: Tensor, made: Tensor, advantage: float) -> Tensor:
    weight, ratio = float((start - made).exp()), (now - start).exp()
    if not 0.5 <= weight <= 5.0:
        return now * 0.0
    return -weight * torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)


def _cispo(now: Tensor, start: Tensor, made: Tensor, advantage: float) -> Tensor:
    return -min(float((now.detach() - made).exp()), 4.0) * advantage * now


TOKENS: dict[str, Callable[[Tensor, Tensor, Tensor, float], Tensor]] = {
    "two-sided": _two_sided,
    "decoupled": _decoupled,
    "dppo": _dppo,
    "icepop": _icepop,
    "cispo": _cispo,
}


def _gspo(now_R: list[Tensor], made_R: list[Tensor], advantages: list[float]) -> Tensor:
    """The objective over rollouts, each of which counts by its length, as all losses here do."""
    total = torch.zeros((), dtype=torch.float64)
    for now, made, advantage in zip(now_R, made_R, advantages, strict=True):
        ratio = (now - made).mean().exp()
        total = total - len(now) * torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    return total


def _drawn(seed: int) -> tuple[Tensor, Tensor, Tensor, list[float]]:
    """Logprobs now, at the start and when made, of tokens that moved little or much, and advantages of rollouts."""
    generator = torch.Generator().manual_seed(seed)
    made = -4 * torch.rand(sum(LENGTHS), generator=generator, dtype=torch.float64)
    apart = (torch.randn(2, sum(LENGTHS), generator=generator, dtype=torch.float64) * 0.8).clamp(-3, 3)
    start = (made + apart[0]).clamp(max=-1e-3)
    advantages = torch.randn(len(LENGTHS), generator=generator, dtype=torch.float64)
    return (start + apart[1]).clamp(max=-1e-3), start, made, advantages.tolist()


def _ours(name: str, seed: int) -> tuple[Tensor, Tensor]:
    now, start, made, advantages = _drawn(seed)
    rollout_K = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS))
    tokens = Tokens(torch.tensor(advantages, dtype=torch.float64)[rollout_K], made, start)
    if name in OF_ROLLOUTS:
        tokens = of_rollouts(tokens, now, rollout_K)
    leaf = now.clone().requires_grad_()
    total = surrogate(leaf, tokens, Recipe.model_validate(RECIPE | {"loss": name})).loss_K.sum()
    return total, torch.autograd.grad(total, leaf)[0]


@pytest.mark.parametrize("name", TOKENS)
@given(seed=st.integers(0, 10_000))
def test_a_loss_of_tokens_is_that_of_its_paper(name: str, seed: int) -> None:
    now, start, made, advantages = _drawn(seed)
    each = [advantage for advantage, length in zip(advantages, LENGTHS, strict=True) for _ in range(length)]
    leaf = now.clone().requires_grad_()
    total = torch.stack([TOKENS[name](*of, each[k]) for k, of in enumerate(zip(leaf, start, made, strict=True))]).sum()
    ours, gradient = _ours(name, seed)
    assert torch.allclose(ours, total, rtol=0, atol=1e-9)
    assert torch.allclose(gradient, torch.autograd.grad(total, leaf)[0], rtol=0, atol=1e-9)


@given(seed=st.integers(0, 10_000))
def test_the_loss_of_whole_rollouts_is_that_of_its_paper(seed: int) -> None:
    now, _, made, advantages = _drawn(seed)
    leaf = now.clone().requires_grad_()
    total = _gspo(list(leaf.split(LENGTHS)), list(made.split(LENGTHS)), advantages)
    ours, gradient = _ours("gspo", seed)
    assert torch.allclose(ours, total, rtol=0, atol=1e-9)
    assert torch.allclose(gradient, torch.autograd.grad(total, leaf)[0], rtol=0, atol=1e-9)


def test_every_loss_has_its_paper_beside_it_and_a_name_in_the_recipe() -> None:
    assert {*TOKENS, *OF_ROLLOUTS} == set(LOSSES)
    for name in LOSSES:
        assert Recipe.model_validate({"loss": name}).loss == name


def test_what_is_cut_off_is_counted() -> None:
    now, start, made = (torch.tensor([value]).log() for value in (0.9, 0.5, 0.1))
    tokens = Tokens(torch.tensor([1.0]), made, start)
    for name in LOSSES:
        assert surrogate(now, tokens, Recipe.model_validate(RECIPE | {"loss": name})).clipped_K.item(), name
