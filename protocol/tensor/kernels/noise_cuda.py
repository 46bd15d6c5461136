"""Seeded sampling as one triton kernel for CUDA: Philox, the table of Gumbel deviates, and logits + T·G in one pass.

Import it late, and only for tensors on such a device: triton comes with torch's CUDA builds. The bits are those of
``protocol.wire.sampling``; T·G must be rounded before it is added, so the kernel is compiled without fusion.

Axes: N rows, V vocabulary, K key words (2), L lines; S counters of a program, W = 4 * S words of them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from protocol.wire import sampling

COUNTERS = 256


def perturb_rows(
    logits_NV: Tensor, keys_NK: Tensor, positions_N: Tensor, temperatures_N: Tensor, table: tuple[Tensor, Tensor]
) -> None:
    """Adds temperature times noise to each row of logits, in place: fp32, contiguous; keys and positions are int64."""
    if logits_NV.numel() == 0:
        return
    base_L, slope_L = table
    rows, vocab = logits_NV.shape
    with torch.device(logits_NV.device):
        _perturb[(rows, triton.cdiv(vocab, 4 * COUNTERS))](
            logits_NV,
            keys_NK.contiguous(),
            positions_N.contiguous(),
            temperatures_N.contiguous(),
            base_L,
            slope_L,
            vocab,
            COUNTERS,
            enable_fp_fusion=False,
        )


# A triton kernel reads globals only as ``constexpr``, and allows no other annotation of its parameters.
ROUNDS = tl.constexpr(sampling.PHILOX_ROUNDS)
MULTIPLIER0 = tl.constexpr(sampling.PHILOX_MULTIPLIERS[0])
MULTIPLIER1 = tl.constexpr(sampling.PHILOX_MULTIPLIERS[1])
STEP0 = tl.constexpr(sampling.PHILOX_KEY_STEPS[0])
STEP1 = tl.constexpr(sampling.PHILOX_KEY_STEPS[1])
SHIFT = tl.constexpr(sampling.T_SHIFT)
MASK = tl.constexpr(sampling.T_MASK)
FIRST = tl.constexpr(sampling.FIRST_EXPONENT << sampling.SEGMENT_BITS)
SIDE = tl.constexpr(sampling.SIDE_ENTRIES)


@triton.jit
def _philox(position, counter_S, k0, k1):  # type: ignore[no-untyped-def]
    """Philox-4x32-10 of the counters (position, s, 0, 0), word after word of each counter: uint32 (W,)."""
    m0, m1 = tl.full(counter_S.shape, MULTIPLIER0, tl.uint32), tl.full(counter_S.shape, MULTIPLIER1, tl.uint32)
    c0, c1 = tl.zeros_like(counter_S) + position, counter_S
    c2, c3 = tl.zeros_like(counter_S), tl.zeros_like(counter_S)
    for _ in tl.static_range(ROUNDS):
        high0, high1 = tl.umulhi(c0, m0), tl.umulhi(c2, m1)
        low0, low1 = c0 * m0, c2 * m1
        c0, c2 = high1 ^ c1 ^ k0, high0 ^ c3 ^ k1
        c1, c3 = low1, low0
        k0, k1 = (k0 + STEP0).to(tl.uint32), (k1 + STEP1).to(tl.uint32)
    return tl.interleave(tl.interleave(c0, c2), tl.interleave(c1, c3))


@triton.jit  # type: ignore[untyped-decorator]
def _perturb(logits, keys, positions, temperatures, base, slope, vocab, S: tl.constexpr):  # type: ignore[no-untyped-def]
    row, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * S
    k0, k1 = tl.load(keys + 2 * row).to(tl.uint32), tl.load(keys + 2 * row + 1).to(tl.uint32)
    position, temperature = tl.load(positions + row).to(tl.uint32), tl.load(temperatures + row)
    word_W = _philox(position, (first + tl.arange(0, S)).to(tl.uint32), k0, k1).to(tl.int32, bitcast=True)
    sign_W = word_W >> 31
    bits_W = ((word_W ^ sign_W).to(tl.float32) + 0.5).to(tl.int32, bitcast=True)
    line_W = (bits_W >> SHIFT) - FIRST + (sign_W & SIDE)
    t_W = (bits_W & MASK).to(tl.float32)
    noise_W = tl.load(base + line_W) + tl.load(slope + line_W) * t_W
    token_W = 4 * first + tl.arange(0, 4 * S)
    place_W, inside_W = logits + row * vocab + token_W, token_W < vocab
    tl.store(place_W, tl.load(place_W, mask=inside_W, other=0.0) + temperature * noise_W, mask=inside_W)
