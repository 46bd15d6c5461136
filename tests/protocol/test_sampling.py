"""Seeded sampling: published vectors, pinned bits, exact values, distribution."""

from __future__ import annotations

import json
from decimal import Decimal, getcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire import sampling

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "sampling.json").read_text())
WORD = st.integers(0, 2**32 - 1)


def words(values) -> np.ndarray:
    return np.array(values, dtype=np.uint32)


def exact_gumbel(word: int) -> float:
    getcontext().prec = 40
    u = (Decimal(word) + Decimal("0.5")) / 2**32
    return float(-(-(1 - u).ln()).ln())


@pytest.mark.parametrize("vector", VECTORS["philox"])
def test_philox_gives_the_published_answers(vector):
    assert sampling.philox4x32(words(vector["counter"]), words(vector["key"])).tolist() == vector["words"]


def test_gumbel_bits_are_pinned():
    pinned = VECTORS["gumbel"]
    assert sampling.gumbel(words(pinned["words"])).view(np.uint32).tolist() == pinned["fp32"]


def test_noise_of_a_job_is_pinned():
    pinned = VECTORS["noise"]
    keys = sampling.noise_keys(bytes.fromhex(pinned["job_seed"]), pinned["rollouts"])
    assert keys.tolist() == pinned["keys"]
    positions = np.broadcast_to(words(pinned["positions"]), (3, 2))
    noise = sampling.gumbel_noise(keys, positions, pinned["vocab"])
    assert np.ascontiguousarray(noise).view(np.uint32).tolist() == pinned["fp32"]


def test_table_is_the_committed_one():
    assert len(sampling.gumbel_table().base) == 2 * sampling.SIDE_ENTRIES


def test_products_are_exact_so_that_fusing_cannot_change_a_bit():
    slope = sampling.gumbel_table().slope
    exact = slope.astype(np.float64) * sampling.T_MASK
    assert np.array_equal(exact, (slope * np.float32(sampling.T_MASK)).astype(np.float64))
    significand = np.ldexp(np.frexp(slope)[0], 12)
    assert np.array_equal(significand, np.rint(significand))


@given(WORD)
def test_gumbel_is_close_to_the_definition(word):
    assert abs(float(sampling.gumbel(words([word]))[0]) - exact_gumbel(word)) < 2e-6


@pytest.mark.parametrize("word", VECTORS["gumbel"]["words"])
def test_gumbel_is_close_to_the_definition_at_the_edges(word):
    value = float(sampling.gumbel(words([word]))[0])
    assert np.isfinite(value)
    assert abs(value - exact_gumbel(word)) < 2e-6


def test_gumbel_never_increases_with_the_word():
    borders = np.concatenate([np.arange(-600, 600) + (1 << octave) for octave in range(10, 32)])
    below_half = np.unique(np.concatenate([np.arange(4096), borders[(borders >= 0) & (borders < 2**31)]]))
    ascending = np.concatenate([below_half, (2**32 - 1 - below_half)[::-1]])
    assert (np.diff(sampling.gumbel(ascending.astype(np.uint32))) <= 0).all()


def test_ten_million_draws_are_gumbel_by_kolmogorov_and_smirnov():
    keys = sampling.noise_keys(b"\x07" * 32, range(10))
    blocks = [sampling.gumbel_noise(keys, range(t, t + 50), 2000).ravel() for t in range(0, 500, 50)]
    draws = np.sort(np.concatenate(blocks))
    count = len(draws)
    expected = np.exp(-np.exp(-draws.astype(np.float64)))
    empirical = np.arange(count + 1) / count
    gap = max(np.abs(expected - empirical[1:]).max(), np.abs(expected - empirical[:-1]).max())
    assert np.isfinite(draws).all()
    assert gap * np.sqrt(count) < 1.628  # the 1% point of the Kolmogorov distribution


def test_choosing_with_noise_samples_the_softmax():
    logits, temperature, draws = np.array([0.0, 1.0, 2.0, -1.0, 0.5], dtype=np.float32), 0.7, 40_000
    noise = sampling.gumbel_noise(sampling.noise_keys(b"\x01" * 32, [3]), range(draws), 5)[0]
    chosen = [sampling.choose(logits, row, temperature) for row in noise]
    weights = np.exp(logits / temperature)
    expected = draws * weights / weights.sum()
    chi_square = ((np.bincount(chosen, minlength=5) - expected) ** 2 / expected).sum()
    assert chi_square < 18.5  # 0.1% point at 4 degrees of freedom


def test_positions_and_tokens_do_not_depend_on_what_is_asked_beside_them():
    keys = sampling.noise_keys(b"\x02" * 32, [0, 1])
    whole = sampling.gumbel_noise(keys, range(10), 50)
    assert np.array_equal(sampling.gumbel_noise(keys, words([4, 9]), 50), whole[[0, 1], [4, 9]])
    assert np.array_equal(sampling.gumbel_noise(keys[1:], range(3, 5), 7), whole[1:, 3:5, :7])


def test_keys_differ_by_seed_and_rollout():
    keys = {sampling.noise_key(seed * 32, rollout) for seed in (b"\x00", b"\x01") for rollout in range(100)}
    assert len(keys) == 200


@pytest.mark.parametrize(("seed", "rollout"), [(b"short", 0), (b"\x00" * 32, -1), (b"\x00" * 32, 2**32)])
def test_key_of_a_malformed_seed_or_rollout_is_refused(seed, rollout):
    with pytest.raises(ValueError):
        sampling.noise_key(seed, rollout)


def test_temperature_zero_is_greedy():
    logits = np.array([1.0, 3.0, 2.0], dtype=np.float32)
    noise = np.array([20.0, -3.0, 20.0], dtype=np.float32)
    assert sampling.choose(logits, noise, 0.0) == 1
    assert sampling.margin(logits, noise, 0.0, 2) == 1.0


def test_the_chosen_token_has_no_margin_and_others_fall_short():
    logits = np.array([0.0, 1.0, 0.5], dtype=np.float32)
    noise = np.array([1.0, 0.0, 2.0], dtype=np.float32)
    assert sampling.choose(logits, noise, 1.0) == 2
    assert [sampling.margin(logits, noise, 1.0, token) for token in range(3)] == [1.5, 1.5, 0.0]


@pytest.mark.parametrize("temperature", [-0.1, 1.6, float("nan")])
def test_temperature_out_of_range_is_refused(temperature):
    with pytest.raises(ValueError):
        sampling.choose(np.zeros(2, np.float32), np.zeros(2, np.float32), temperature)
