"""Two-sided clipped GRPO against values worked out by hand. Axes as in ``trainer.grpo``."""

from __future__ import annotations

import math

import pytest
import torch

from trainer import grpo
from trainer.config import Recipe
from trainer.grpo import Tokens

PLAIN = Recipe(epsilon=0.2, delta=4.0, kl_coefficient=0.0, entropy_coefficient=0.0)


def _surrogate(ratio: float, advantage: float) -> tuple[float, bool]:
    loss, clipped = grpo.clipped_surrogate(torch.tensor([[ratio]]), torch.tensor([[advantage]]), PLAIN)
    return loss.item(), bool(clipped.item())


def _logits(rows: int = 2, positions: int = 3, vocabulary: int = 5, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, positions, vocabulary, generator=generator, dtype=torch.float64)


def _tokens(logits_BTV: torch.Tensor, shift: float = 0.0, **changes: torch.Tensor | None) -> Tokens:
    targets_BT = torch.tensor([[0, 1, 2], [3, 4, 0]])
    behaviour_BT = grpo.taken(logits_BTV.log_softmax(-1), targets_BT).detach() + shift
    values = {
        "targets_BT": targets_BT,
        "mask_BT": torch.tensor([[True, True, True], [True, True, False]]),
        "advantages_B": torch.tensor([1.0, -0.5], dtype=torch.float64),
        "behaviour_BT": behaviour_BT,
    }
    return Tokens(**{**values, **changes})  # type: ignore[arg-type]


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


def test_logprobs_divide_by_the_temperature_and_greedy_counts_as_one() -> None:
    logits_BTV = torch.tensor([[[0.0, 2.0]]])
    assert grpo.logprobs(logits_BTV, 2.0)[0, 0, 1].item() == pytest.approx(-math.log(1 + math.exp(-1)))
    assert torch.equal(grpo.logprobs(logits_BTV, 0.0), grpo.logprobs(logits_BTV, 1.0))
    assert grpo.logprobs(logits_BTV.bfloat16(), 1.0).dtype == torch.float32


def test_loss_is_the_masked_sum_over_the_whole_steps_tokens() -> None:
    logits_BTV = _logits()
    loss = grpo.loss(logits_BTV.log_softmax(-1), _tokens(logits_BTV), PLAIN, denominator=10)
    assert loss.total.item() == pytest.approx((3 * -1.0 + 2 * 0.5) / 10)
    assert (loss.tokens.item(), loss.clipped.item(), loss.ratio.item()) == (5, 0, pytest.approx(5))


def test_masked_positions_neither_count_nor_carry_a_gradient() -> None:
    logits_BTV = _logits().requires_grad_()
    objective = Recipe(kl_coefficient=0.1, entropy_coefficient=0.1)
    tokens = _tokens(logits_BTV, reference_BTV=_logits(seed=1).log_softmax(-1))
    grpo.loss(logits_BTV.log_softmax(-1), tokens, objective, 5).total.backward()
    assert logits_BTV.grad is not None
    assert logits_BTV.grad[1, 2].abs().max() == 0
    assert (logits_BTV.grad.abs().sum(-1) > 0).sum() == 5


def test_poison_at_a_masked_position_stays_there() -> None:
    logits_BTV = _logits()
    tokens = _tokens(logits_BTV)
    tokens.behaviour_BT[1, 2] = float("nan")
    assert grpo.loss(logits_BTV.log_softmax(-1), tokens, PLAIN, 5).total.isfinite()


def test_cutting_a_step_into_micro_batches_does_not_change_its_gradient() -> None:
    logits_BTV = _logits()
    tokens = _tokens(logits_BTV, shift=0.1)

    def gradient(parts: list[slice]) -> torch.Tensor:
        leaf = logits_BTV.clone().requires_grad_()
        for part in parts:
            piece = Tokens(
                tokens.targets_BT[part], tokens.mask_BT[part], tokens.advantages_B[part], tokens.behaviour_BT[part]
            )
            grpo.loss(leaf.log_softmax(-1)[part], piece, Recipe(), 5).total.backward()
        assert leaf.grad is not None
        return leaf.grad

    assert torch.allclose(gradient([slice(0, 2)]), gradient([slice(0, 1), slice(1, 2)]))


def test_ratio_is_to_the_policy_that_made_the_rollout() -> None:
    logits_BTV = _logits()
    loss = grpo.loss(logits_BTV.log_softmax(-1), _tokens(logits_BTV, shift=-math.log(1.1)), PLAIN, 5)
    assert loss.ratio.item() / 5 == pytest.approx(1.1)
    assert loss.total.item() == pytest.approx((3 * -1.1 + 2 * 0.5 * 1.1) / 5)


def test_decoupled_ratio_is_to_the_start_and_weighted_up_to_two_without_gradient() -> None:
    logits_BTV = _logits()
    start_BT = grpo.taken(logits_BTV.log_softmax(-1), _tokens(logits_BTV).targets_BT)
    for shift, weight in ((math.log(1.5), 1.5), (math.log(5.0), 2.0)):
        tokens = _tokens(logits_BTV, shift=-shift, start_BT=start_BT)
        policy_BT = start_BT.clone().requires_grad_()
        ratio_BT, weight_BT = grpo.ratios(policy_BT, tokens)
        assert isinstance(weight_BT, torch.Tensor)
        assert weight_BT.tolist()[0] == pytest.approx([weight] * 3)
        assert ratio_BT.tolist()[0] == pytest.approx([1.0] * 3)
        assert not weight_BT.requires_grad


def test_ratio_of_the_unthinkable_stays_finite() -> None:
    logits_BTV = _logits()
    loss = grpo.loss(logits_BTV.log_softmax(-1), _tokens(logits_BTV, shift=-1000.0), PLAIN, 5)
    assert loss.total.isfinite()


def test_kl_is_exact_over_the_vocabulary() -> None:
    policy, reference = torch.tensor([0.5, 0.5]).log(), torch.tensor([0.25, 0.75]).log()
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert grpo.kl_divergence(policy, reference).item() == pytest.approx(expected)
    assert grpo.kl_divergence(policy, policy).item() == 0.0


def test_kl_has_the_gradient_of_the_definition() -> None:
    logits_BTV, reference_BTV = _logits().requires_grad_(), _logits(seed=1).log_softmax(-1)
    grpo.kl_divergence(logits_BTV.log_softmax(-1), reference_BTV).sum().backward()
    policy_BTV = logits_BTV.detach().log_softmax(-1)
    gap_BTV = policy_BTV - reference_BTV
    kl_BT1 = (policy_BTV.exp() * gap_BTV).sum(-1, keepdim=True)
    assert logits_BTV.grad is not None
    assert torch.allclose(logits_BTV.grad, policy_BTV.exp() * (gap_BTV - kl_BT1))
    assert logits_BTV.grad.abs().max() > 0.01


def test_kl_and_entropy_survive_tokens_of_no_probability() -> None:
    logprobs = torch.tensor([0.0, -math.inf]).requires_grad_()
    assert grpo.entropy(logprobs).item() == 0.0
    assert grpo.kl_divergence(logprobs, torch.tensor([0.0, -math.inf])).item() == 0.0


def test_entropy_is_exact_and_its_bonus_lowers_the_loss() -> None:
    uniform_BTV = torch.zeros(2, 3, 5, dtype=torch.float64).log_softmax(-1)
    assert grpo.entropy(uniform_BTV)[0, 0].item() == pytest.approx(math.log(5))
    objective = Recipe(kl_coefficient=0.0, entropy_coefficient=0.1)
    plain = grpo.loss(uniform_BTV, _tokens(uniform_BTV), PLAIN, 5)
    bonus = grpo.loss(uniform_BTV, _tokens(uniform_BTV), objective, 5)
    assert (plain.total - bonus.total).item() == pytest.approx(0.1 * math.log(5))


def test_gradient_of_the_whole_loss_agrees_with_finite_differences() -> None:
    logits_BTV = _logits()
    tokens = _tokens(logits_BTV, shift=0.05, reference_BTV=_logits(seed=2).log_softmax(-1))
    objective = Recipe(kl_coefficient=0.3, entropy_coefficient=0.2)

    def total(leaf: torch.Tensor) -> torch.Tensor:
        return grpo.loss(leaf.log_softmax(-1), tokens, objective, 5).total

    assert torch.autograd.gradcheck(total, (logits_BTV.clone().requires_grad_(),))
