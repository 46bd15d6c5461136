"""Seeded sampling on torch tensors: the bits of ``protocol.wire.sampling``, on any device.

Everything is wrapping integer arithmetic, exact int-to-fp32 conversion, table look-ups, and one fp32 product that is
exact, so neither the device nor a compiler that fuses multiply and add can change a bit of the noise. (T·G is rounded
before it is added to a logit; nothing here fuses those two.) On CPUs it is one loop of machine code, see
``protocol.tensor.noise_kernel``, on CUDA one kernel, see ``protocol.tensor.noise_triton``; the torch operations below
serve other devices, and hosts where numba or triton does not load.

Axes: B rollouts, T positions, V vocabulary, K key words (2), N Philox blocks of four tokens.
"""

from __future__ import annotations

import functools
import os
import shutil
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protocol.tensor.compiled import kernels
from protocol.wire import sampling

LOW32 = 0xFFFFFFFF
CPU_BLOCKS = 1 << 14  # Philox blocks at once: their int64 words stay in a core's cache
CUDA_BLOCKS = 1 << 22  # 128 MiB of int64 words


def gumbel_noise(
    keys_B2: Tensor | NDArray[np.uint32],
    positions: Tensor | range,
    vocab: int,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Returns the noise of every token at the given positions of rollouts (0 is the first sampled token).

    ``keys_B2`` holds u32 values in any integer dtype. ``positions`` is an integer tensor (B,) for one position per
    rollout, (B, T) for several, or a range that holds for all. Returns fp32 on ``device``: (B, V), or (B, T, V) for
    the latter two.
    """
    keys_B2 = _int64(keys_B2, device)
    if isinstance(positions, range):
        positions = torch.tensor(list(positions), dtype=torch.int64).expand(len(keys_B2), -1)
    positions = positions.to(device=device, dtype=torch.int64)
    per_rollout = positions[0].numel() if len(keys_B2) else 0
    noise = _noise_rows(keys_B2.repeat_interleave(per_rollout, dim=0), positions.reshape(-1), vocab)
    return noise.view(*positions.shape, vocab)


def perturb(
    logits_BV: Tensor,
    keys_B2: Tensor | NDArray[np.uint32],
    positions_B: Tensor | NDArray[np.integer],
    temperatures_B: Tensor | NDArray[np.float32],
) -> Tensor:
    """Adds to each row of logits its temperature times its noise; the argmax of what it returns is the seeded choice.

    Returns fp32 (B, V): ``logits_BV`` itself, changed, where that is fp32 and contiguous, else a new tensor. A row at
    temperature 0 keeps its logits. ``keys_B2`` and ``positions_B`` (0 is the first sampled token) hold u32 values in
    any integer dtype, ``temperatures_B`` numbers from 0 to 1.5, which the caller has checked: looking at them here
    would make a CPU wait for its GPU.
    """
    scores_BV, device = logits_BV.to(torch.float32).contiguous(), logits_BV.device
    keys_B2, positions_B = _int64(keys_B2, device), _int64(positions_B, device)
    temperatures_B = torch.as_tensor(temperatures_B).to(device=device, dtype=torch.float32)
    if _perturb_rows(scores_BV, keys_B2, positions_B, temperatures_B):
        return scores_BV
    noise_BV = _noise_rows_by_torch(keys_B2, positions_B, scores_BV.shape[1])
    return scores_BV.add_(noise_BV.mul_(temperatures_B[:, None]))


def _perturb_rows(logits_NV: Tensor, keys_NK: Tensor, positions_N: Tensor, temperatures_N: Tensor) -> bool:
    """Perturbs fp32 rows in place by the device's kernel; false where it has none."""
    rows = logits_NV, keys_NK, positions_N, temperatures_N
    if logits_NV.device.type == "cpu" and (kernel := kernels("noise")):
        kernel.perturb_rows(*(tensor.numpy() for tensor in rows), _lines())
        return True
    if logits_NV.device.type == "cuda" and (kernel := _triton()):
        kernel.perturb_rows(*rows, _table(logits_NV.device))
        return True
    return False


def philox4x32(counters: tuple[Tensor, Tensor, Tensor, Tensor], keys: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Returns the four words of Philox-4x32-10; u32 values in int64 tensors that broadcast together."""
    c0, c1, c2, c3 = counters
    for turn in range(sampling.PHILOX_ROUNDS):
        k0, k1 = (keys[i] + turn * sampling.PHILOX_KEY_STEPS[i] & LOW32 for i in range(2))
        # Products wrap modulo 2^64 in int64; the mask after the shift removes the copies of the sign.
        product0, product1 = c0 * sampling.PHILOX_MULTIPLIERS[0], c2 * sampling.PHILOX_MULTIPLIERS[1]
        c0, c1 = (product1 >> 32).bitwise_and_(LOW32) ^ (c1 ^ k0), product1 & LOW32
        c2, c3 = (product0 >> 32).bitwise_and_(LOW32) ^ (c3 ^ k1), product0 & LOW32
    return [c0, c1, c2, c3]


def gumbel(bits: Tensor) -> Tensor:
    """Returns the Gumbel deviate of each word; the u32 values come as int32 (same 32 bits), the deviates are fp32."""
    base, slope = _table(bits.device)
    sign = bits >> 31  # -1 in the upper half, else 0
    pattern = (bits ^ sign).to(torch.float32).add_(0.5).view(torch.int32)
    index = (pattern >> sampling.T_SHIFT).sub_(sampling.FIRST_EXPONENT << sampling.SEGMENT_BITS)
    index = index.add_(sign.bitwise_and_(sampling.SIDE_ENTRIES)).view(-1)
    t = pattern.bitwise_and_(sampling.T_MASK).to(torch.float32).view(-1)
    return slope.index_select(0, index).mul_(t).add_(base.index_select(0, index)).view(bits.shape)


def choose(logits_BV: Tensor, noise_BV: Tensor, temperature: float) -> Tensor:
    """Returns the token that each row of logits and noise determines, int64 (B,). Temperature 0 is greedy."""
    return _scores(logits_BV, noise_BV, temperature).argmax(dim=-1)


def margins(logits_BV: Tensor, noise_BV: Tensor, temperature: float, tokens_B: Tensor) -> Tensor:
    """Returns how many logits each row's token fell short of the determined one, fp32 (B,): 0 iff it ties with it."""
    scores_BV = _scores(logits_BV, noise_BV, temperature)
    return scores_BV.amax(dim=-1) - scores_BV.gather(-1, tokens_B[:, None].to(torch.int64)).squeeze(-1)


def gaps(logits_BV: Tensor, noise_BV: Tensor, temperature: float) -> Tensor:
    """Returns how many logits lie between each row's determined token and the runner-up, fp32 (B,)."""
    top_B2 = _scores(logits_BV, noise_BV, temperature).topk(2, dim=-1).values
    return top_B2[:, 0] - top_B2[:, 1]


def _scores(logits_BV: Tensor, noise_BV: Tensor, temperature: float) -> Tensor:
    if not 0.0 <= temperature <= sampling.MAX_TEMPERATURE:
        raise ValueError(f"temperature {temperature} is outside [0, {sampling.MAX_TEMPERATURE}]")
    return noise_BV.mul(float(np.float32(temperature))).add_(logits_BV.to(torch.float32))


def _noise_rows(keys_NK: Tensor, positions_N: Tensor, vocab: int) -> Tensor:
    """Noise (N, V) of N rows, each with its own key and position."""
    noise_NV = torch.zeros(len(positions_N), vocab, device=keys_NK.device)
    ones_N = torch.ones(len(positions_N), device=keys_NK.device)
    if _perturb_rows(noise_NV, keys_NK, positions_N, ones_N):
        return noise_NV
    return _noise_rows_by_torch(keys_NK, positions_N, vocab)


def _noise_rows_by_torch(keys_NK: Tensor, positions_N: Tensor, vocab: int) -> Tensor:
    """As ``_noise_rows``, a cacheful at a time."""
    blocks = torch.arange(-(-vocab // 4), dtype=torch.int64, device=keys_NK.device)
    noise_NV = torch.empty(len(positions_N), vocab, dtype=torch.float32, device=keys_NK.device)
    rows = max(1, (CPU_BLOCKS if keys_NK.device.type == "cpu" else CUDA_BLOCKS) // max(1, len(blocks)))
    zero = blocks.new_zeros(1, 1)
    for start in range(0, len(positions_N), rows):
        chunk = slice(start, start + rows)
        keys = keys_NK[chunk, 0, None], keys_NK[chunk, 1, None]
        words = philox4x32((positions_N[chunk, None], blocks[None], zero, zero), keys)
        bits = torch.stack([word.to(torch.int32) for word in words], dim=-1)
        noise_NV[chunk] = gumbel(bits).flatten(1)[:, :vocab]
    return noise_NV


def _int64(numbers: Tensor | NDArray[Any], device: torch.device | str) -> Tensor:
    tensor = torch.from_numpy(numbers.astype(np.int64)) if isinstance(numbers, np.ndarray) else numbers
    return tensor.to(device=device, dtype=torch.int64)


@functools.cache
def _triton() -> Any | None:
    """The kernel for CUDA, or ``None`` where triton or the C compiler it starts kernels with is not installed."""
    if not (os.environ.get("CC") or shutil.which("clang") or shutil.which("gcc")):
        return None
    try:
        from protocol.tensor import noise_triton
    except ImportError:
        return None
    return noise_triton


@functools.cache
def _lines() -> NDArray[np.float32]:
    """Base and slope of each line of the Gumbel table side by side, (L, 2)."""
    table = sampling.gumbel_table()
    return np.ascontiguousarray(np.stack([table.base, table.slope], axis=1))


@functools.cache
def _table(device: torch.device) -> tuple[Tensor, Tensor]:
    table = sampling.gumbel_table()
    return torch.from_numpy(table.base).to(device), torch.from_numpy(table.slope).to(device)
