"""The policy: its logprobs, its steps, its past versions and its resumption."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from protocol.environments.arithmetic import Arithmetic
from protocol.tensor.model import load_model
from protocol.wire.rules import Rules
from tests.coordinator.swarm import RULES
from tests.trainer.movement import group_of, moved, packed_by, stepped
from tests.trainer.padded import padded_loss, rows_of
from trainer import checkpoint
from trainer.batch import Group, micro_batches
from trainer.config import Recipe
from trainer.evaluate import evaluate
from trainer.losses import LOSSES
from trainer.policy import Policy

RECIPE = Recipe.builtin(learning_rate=1e-2, gain_rate=1.0, warmup_steps=0)
GOOD, BAD = (9, 10, 11, 1), (12, 13, 1)


BF16 = RULES.model_copy(update={"model": RULES.model.model_copy(update={"dtype": "bfloat16"})})


def groups_of(version: int = 0) -> list[Group]:
    return [group_of(0, job, (5, 6 + job), (GOOD, BAD), (1.0, 0.0), version=version) for job in range(2)]


def policy_of(directory: Path, rules: Rules = RULES, **changes: object) -> Policy:
    torch.set_num_threads(1)
    return Policy(directory, Recipe.model_validate({**RECIPE.model_dump(), **changes}), rules)


def _logprob(policy: Policy, completion: tuple[int, ...]) -> float:
    tokens = torch.tensor([(5, 6, *completion)])
    with torch.no_grad():
        logprobs = policy.network(input_ids=tokens).logits.log_softmax(-1)[0, 1:-1]
    return logprobs.gather(-1, tokens[0, 2:, None]).sum().item()


def test_a_step_makes_the_rewarded_likelier_and_the_other_less_likely(model_directory: Path) -> None:
    policy = policy_of(model_directory)
    good, bad = _logprob(policy, GOOD), _logprob(policy, BAD)
    record = stepped(policy, groups_of())
    assert _logprob(policy, GOOD) > good
    assert _logprob(policy, BAD) < bad
    assert policy.version == 1
    assert (record.tokens, record.skipped, record.staleness) == (14, 0, 0.0)
    assert record.gradient_norm > 0
    assert 0 < record.entropy < math.log(64)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_makes_the_rewarded_likelier_and_takes_rollouts_of_an_earlier_version(
    model_directory: Path, loss: str
) -> None:
    policy = policy_of(model_directory, loss=loss, advantages="centred")
    first, good, bad = policy.weights(), _logprob(policy, GOOD), _logprob(policy, BAD)
    policy.train(policy.weigh(groups_of()))
    assert _logprob(policy, GOOD) > good
    assert _logprob(policy, BAD) < bad
    record = policy.train(policy.weigh(groups_of(), first))
    assert (record.skipped, record.staleness) == (0, 1.0)
    assert math.isfinite(record.loss)


def test_logprobs_of_packed_rollouts_equal_those_of_single_ones(model_directory: Path) -> None:
    policy = policy_of(model_directory)
    (group,) = policy.weigh([group_of(0, 0, (5, 6), (GOOD, BAD, GOOD[:2]), (1.0, 0.0, 0.0))])
    assert group.behaviour is not None
    sums = [float(logprobs.sum()) for logprobs in group.behaviour]
    assert sums == pytest.approx([_logprob(policy, each) for each in (GOOD, BAD, GOOD[:2])], abs=1e-5)


def test_ratio_of_a_stale_rollout_is_to_the_version_that_made_it(model_directory: Path) -> None:
    policy = policy_of(model_directory)
    first = policy.weights()
    stepped(policy, groups_of())
    record = stepped(policy, groups_of(), 1, first)
    assert record.staleness == 1.0
    assert abs(record.ratio - 1.0) > 1e-3
    fresh = stepped(policy_of(model_directory), groups_of(), 1)
    assert fresh.ratio == pytest.approx(1.0, abs=1e-5)


def test_logprobs_under_stored_weights_are_those_of_the_version_and_leave_the_policy_alone(
    model_directory: Path, tmp_path: Path
) -> None:
    policy = policy_of(model_directory)
    (before,) = policy.weigh(groups_of()[:1])
    policy.save_weights(tmp_path / "version-0", {})
    stepped(policy, groups_of())
    present = policy.weights()
    (after,) = policy.weigh(groups_of()[:1], policy.model.stored_weights(tmp_path / "version-0"))
    assert before.behaviour is not None
    assert after.behaviour is not None
    assert all((one == other).all() for one, other in zip(before.behaviour, after.behaviour, strict=True))
    assert all(torch.equal(tensor, policy.weights()[name]) for name, tensor in present.items())


def test_rollouts_of_several_versions_share_a_micro_batch(model_directory: Path) -> None:
    policy = policy_of(model_directory)
    (old,) = policy.weigh(groups_of()[:1])
    stepped(policy, groups_of())
    (new,) = policy.weigh(groups_of(1)[1:])
    ((batch,),) = micro_batches([old, new], packed_by(1, 1000))
    assert policy.step([[batch]]).staleness == pytest.approx(0.5)


def test_logprobs_are_taken_at_the_temperature_of_the_rules(model_directory: Path) -> None:
    policy = policy_of(model_directory)
    hot = Policy(model_directory, RECIPE, RULES.model_copy(update={"temperature": 0.5}))
    (group,) = hot.weigh([group_of(0, 0, (5, 6), (GOOD, BAD), (1.0, 0.0))])
    tokens_1T = torch.tensor([(5, 6, *GOOD)])
    with torch.no_grad():
        logprobs_TV = (policy.network(input_ids=tokens_1T).logits[0, 1:-1] / 0.5).log_softmax(-1)
    expected = logprobs_TV.gather(-1, tokens_1T[0, 2:, None])[:, 0].tolist()
    assert group.behaviour is not None
    assert group.behaviour[0].tolist() == pytest.approx(expected, abs=1e-5)


def test_a_gradient_that_is_not_finite_skips_the_optimizer_step_and_not_the_run(model_directory: Path) -> None:
    policy = policy_of(model_directory)
    before = policy.weights()
    poisoned = [
        [
            replace(batch, tokens=replace(batch.tokens, advantages_K=batch.tokens.advantages_K * math.nan))
            for batch in part
        ]
        for part in micro_batches(policy.weigh(groups_of()), packed_by(2, 64))
    ]
    record = policy.step(poisoned)
    assert record.skipped == 2
    assert policy.version == 1
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.weights().items())
    assert stepped(policy, groups_of(1)).skipped == 0


def test_gains_learn_at_their_own_rate(model_directory: Path) -> None:
    policy = policy_of(model_directory, gain_rate=0.0)
    before = policy.weights()
    stepped(policy, groups_of())
    moved = {name for name, tensor in policy.weights().items() if not torch.equal(tensor, before[name])}
    assert moved == {name for name, tensor in before.items() if tensor.dim() > 1}


def test_kl_holds_the_policy_to_checkpoint_zero(model_directory: Path) -> None:
    free, held = policy_of(model_directory), policy_of(model_directory, kl_coefficient=10.0)
    for version in range(4):
        stepped(free, groups_of(version))
        record = stepped(held, groups_of(version))
    assert record.kl > 0
    start = policy_of(model_directory)

    def drift(policy: Policy) -> float:
        return abs(_logprob(policy, GOOD) - _logprob(start, GOOD))

    assert drift(held) < drift(free)


def test_decoupled_ratio_starts_each_step_at_one(model_directory: Path) -> None:
    policy = policy_of(model_directory, loss="decoupled")
    first = policy.weights()
    stepped(policy, groups_of())
    assert stepped(policy, groups_of(), 1, first).ratio == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("rules", [RULES, BF16], ids=["fp32", "bf16"])
def test_a_resumed_policy_goes_on_bit_for_bit(
    model_directory: Path, tmp_path: Path, rules: Rules, optimizer: str
) -> None:
    policy = policy_of(model_directory, rules, kl_coefficient=0.01, optimizer=optimizer)
    stepped(policy, groups_of())
    checkpoint.save(tmp_path / "state", policy.state_dict())
    resumed = policy_of(model_directory, rules, kl_coefficient=0.01, optimizer=optimizer)
    resumed.load_state_dict(checkpoint.load(tmp_path / "state"))
    first, second = stepped(policy, groups_of(1)), stepped(resumed, groups_of(1))
    assert first == second
    assert all(torch.equal(tensor, resumed.weights()[name]) for name, tensor in policy.weights().items())


def test_muon_steps_the_matrices_of_the_layers_and_nothing_else(model_directory: Path) -> None:
    adamw, muon = (policy_of(model_directory, optimizer=name, learning_rate=1e-3) for name in ("adamw", "muon"))
    before = muon.weights()
    for policy in (adamw, muon):
        stepped(policy, groups_of(), optimizer_steps=1)
    for name, weights in muon.weights().items():
        of_layer = ".layers." in name and weights.dim() == 2
        assert torch.equal(weights, adamw.weights()[name]) != of_layer, name
        if of_layer:
            size = (weights - before[name]).square().mean().sqrt().item()
            assert 0 < size < 2e-3, "of the size of AdamW's steps"


def test_a_bf16_run_at_a_low_rate_moves_as_far_as_an_fp32_run(model_directory: Path) -> None:
    full, half = (policy_of(model_directory, rules, learning_rate=3e-7) for rules in (RULES, BF16))
    assert moved(half, groups_of, 8) >= 0.95 * moved(full, groups_of, 8)


def test_a_bf16_run_computes_with_the_bits_that_it_publishes(model_directory: Path, tmp_path: Path) -> None:
    policy = policy_of(model_directory, BF16, learning_rate=1e-4)
    stepped(policy, groups_of())
    masters = dict(zip(policy.weights(), policy.masters.parameters(), strict=True))
    policy.save_weights(tmp_path / "version-1", {})
    published = load_model(tmp_path / "version-1", torch.bfloat16).weights()
    for name, kept in policy.weights().items():
        assert torch.equal(kept, published[name])
        assert torch.equal(kept, masters[name].bfloat16())
    assert any(not torch.equal(masters[name], kept.float()) for name, kept in published.items())


def test_a_bf16_policy_that_goes_back_starts_from_the_published_bits(model_directory: Path) -> None:
    policy, fresh = (policy_of(model_directory, BF16, final_rate=1.0) for _ in range(2))
    stepped(policy, groups_of())
    policy.adopt(0, model_directory)
    assert stepped(policy, groups_of()) == stepped(fresh, groups_of())
    assert all(torch.equal(tensor, fresh.weights()[name]) for name, tensor in policy.weights().items())


def test_saved_weights_load_as_the_model_they_were(model_directory: Path, tmp_path: Path) -> None:
    policy = policy_of(model_directory)
    stepped(policy, groups_of())
    policy.save_weights(tmp_path / "version-1", {})
    loaded = load_model(tmp_path / "version-1", torch.float32)
    assert all(torch.equal(tensor, loaded.weights()[name]) for name, tensor in policy.weights().items())
    assert loaded.text_tokens("1+1\n") == policy.model.text_tokens("1+1\n")
    assert [path.name for path in tmp_path.iterdir()] == ["version-1"]


def test_accuracy_is_the_same_for_the_same_seed(model_directory: Path) -> None:
    model = load_model(model_directory, torch.float32)
    first, second = (evaluate(model, Arithmetic(3), RULES, 4, count=16) for _ in range(2))
    assert first == second
    assert first.accuracy == 0.0
    assert first.prompt == Arithmetic(3).held_out_problems(16, 4)[0].prompt


RAGGED = [
    group_of(0, 0, (5, 6, 7), (GOOD, BAD, GOOD[:2], (9, 10, 1)), (1.0, 0.0, 0.5, 0.0)),
    group_of(0, 1, (5, 6), ((9,), (1,), GOOD), (0.0, 1.0, 0.0), version=1),
    group_of(1, 0, (8,), (BAD, GOOD), (1.0, 0.0), version=2),
]


@pytest.mark.parametrize("checkpointed", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("most", [1000, 6], ids=["one pack", "many packs"])
def test_a_packed_step_has_the_loss_and_the_gradients_of_padded_rows(
    model_directory: Path, most: int, checkpointed: bool
) -> None:
    weighed = {"kl_coefficient": 0.1, "entropy_coefficient": 0.01}
    policy = policy_of(model_directory, checkpoint_activations=checkpointed, **weighed)
    reference, padded = (load_model(model_directory, torch.float32).network for _ in range(2))
    stepped(policy, groups_of())  # away from checkpoint 0, to which the divergence is zero
    padded.load_state_dict(policy.network.state_dict())
    groups = policy.weigh(RAGGED)
    groups = [
        replace(group, behaviour=tuple(each + group.version / 8 for each in group.behaviour or ())) for group in groups
    ]
    (batches,) = micro_batches(groups, packed_by(1, most))
    policy.optimizer.zero_grad()
    count = sum(batch.completion_tokens for batch in batches)
    total = sum(policy._backward(batch, batch.tokens, count).total.item() for batch in batches)
    expected = padded_loss(padded, rows_of(groups), policy.recipe, RULES.temperature, count, reference)
    expected.total.backward()  # type: ignore[no-untyped-call]
    assert total == pytest.approx(expected.total.item(), abs=1e-6)
    for (name, one), other in zip(policy.network.named_parameters(), padded.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4, msg=name)
