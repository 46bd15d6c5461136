"""Compiled top-k selection: one vectorised pass over each chunk of hidden states, then a few look-ups.

Import it late, see ``protocol.compiled``. A chunk is cut into blocks. The n-th largest of the blocks'
maxima is at most the n-th largest magnitude, so only blocks whose maximum reaches it hold entries to keep, about n of
them. Results equal ``protocol.wire.toploc.definition.top_entries``: by magnitude, of equal ones the first.

Axes: N numbers of all rows, C chunks, E entries of each, B blocks of a chunk, Q numbers that may be kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protocol.compiled import compiled, inlined

I16 = NDArray[np.int16]
I64 = NDArray[np.int64]

FINE, COARSE = 16, 8
SPARE = 4
MAGNITUDE = np.int16(0x7FFF)
TOP_BIT = 14


@inlined
def maxima_of(numbers_N: I16, maxima_G: I16) -> None:
    """Writes the largest magnitude of each of G groups; number n belongs to group n modulo G."""
    maxima_G[:] = 0
    for start in range(0, len(numbers_N), len(maxima_G)):
        row_G = numbers_N[start : start + len(maxima_G)]
        for group in range(len(row_G)):
            maxima_G[group] = max(maxima_G[group], np.int16(row_G[group] & MAGNITUDE))


@inlined
def largest(magnitudes: I16, count: int) -> int:
    """Returns the ``count``-th largest magnitude, found bit by bit; 0 if there are fewer."""
    bound = 0
    for bit in range(TOP_BIT, -1, -1):
        tried, reached = np.int16(bound | 1 << bit), np.int32(0)
        for i in range(len(magnitudes)):
            reached += np.int32(magnitudes[i] >= tried)
        if reached >= count:
            bound = int(tried)
    return bound


@inlined
def keys_of(bits_N: I16, fine_G: I16, coarse_G: I16, bound: int, keys_Q: I64) -> int:
    """Writes a key, -magnitude * 2^32 + position, for each number that reaches ``bound``; returns their count."""
    found = 0
    for group in range(len(coarse_G)):
        if coarse_G[group] >= bound:
            for member in range(group, len(fine_G), len(coarse_G)):
                if fine_G[member] >= bound:
                    for position in range(member, len(bits_N), len(fine_G)):
                        magnitude = np.int16(bits_N[position] & MAGNITUDE)
                        if magnitude >= bound:
                            keys_Q[found] = (-np.int64(magnitude) << 32) + position
                            found += 1
    return found


@compiled("void(int16[::1], int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[:, ::1])")
def select(bits_N: I16, starts_C: I64, stops_C: I64, counts_C: I64, positions_CE: I64, bits_CE: I64) -> None:
    """Writes position within the chunk and bf16 bits (below 2^16) of each chunk's ``counts_C`` largest entries.

    Chunk c is the numbers ``starts_C[c]`` to ``stops_C[c]``, at least ``counts_C[c]`` of them. Elements behind its
    entries are not written.
    """
    longest = 0
    for c in range(len(starts_C)):
        longest = max(longest, stops_C[c] - starts_C[c])
    keys_Q, fine, coarse = np.empty(longest, np.int64), np.empty(longest, np.int16), np.empty(longest, np.int16)
    for c in range(len(starts_C)):
        chunk = bits_N[starts_C[c] : stops_C[c]]
        count = counts_C[c]
        coarse_G = coarse[: min(len(chunk), max(len(chunk) // (FINE * COARSE), SPARE * count))]
        fine_G = fine[: max(len(chunk) // FINE, len(coarse_G))]
        maxima_of(chunk, fine_G)
        maxima_of(fine_G, coarse_G)
        keys = keys_Q[: keys_of(chunk, fine_G, coarse_G, largest(coarse_G, count), keys_Q)]
        keys.sort()
        for e in range(count):
            positions_CE[c, e] = keys[e] & 0xFFFFFFFF
            bits_CE[c, e] = np.int64(chunk[positions_CE[c, e]]) & 0xFFFF
