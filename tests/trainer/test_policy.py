"""The policy: its logprobs, its steps, its past versions and its resumption."""

from __future__ import annotations

import math
from itertools import chain
from pathlib import Path

import pytest
import torch

from protocol.environments.arithmetic import Arithmetic
from protocol.errors import Misconfigured
from protocol.tensor.model import load_model
from protocol.wire.rules import Rules
from tests.coordinator.swarm import RULES
from tests.trainer.movement import moved
from trainer.batch import Group, MicroBatch, pack
from trainer.config import Recipe
from trainer.evaluate import accuracy
from trainer.policy import Policy

RECIPE = Recipe.builtin(learning_rate=1e-2, gain_rate=1.0, warmup_steps=0)
GOOD, BAD = (9, 10, 11, 1), (12, 13, 1)


BF16 = RULES.model_copy(update={"model": RULES.model.model_copy(update={"dtype": "bfloat16"})})


def batches_of(version: int = 0, rewards: tuple[float, ...] = (1.0, 0.0)) -> list[list[MicroBatch]]:
    groups = [Group(0, job, 0, version, (5, 6 + job), (GOOD, BAD), rewards) for job in range(2)]
    return pack(groups, 2, 64)


def _joined(batches: list[list[MicroBatch]]) -> list[MicroBatch]:
    return list(chain.from_iterable(batches))


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
    record = policy.step(batches_of())
    assert _logprob(policy, GOOD) > good
    assert _logprob(policy, BAD) < bad
    assert policy.version == 1
    assert (record.tokens, record.skipped, record.staleness) == (14, 0, 0.0)
    assert record.gradient_norm > 0
    assert 0 < record.entropy < math.log(64)


def test_logprobs_of_padded_rows_equal_those_of_single_rows(model_directory: Path) -> None:
    policy = policy_of(model_directory)
    rows = {GOOD: 1.0, BAD: 0.0}
    ((batch,),) = pack([Group(0, 0, 0, 0, (5, 6), tuple(rows), tuple(rows.values()))], 1, 1000)
    with torch.no_grad():
        logprobs_BK = policy._logprobs(batch).gather(-1, batch.targets_BK[..., None])[..., 0]
    sums = logprobs_BK.masked_fill(~batch.mask_BK, 0.0).sum(-1).tolist()
    assert sums == pytest.approx([_logprob(policy, BAD), _logprob(policy, GOOD)], abs=1e-5)


def test_ratio_of_a_stale_rollout_is_to_the_version_that_made_it(model_directory: Path) -> None:
    policy = policy_of(model_directory, optimizer_steps=1)
    policy.step(batches_of())
    record = policy.step([_joined(batches_of())])
    assert record.staleness == 1.0
    assert abs(record.ratio - 1.0) > 1e-3
    fresh = policy_of(model_directory).step([_joined(batches_of())])
    assert fresh.ratio == pytest.approx(1.0, abs=1e-5)


def test_versions_beyond_the_async_level_are_forgotten_and_refused(model_directory: Path) -> None:
    policy = policy_of(model_directory)
    for version in range(2):
        policy.step(batches_of(version))
    assert sorted(policy.kept) == [1, 2]
    with pytest.raises(Misconfigured, match="version 0 are not kept"):
        policy.step(batches_of(0))


def test_logprobs_are_taken_at_the_temperature_of_the_rules(model_directory: Path) -> None:
    ((batch,),) = pack([Group(0, 0, 0, 0, (5, 6), (GOOD, BAD), (1.0, 0.0))], 1, 1000)
    policy = policy_of(model_directory)
    hot = Policy(model_directory, RECIPE, RULES.model_copy(update={"temperature": 0.5}))
    with torch.no_grad():
        logits = policy.network(input_ids=batch.tokens_BT[:, :-1], logits_to_keep=batch.tokens_BT.shape[1] - 2).logits
        torch.testing.assert_close(hot._logprobs(batch), (logits / 0.5).log_softmax(-1))


def test_a_gradient_that_is_not_finite_skips_the_optimizer_step_and_not_the_run(model_directory: Path) -> None:
    policy = policy_of(model_directory)
    before = policy.weights()
    batches = batches_of()
    poisoned = [
        [
            MicroBatch(b.version, b.tokens_BT, b.first, b.mask_BK, torch.full_like(b.advantages_B, math.nan))
            for b in part
        ]
        for part in batches
    ]
    record = policy.step(poisoned)
    assert record.skipped == 2
    assert policy.version == 1
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.weights().items())
    assert policy.step(batches_of(1)).skipped == 0


def test_gains_learn_at_their_own_rate(model_directory: Path) -> None:
    policy = policy_of(model_directory, gain_rate=0.0)
    before = policy.weights()
    policy.step(batches_of())
    moved = {name for name, tensor in policy.weights().items() if not torch.equal(tensor, before[name])}
    assert moved == {name for name, tensor in before.items() if tensor.dim() > 1}


def test_kl_holds_the_policy_to_checkpoint_zero(model_directory: Path) -> None:
    free, held = policy_of(model_directory), policy_of(model_directory, kl_coefficient=10.0)
    for version in range(4):
        free.step(batches_of(version))
        record = held.step(batches_of(version))
    assert record.kl > 0
    start = policy_of(model_directory)

    def drift(policy: Policy) -> float:
        return abs(_logprob(policy, GOOD) - _logprob(start, GOOD))

    assert drift(held) < drift(free)


def test_decoupled_ratio_starts_each_step_at_one(model_directory: Path) -> None:
    policy = policy_of(model_directory, ratio="decoupled", optimizer_steps=1)
    policy.step(batches_of())
    assert policy.step([_joined(batches_of())]).ratio == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("rules", [RULES, BF16], ids=["fp32", "bf16"])
def test_a_resumed_policy_goes_on_bit_for_bit(model_directory: Path, tmp_path: Path, rules: Rules) -> None:
    policy = policy_of(model_directory, rules, kl_coefficient=0.01)
    policy.step(batches_of())
    torch.save(policy.state_dict(), tmp_path / "state.pt")
    resumed = policy_of(model_directory, rules, kl_coefficient=0.01)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    first, second = policy.step(batches_of(1)), resumed.step(batches_of(1))
    assert first == second
    assert all(torch.equal(tensor, resumed.weights()[name]) for name, tensor in policy.weights().items())


def test_a_bf16_run_at_a_low_rate_moves_as_far_as_an_fp32_run(model_directory: Path) -> None:
    full, half = (policy_of(model_directory, rules, learning_rate=3e-7) for rules in (RULES, BF16))
    assert moved(half, batches_of, 8) >= 0.95 * moved(full, batches_of, 8)


def test_a_bf16_run_computes_with_the_bits_that_it_publishes(model_directory: Path, tmp_path: Path) -> None:
    policy = policy_of(model_directory, BF16, learning_rate=1e-4)
    policy.step(batches_of())
    masters = dict(zip(policy.weights(), policy.masters.parameters(), strict=True))
    policy.save_weights(tmp_path / "version-1")
    published = load_model(tmp_path / "version-1", torch.bfloat16).weights()
    for name, kept in policy.kept[1].items():
        assert torch.equal(kept, published[name])
        assert torch.equal(kept, masters[name].bfloat16())
    assert any(not torch.equal(masters[name], kept.float()) for name, kept in published.items())


def test_a_bf16_policy_that_goes_back_starts_from_the_published_bits(model_directory: Path) -> None:
    policy, fresh = (policy_of(model_directory, BF16, final_rate=1.0) for _ in range(2))
    policy.step(batches_of())
    policy.adopt(0, model_directory)
    assert policy.step(batches_of()) == fresh.step(batches_of())
    assert all(torch.equal(tensor, fresh.weights()[name]) for name, tensor in policy.weights().items())


def test_saved_weights_load_as_the_model_they_were(model_directory: Path, tmp_path: Path) -> None:
    policy = policy_of(model_directory)
    policy.step(batches_of())
    policy.save_weights(tmp_path / "version-1")
    loaded = load_model(tmp_path / "version-1", torch.float32)
    assert all(torch.equal(tensor, loaded.weights()[name]) for name, tensor in policy.weights().items())
    assert loaded.prompt_tokens("1+1\n") == policy.model.prompt_tokens("1+1\n")
    assert [path.name for path in tmp_path.iterdir()] == ["version-1"]


def test_accuracy_is_the_same_for_the_same_seed(model_directory: Path) -> None:
    model = load_model(model_directory, torch.float32)
    first, second = (accuracy(model, Arithmetic(3), RULES, 4, count=16) for _ in range(2))
    assert first == second == 0.0
