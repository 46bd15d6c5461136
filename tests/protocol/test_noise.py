"""Seeded sampling on tensors: the same bits as the definition in numpy."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.tensor import noise
from protocol.tensor.kernels import noise_cpu
from protocol.wire import sampling

torch.set_num_threads(1)
TRITON = Path(sys.prefix) / "triton"
"""Where `make test` puts triton for a torch that comes without, so that nothing but one test here finds it."""
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
WORD = st.integers(0, 2**32 - 1)


def noise_of(keys, positions, vocab, device="cpu") -> torch.Tensor:
    """Noise alone: logits of zero at temperature 1, one row for each key and position."""
    zeros_BV = torch.zeros(len(positions), vocab, device=device)
    return noise.perturb(zeros_BV, keys, positions, np.ones(len(positions), np.float32))


def gumbel_of(bits: np.ndarray) -> torch.Tensor:
    """The compiled loop's deviate of each word, past Philox."""
    counters = -(-len(bits) // 4)
    words_WS = np.ascontiguousarray(np.resize(bits, 4 * counters).view(np.int32).reshape(counters, 4).T)
    t_WS, noise_V = np.empty((4, counters), np.float32), np.zeros(len(bits), np.float32)
    noise_cpu.fold(counters, words_WS, t_WS)
    noise_cpu.add(noise_V, np.float32(1), counters, words_WS, t_WS, noise._lines())
    return torch.from_numpy(noise_V)


def same_bits(tensor: torch.Tensor, array: np.ndarray) -> bool:
    return np.array_equal(tensor.cpu().numpy().view(np.uint32), np.ascontiguousarray(array).view(np.uint32))


@pytest.mark.parametrize("device", DEVICES)
@settings(deadline=None)
@given(
    keys=st.lists(st.tuples(WORD, WORD), min_size=1, max_size=4),
    start=st.integers(0, 2**32 - 8),
    count=st.integers(0, 6),
    vocab=st.integers(1, 70),
)
def test_noise_agrees_with_the_reference_to_the_bit(device, keys, start, count, vocab):
    keys = np.array(keys, dtype=np.uint32)
    expected_BTV = sampling.gumbel_noise(keys, range(start, start + count), vocab)
    positions = np.tile(np.arange(start, start + count), len(keys))
    found = noise_of(np.repeat(keys, count, axis=0), positions, vocab, device)
    assert same_bits(found, expected_BTV.reshape(-1, vocab))


@settings(deadline=None)
@given(
    keys=st.lists(st.tuples(WORD, WORD), min_size=1, max_size=4),
    start=st.integers(0, 2**32 - 8),
    vocab=st.integers(1, 5000),
)
def test_wide_rows_of_the_compiled_loop_and_of_the_definition_agree_to_the_bit(keys, start, vocab):
    keys_N2, positions_N = torch.tensor(keys), torch.arange(start, start + len(keys))
    compiled = noise_of(keys_N2, positions_N, vocab)
    assert same_bits(compiled, sampling.gumbel_noise(np.array(keys, dtype=np.uint32), positions_N.numpy(), vocab))


@given(st.lists(WORD, min_size=1, max_size=64))
def test_gumbel_agrees_with_the_reference_to_the_bit(words):
    bits = np.array(words, dtype=np.uint32)
    assert same_bits(gumbel_of(bits), sampling.gumbel(bits))


def test_every_segment_of_the_table_agrees_with_the_reference():
    octaves = (np.arange(512, 1024, dtype=np.int64) << np.arange(22)[:, None]).ravel()
    folded = np.concatenate([np.arange(512), octaves, octaves + 1, octaves - 1, [2**31 - 1]])
    bits = np.concatenate([folded, 2**32 - 1 - folded]).astype(np.uint32)
    assert same_bits(gumbel_of(bits), sampling.gumbel(bits))


@pytest.mark.parametrize("device", DEVICES)
def test_rows_wider_than_a_cacheful_agree_with_the_reference(device):
    keys = sampling.noise_keys(b"\x05" * 32, [0, 1])
    positions = np.array([0, 2**32 - 1], dtype=np.uint32)
    for vocab in (2047, 2048, 2050, 151_936, 262_144):
        tensor = noise_of(keys, torch.tensor(positions.astype(np.int64)), vocab, device)
        assert same_bits(tensor, sampling.gumbel_noise(keys, positions, vocab))


@pytest.mark.parametrize("kind", [np.uint32, np.int64])
def test_keys_and_positions_may_come_as_arrays_or_tensors(kind):
    keys = sampling.noise_keys(b"\x06" * 32, range(3)).astype(kind)
    positions = np.arange(3).astype(kind) * 100
    expected = sampling.gumbel_noise(keys.astype(np.uint32), positions, 9)
    assert same_bits(noise_of(keys, positions, 9), expected)
    assert same_bits(noise_of(torch.from_numpy(keys), torch.from_numpy(positions), 9), expected)


def test_no_rows_have_no_noise():
    assert noise_of(torch.empty(0, 2, dtype=torch.int64), torch.empty(0, dtype=torch.int64), 5).shape == (0, 5)


@pytest.mark.parametrize("device", DEVICES)
@given(seed=st.integers(0, 2**32 - 1), temperature=st.floats(0, 1.5))
def test_choices_and_margins_agree_with_the_reference_to_the_bit(device, seed, temperature):
    logits = np.random.default_rng(seed).normal(0, 3, (4, 11)).astype(np.float32)
    keys, tokens = sampling.noise_keys(b"\x08" * 32, [seed]), np.array([0, 3, 10, 5])
    gumbels = sampling.gumbel_noise(keys, range(4), 11)[0]
    temperatures = np.full(4, temperature, np.float32)
    scores_BV = noise.perturb(torch.tensor(logits, device=device), keys.repeat(4, axis=0), np.arange(4), temperatures)
    assert scores_BV.argmax(-1).tolist() == [sampling.choose(logits[i], gumbels[i], temperature) for i in range(4)]
    margins = scores_BV.amax(-1) - scores_BV.gather(1, torch.from_numpy(tokens)[:, None].to(device))[:, 0]
    assert margins.tolist() == [sampling.margin(logits[i], gumbels[i], temperature, tokens[i]) for i in range(4)]


@pytest.mark.parametrize("device", DEVICES)
@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(WORD, WORD, WORD, st.floats(0, 1.5)), min_size=1, max_size=4),
    vocab=st.integers(1, 70),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_perturbed_logits_agree_with_the_reference_to_the_bit(device, rows, vocab, dtype):
    keys, positions = np.array([row[:2] for row in rows], dtype=np.uint32), np.array([row[2] for row in rows])
    temperatures = np.array([row[3] for row in rows], dtype=np.float32)
    logits = torch.randn(len(rows), vocab, generator=torch.Generator().manual_seed(vocab)).to(dtype)
    noise_BV = sampling.gumbel_noise(keys, positions, vocab)
    expected = logits.float().numpy() + temperatures[:, None] * noise_BV
    given_BV = logits.to(device)
    scores = noise.perturb(given_BV, keys, positions, temperatures)
    assert same_bits(scores, expected)
    assert (scores is given_BV) == (dtype == torch.float32)


def test_the_kernel_for_cuda_agrees_with_the_reference_to_the_bit_when_interpreted():
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    if find_spec("triton") is None:
        environment["PYTHONPATH"] = str(TRITON)
    subprocess.run([sys.executable, "-c", INTERPRETED], env=environment, check=True, timeout=300)


INTERPRETED = """
import numpy as np
import torch
from protocol.tensor import noise
from protocol.tensor.kernels import noise_cuda
from protocol.wire import sampling

keys, positions = sampling.noise_keys(b"\\x05" * 32, range(3)), np.array([0, 2**32 - 1, 77])
temperatures, table = np.array([1.0, 0.7, 0.0], dtype=np.float32), noise._table(torch.device("cpu"))
for vocab in (1, 64, 1023, 1024, 1025, 5000):
    logits = torch.randn(3, vocab)
    expected = logits.numpy() + temperatures[:, None] * sampling.gumbel_noise(keys, positions, vocab)
    rows = (torch.from_numpy(array) for array in (keys.astype(np.int64), positions, temperatures))
    noise_cuda.perturb_rows(logits, *rows, table)
    assert np.array_equal(logits.numpy().view(np.uint32), expected.view(np.uint32)), vocab
"""


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(WORD, WORD, WORD, st.floats(0, 1.5)), min_size=1, max_size=4),
    vocab=st.integers(1, 70),
)
def test_without_numba_the_definition_perturbs_to_the_same_bits(rows, vocab):
    keys, positions = np.array([row[:2] for row in rows]), np.array([row[2] for row in rows])
    temperatures = np.array([row[3] for row in rows], dtype=np.float32)
    logits = torch.randn(len(rows), vocab, generator=torch.Generator().manual_seed(vocab))
    by_definition = logits.numpy().copy()
    noise.perturb_by_definition(by_definition, keys, positions, temperatures)
    assert same_bits(noise.perturb(logits, keys, positions, temperatures), by_definition)


def test_logits_are_perturbed_where_they_lie_only_if_that_is_possible():
    rows = sampling.noise_keys(b"\x0a" * 32, range(3)), np.arange(3), np.full(3, 0.5)
    transposed = torch.zeros(5, 3).T
    assert torch.equal(noise.perturb(transposed, *rows), noise.perturb(torch.zeros(3, 5), *rows))
    assert not transposed.any()


def test_a_row_at_temperature_zero_keeps_its_logits():
    logits = torch.randn(3, 70, generator=torch.Generator().manual_seed(0))
    keys = torch.from_numpy(sampling.noise_keys(b"\x0a" * 32, range(3)).astype(np.int64))
    scores = noise.perturb(logits.clone(), keys, torch.arange(3), torch.tensor([0.0, 1.0, 0.0]))
    assert (scores == logits).all(dim=1).tolist() == [True, False, True]


def test_a_million_draws_take_well_under_a_tenth_of_a_second():
    keys = sampling.noise_keys(b"\x09" * 32, range(512)).repeat(60, axis=0)
    positions = np.tile(np.arange(60), 512)
    noise_of(keys[:1], positions[:1], 32)
    seconds = []
    for _ in range(5):
        started = time.thread_time()
        noise_of(keys, positions, 32)
        seconds.append(time.thread_time() - started)
    assert min(seconds) < 0.1
