"""Seeded sampling: the token that a seed and a row of logits determine, and the margin of any other token.

PURE numpy definition; ``protocol.tensor.noise`` gives the same bits on torch tensors.

    z = l + T * G          in fp32, l the raw LM-head logits, T the temperature
    token = argmax z       margin of another token = z[token] - z[other], in logits

Adding Gumbel noise and taking the argmax samples exactly from softmax(l / T) (Maddison, Tarlow & Minka 2014), so a
worker that cannot choose the seed cannot choose the tokens. The noise must agree to the last bit on every device:

    job seed, rollout --keccak256--> key (2 x u32)
    (position, token // 4, 0, 0) --Philox-4x32-10--> 4 x u32, word ``token % 4`` is the token's
    word --gumbel--> G

``gumbel`` avoids logarithms and all other operations that devices round differently. u = (word + 1/2) / 2^32 and
G = -log(-log1p(-u)), so large G come from small u, where steps of u are fine relative to u. Each half of the unit
interval is cut into octaves of its distance to 0 or 1, each octave into 512 segments, and each segment is a line:

    word --fold--> c = word or ~word, below 2^31          side = 0 or 1
    x = fp32(c) + 1/2                                     from 1/2 to 2^31
    bits of x: | exponent 8 | segment 9 | t 12 | dropped 2 |
    G = base[side, exponent, segment] + slope[side, exponent, segment] * t

t and the slopes have 12 significant bits each, so their product is exact in fp32 and a fused multiply-add cannot
change the sum. The tables are computed from the definition using only IEEE double addition, multiplication and
division (exactly rounded everywhere), and refused unless they hash to ``TABLE_DIGEST``. |G - exact| < 2e-6.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from eth_utils.crypto import keccak
from numpy.typing import NDArray

from protocol.errors import Misconfigured

U32 = NDArray[np.uint32]
F32 = NDArray[np.float32]

DOMAIN = b"assize/noise/1"
MAX_TEMPERATURE = 1.5

# Philox-4x32-10: Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
PHILOX_ROUNDS = 10
PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)

SEGMENT_BITS = 9  # lines per octave: 2^9 keeps the error of a line under 2^-21
T_SHIFT = 23 - SEGMENT_BITS  # bits of the fp32 significand left below the segment
T_MASK = (1 << T_SHIFT) - 4  # the two lowest are dropped: 12 significant bits remain
FIRST_EXPONENT = 126  # of x = 1/2, the least
OCTAVES = 32  # x from 2^-1 up to 2^31
SIDE_ENTRIES = (OCTAVES << SEGMENT_BITS) + 1  # one more for x = 2^31 itself, to which the largest c round
TABLE_DIGEST = "a84cb252705b7b8889168e2d1c0bc3384ea79b206ccd018fdd9a177dafec0fb7"
_LN2 = 0.6931471805599453


@dataclass(frozen=True, slots=True)
class GumbelTable:
    """Lines of ``gumbel``: fp32 arrays of 2 * SIDE_ENTRIES, side 0 (u < 1/2) first, indexed by octave and segment."""

    base: F32
    slope: F32


def noise_key(job_seed: bytes, rollout: int) -> tuple[int, int]:
    """Returns the Philox key of one rollout of a job: the first 8 bytes of keccak256 as two big-endian u32.

    The preimage is ``"assize/noise/1" || job_seed (32 bytes) || rollout (u32, big-endian)``.
    """
    if len(job_seed) != 32 or not 0 <= rollout < 1 << 32:
        raise ValueError(f"invalid job seed of {len(job_seed)} bytes or rollout {rollout}: expected 32 bytes and a u32")
    digest = keccak(DOMAIN + job_seed + rollout.to_bytes(4, "big"))
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big")


def noise_keys(job_seed: bytes, rollouts: Sequence[int]) -> U32:
    """Returns the keys of several rollouts of one job, uint32 (B, 2)."""
    return np.array([noise_key(job_seed, rollout) for rollout in rollouts], dtype=np.uint32).reshape(-1, 2)


def philox4x32(counter: U32, key: U32) -> U32:
    """Returns Philox-4x32-10 of ``counter`` (..., 4) under ``key`` (..., 2); leading axes broadcast. All uint32."""
    low32, high_shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    lanes = np.broadcast_shapes(counter.shape[:-1], key.shape[:-1])
    c0, c1, c2, c3 = (np.broadcast_to(counter[..., i], lanes).astype(np.uint64) for i in range(4))
    for turn in range(PHILOX_ROUNDS):
        k0, k1 = (key[..., i].astype(np.uint64) + np.uint64(turn * PHILOX_KEY_STEPS[i]) & low32 for i in range(2))
        product0, product1 = c0 * np.uint64(PHILOX_MULTIPLIERS[0]), c2 * np.uint64(PHILOX_MULTIPLIERS[1])
        c0, c1 = (product1 >> high_shift) ^ c1 ^ k0, product1 & low32
        c2, c3 = (product0 >> high_shift) ^ c3 ^ k1, product0 & low32
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def gumbel(bits: U32) -> F32:
    """Returns a standard Gumbel deviate for each uint32, decreasing in it, from 22.87 down to -3.13; float32."""
    table = gumbel_table()
    sign = np.ascontiguousarray(bits, dtype=np.uint32).view(np.int32) >> 31  # -1 in the upper half, else 0
    folded = np.ascontiguousarray(bits, dtype=np.uint32).view(np.int32) ^ sign
    pattern = (folded.astype(np.float32) + np.float32(0.5)).view(np.int32)
    index = (pattern >> T_SHIFT) - (FIRST_EXPONENT << SEGMENT_BITS) + (sign & SIDE_ENTRIES)
    return table.base[index] + table.slope[index] * (pattern & T_MASK).astype(np.float32)


def gumbel_noise(keys_B2: U32, positions: NDArray[np.integer] | range, vocab: int) -> F32:
    """Returns the noise of every token at the given positions of rollouts (0 is the first sampled token).

    ``positions`` is an array (B,) for one position per rollout, (B, T) for several, or a range that holds for all.
    Returns float32 (B, vocab), or (B, T, vocab) for the latter two.
    """
    if isinstance(positions, range):
        positions = np.broadcast_to(np.array(positions, dtype=np.uint32), (len(keys_B2), len(positions)))
    blocks = -(-vocab // 4)
    counter = np.zeros((*positions.shape, blocks, 4), dtype=np.uint32)
    counter[..., 0] = positions[..., None]
    counter[..., 1] = np.arange(blocks, dtype=np.uint32)
    key = keys_B2.reshape(len(keys_B2), *(1,) * positions.ndim, 2).astype(np.uint32)
    return gumbel(philox4x32(counter, key)).reshape(*positions.shape, 4 * blocks)[..., :vocab]


def choose(logits_V: F32, noise_V: F32, temperature: float) -> int:
    """Returns the token that logits and noise determine; the lowest of several equals. Temperature 0 is greedy."""
    return int(np.argmax(_scores(logits_V, noise_V, temperature)))


def margin(logits_V: F32, noise_V: F32, temperature: float, token: int) -> float:
    """Returns the logits by which ``token`` falls short of the determined one: 0.0 iff it ties with it."""
    scores_V = _scores(logits_V, noise_V, temperature)
    return float(np.max(scores_V) - scores_V[token])


def _scores(logits_V: F32, noise_V: F32, temperature: float) -> F32:
    if not 0.0 <= temperature <= MAX_TEMPERATURE:
        raise ValueError(f"invalid temperature {temperature}: expected 0 to {MAX_TEMPERATURE}")
    return logits_V.astype(np.float32, copy=False) + np.float32(temperature) * noise_V


@functools.cache
def gumbel_table() -> GumbelTable:
    """Returns the tables of ``gumbel``; raises ``Misconfigured`` if this machine's doubles are not IEEE."""
    table = _compute_table()
    if hashlib.sha256(table.base.tobytes() + table.slope.tobytes()).hexdigest() != TABLE_DIGEST:
        raise Misconfigured(
            "the Gumbel table differs on this machine, whose floating point is not IEEE 754: use another machine"
        )
    return table


def _compute_table() -> GumbelTable:
    """Evaluates G at both ends of every segment and rounds: bases to fp32, slopes to 12 significant bits."""
    segments = 1 << SEGMENT_BITS
    octave = np.repeat(np.arange(OCTAVES + 1) - 1, segments)[: SIDE_ENTRIES + 1]
    within = 1.0 + np.tile(np.arange(segments), OCTAVES + 1)[: SIDE_ENTRIES + 1] / segments
    fraction = np.ldexp(within, octave - 32)  # distance to 0 on side 0, to 1 on side 1
    low = -_log(_minus_log1m(np.minimum(fraction, 0.5)))
    high = -_log(-_log(np.minimum(fraction, 0.5)))
    base = np.concatenate([low[:SIDE_ENTRIES], high[:SIDE_ENTRIES]])
    rise = np.concatenate([np.diff(low), np.diff(high)])
    significand, exponent = np.frexp(rise)
    slope = np.ldexp(np.rint(np.ldexp(significand, 12)), exponent - 12 - T_SHIFT)
    return GumbelTable(base.astype("<f4"), slope.astype("<f4"))


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Natural logarithm by + - * / alone, so that it rounds equally everywhere: e ln 2 + 2 atanh((m - 1) / (m + 1))."""
    significand, exponent = np.frexp(x)
    return exponent * _LN2 + 2.0 * _atanh((significand - 1.0) / (significand + 1.0))


def _minus_log1m(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """-log(1 - u) for 0 < u <= 1/2 without cancellation: 2 atanh(u / (2 - u))."""
    return 2.0 * _atanh(u / (2.0 - u))


def _atanh(s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns s + s^3/3 + s^5/5 + ... for |s| <= 1/3, where 18 terms leave less than 2^-60."""
    square, total = s * s, np.zeros_like(s)
    for denominator in range(37, 0, -2):
        total = total * square + 1.0 / denominator
    return s * total
