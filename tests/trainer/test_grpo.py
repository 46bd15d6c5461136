"""GRPO with the two-sided loss against values worked out by hand. Axes as in ``trainer.grpo``."""

from __future__ import annotations

import math

import pytest
import torch

from trainer import grpo
from trainer.config import Recipe
from trainer.grpo import TokenScores
from trainer.losses import Tokens, surrogate

PLAIN = Recipe(epsilon=0.2, delta=4.0, kl_coefficient=0.0, entropy_coefficient=0.0)


def _surrogate(ratio: float, advantage: float) -> tuple[float, bool]:
    tokens = Tokens(torch.tensor([advantage]), torch.zeros(1))
    found = surrogate(torch.tensor([ratio]).log(), tokens, PLAIN)
    return found.loss_K.item(), bool(found.clipped_K.item())


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


def test_advantages_that_are_only_centred_keep_their_scale() -> None:
    assert grpo.advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), standardised=False)[0].tolist() == [0.75] + [-0.25] * 3


def test_equal_rewards_give_no_advantage() -> None:
    for standardised in (True, False):
        assert grpo.advantages(torch.ones(2, 4), standardised).abs().max() == 0


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
    policy_K = torch.tensor([ratio]).log().requires_grad_()
    found = surrogate(policy_K, Tokens(torch.tensor([advantage]), torch.zeros(1)), PLAIN)
    found.loss_K.sum().backward()
    assert policy_K.grad is not None
    assert bool(found.clipped_K.item()) == (policy_K.grad.item() == 0.0)


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
