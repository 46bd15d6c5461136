"""Compiled seeded sampling for CPUs: Philox, the table of Gumbel deviates, and logits + T·G in one pass.

Import it late, see ``protocol.compiled``. The bits are those of ``protocol.wire.sampling``.

Words are computed a span at a time into scratch memory that stays in the innermost cache. The four words of a counter
lie in four rows, so that the loop over counters is vectorised; the look-ups that follow cannot be.

Axes: N rows, V vocabulary, W words of a counter (4), S counters of a span, K key words (2), L lines, E ends of one (2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from protocol.compiled import compiled, inlined
from protocol.wire import sampling

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

SPAN = 512

# numba fixes the type of each constant; arithmetic between two widens to 64 bits unless narrowed again.
MULTIPLIER0, MULTIPLIER1 = np.uint64(sampling.PHILOX_MULTIPLIERS[0]), np.uint64(sampling.PHILOX_MULTIPLIERS[1])
STEP0, STEP1 = np.uint64(sampling.PHILOX_KEY_STEPS[0]), np.uint64(sampling.PHILOX_KEY_STEPS[1])
HALF, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
SIGN, SHIFT, MASK = np.int32(31), np.int32(sampling.T_SHIFT), np.int32(sampling.T_MASK)
FIRST, SIDE = np.int32(sampling.FIRST_EXPONENT << sampling.SEGMENT_BITS), np.int32(sampling.SIDE_ENTRIES)


@intrinsic  # type: ignore[untyped-decorator]
def bits_of(_: Any, number: Any) -> tuple[Any, Callable[..., Any]]:
    """Returns the bits of an fp32 number as int32."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.int32))

    return types.int32(types.float32), code


@inlined
def philox(key0: int, key1: int, position: int, first: int, count: int, words_WS: I32) -> None:
    """Writes Philox-4x32-10 of the counters (position, first + s, 0, 0): each word's 32 bits as int32."""
    for s in range(count):
        c0, c1, c2, c3 = np.uint64(position), np.uint64(first + s), np.uint64(0), np.uint64(0)
        k0, k1 = np.uint64(key0), np.uint64(key1)
        for _ in range(sampling.PHILOX_ROUNDS):
            product0, product1 = c0 * MULTIPLIER0, c2 * MULTIPLIER1
            c0, c2 = ((product1 >> HALF) ^ c1 ^ k0) & LOW, ((product0 >> HALF) ^ c3 ^ k1) & LOW
            c1, c3 = product1 & LOW, product0 & LOW
            k0, k1 = (k0 + STEP0) & LOW, (k1 + STEP1) & LOW
        words_WS[0, s], words_WS[1, s] = np.int32(np.uint32(c0)), np.int32(np.uint32(c1))
        words_WS[2, s], words_WS[3, s] = np.int32(np.uint32(c2)), np.int32(np.uint32(c3))


@inlined
def fold(count: int, words_WS: I32, t_WS: F32) -> None:
    """Replaces each word by the index of its line, and writes its place t on the line."""
    for w in range(4):
        for s in range(count):
            word = words_WS[w, s]
            sign = np.int32(word >> SIGN)
            pattern = bits_of(np.float32(np.int32(word ^ sign)) + np.float32(0.5))
            words_WS[w, s] = np.int32((pattern >> SHIFT) - FIRST + np.int32(sign & SIDE))
            t_WS[w, s] = np.float32(np.int32(pattern & MASK))


@inlined
def add(logits_V: F32, temperature: float, count: int, index_WS: I32, t_WS: F32, lines_LE: F32) -> None:
    """Adds the span's noise to the logits that begin with the span's first token; the last span may be longer."""
    whole = min(count, len(logits_V) // 4)
    for s in range(whole):
        for w in range(4):
            line = np.uint32(index_WS[w, s])
            logits_V[4 * s + w] += temperature * (lines_LE[line, 0] + lines_LE[line, 1] * t_WS[w, s])
    if whole < count:
        for w in range(len(logits_V) - 4 * whole):
            line = np.uint32(index_WS[w, whole])
            logits_V[4 * whole + w] += temperature * (lines_LE[line, 0] + lines_LE[line, 1] * t_WS[w, whole])


@compiled("void(float32[:, ::1], int64[:, :], int64[:], float32[:], float32[:, ::1])")
def perturb_rows(logits_NV: F32, keys_NK: I64, positions_N: I64, temperatures_N: F32, lines_LE: F32) -> None:
    """Adds temperature times noise to each row of logits, in place. ``lines_LE`` is base and slope of each line."""
    index_WS, t_WS = np.empty((4, SPAN), np.int32), np.empty((4, SPAN), np.float32)
    counters = (logits_NV.shape[1] + 3) // 4
    for row in range(len(logits_NV)):
        if temperatures_N[row] != 0:
            for first in range(0, counters, SPAN):
                count = min(SPAN, counters - first)
                philox(keys_NK[row, 0], keys_NK[row, 1], positions_N[row], first, count, index_WS)
                fold(count, index_WS, t_WS)
                add(logits_NV[row, 4 * first :], temperatures_N[row], count, index_WS, t_WS, lines_LE)
