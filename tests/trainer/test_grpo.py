"""Two-sided clipped GRPO against values worked out by hand. Axes as in ``trainer.grpo``."""

from __future__ import annotations

import math

import pytest
import torch

from trainer import grpo
from trainer.config import Recipe
from trainer.grpo import Tokens, TokenScores

PLAIN = Recipe(epsilon=0.2, delta=4.0, kl_coefficient=0.0, entropy_coefficient=0.0)


def _surrogate(ratio: float, advantage: float) -> tuple[float, bool]:
    loss, clipped = grpo.clipped_surrogate(torch.tensor([[ratio]]), torch.tensor([[advantage]]), PLAIN)
    return loss.item(), bool(clipped.item())


def _scores(shift: float = 0.0) -> TokenScores:
    zeros_K = torch.zeros(5, dtype=torch.float64)
    return TokenScores(torch.tensor([-1.0, -2.0, -0.5, -3.0, -1.5], dtype=torch.float64) + shift, zeros_K, zeros_K)


def _tokens(scores: TokenScores, shift: float = 0.0, start_K: torch.Tensor | None = None) -> Tokens:
    advantages_K = torch.tensor([1.0, 1.0, 1.0, -0.5, -0.5], dtype=torch.float64)
    return Tokens(advantages_K, scores.logprobs_K.detach() + shift, start_K)


def test_advantages_are_centred_and_scaled_by_the_population_deviation() -> None:
    values_GS = grpo.advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    deviation = math.sqrt(3) / 4
    assert values_GS[0].tolist() == pytest.approx([0.75 / (deviation + 1e-4)] + [-0.25 / (deviation + 1e-4)] * 3)


def test_equal_rewards_give_no_advantage() -> None:
    assert grpo.advantages(torch.ones(2, 4)).abs().max() == 0


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.0, 2.0, -2.0, False),
        (1.1, 1.0, -1.1, False),
        (1.5, 1.0, -1.2, True),  # a good token already far likelier: bounded by 1 + epsilon
        (0.5, 1.0, -0.5, False),  # a good token grown unlikely keeps its gradient
        (0.5, -1.0, 0.8, True),  # a bad token already unlikely: bounded by 1 - epsilon
        (1.5, -1.0, 1.5, False),  # a bad token grown likely keeps its gradient
        (10.0, -1.0, 4.0, True),  # but not beyond delta: the second side
        (10.0, 1.0, -1.2, True),
    ],
)
def test_two_sided_clipping_by_hand(ratio: float, advantage: float, loss: float, clipped: bool) -> None:
    assert _surrogate(ratio, advantage) == (pytest.approx(loss), clipped)


@pytest.mark.parametrize("ratio", [0.3, 0.79, 0.81, 1.0, 1.19, 1.21, 3.9, 4.1, 50.0])
@pytest.mark.parametrize("advantage", [-1.5, 0.7])
def test_clipped_means_that_the_ratio_has_no_gradient(ratio: float, advantage: float) -> None:
    value = torch.tensor([[ratio]], requires_grad=True)
    loss, clipped = grpo.clipped_surrogate(value, torch.tensor([[advantage]]), PLAIN)
    loss.sum().backward()
    assert value.grad is not None
    assert bool(clipped.item()) == (value.grad.item() == 0.0)


def test_loss_is_the_sum_over_the_whole_steps_tokens() -> None:
    scores = _scores()
    loss = grpo.loss(scores, _tokens(scores), PLAIN, denominator=10)
    assert loss.total.item() == pytest.approx((3 * -1.0 + 2 * 0.5) / 10)
    assert (loss.tokens.item(), loss.clipped.item(), loss.ratio.item()) == (5, 0, pytest.approx(5))


def test_cutting_a_step_into_parts_does_not_change_its_gradient() -> None:
    scores = _scores()
    tokens = _tokens(scores, shift=0.1)

    def gradient(parts: list[slice]) -> torch.Tensor:
        leaf_K = scores.logprobs_K.clone().requires_grad_()
        for part in parts:
            zeros_K = torch.zeros_like(leaf_K[part])
            grpo.loss(TokenScores(leaf_K[part], zeros_K, zeros_K), tokens[part], Recipe(), 5).total.backward()
        assert leaf_K.grad is not None
        return leaf_K.grad

    assert torch.equal(gradient([slice(0, 5)]), gradient([slice(0, 2), slice(2, 5)]))


def test_ratio_is_to_the_policy_that_made_the_rollout() -> None:
    scores = _scores()
    loss = grpo.loss(scores, _tokens(scores, shift=-math.log(1.1)), PLAIN, 5)
    assert loss.ratio.item() / 5 == pytest.approx(1.1)
    assert loss.total.item() == pytest.approx((3 * -1.1 + 2 * 0.5 * 1.1) / 5)


def test_decoupled_ratio_is_to_the_start_and_weighted_up_to_two_without_gradient() -> None:
    start_K = _scores().logprobs_K
    for shift, weight in ((math.log(1.5), 1.5), (math.log(5.0), 2.0)):
        tokens = _tokens(_scores(), -shift, start_K)
        ratio_K, weight_K = grpo.ratios(start_K.clone().requires_grad_(), tokens)
        assert isinstance(weight_K, torch.Tensor)
        assert weight_K.tolist() == pytest.approx([weight] * 5)
        assert ratio_K.tolist() == pytest.approx([1.0] * 5)
        assert not weight_K.requires_grad


def test_ratio_of_the_unthinkable_stays_finite() -> None:
    scores = _scores()
    assert grpo.loss(scores, _tokens(scores, shift=-1000.0), PLAIN, 5).total.isfinite()


def test_entropy_lowers_the_loss_and_divergence_raises_it() -> None:
    scores = _scores()
    ones_K = torch.ones_like(scores.logprobs_K)
    weighed = Recipe(kl_coefficient=0.3, entropy_coefficient=0.1)
    plain = grpo.loss(scores, _tokens(scores), weighed, 5).total
    spread = grpo.loss(scores._replace(entropy_K=ones_K), _tokens(scores), weighed, 5).total
    far = grpo.loss(scores._replace(kl_K=ones_K), _tokens(scores), weighed, 5).total
    assert (plain - spread).item() == pytest.approx(0.1)
    assert (far - plain).item() == pytest.approx(0.3)
