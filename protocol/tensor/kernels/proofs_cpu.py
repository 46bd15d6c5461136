"""Compiled TOPLOC proofs and distances: moduli, interpolation, evaluation and figures of many chunks.

Import it late, see ``protocol.compiled``. Results equal ``protocol.wire.toploc.definition`` to the last
bit.

Residues modulo p = 2^16 - 39 are u32 below p, so that a product plus a residue stays below 2^32, and reduction folds
the upper half onto the lower without a division: 2^16 = 39.

Axes: C chunks, E entries of each (K compared), F fields of a proof (129), D coefficients (128), R residues (p),
X figures, W entries and padding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protocol.compiled import compiled, inlined
from protocol.wire.toploc.codec import ENTRIES, MODULUS_FLOOR, PRIME
from protocol.wire.toploc.definition import CORE, NO_MANTISSA

F64 = NDArray[np.float64]
U16 = NDArray[np.uint16]
U32 = NDArray[np.uint32]
I64 = NDArray[np.int64]

HALF, LOW, FOLD, P = np.uint32(16), np.uint32(0xFFFF), np.uint32(65536 - PRIME), np.uint32(PRIME)
VECTORS = 32  # numbers that a vectorised loop takes at once: four vectors of AVX2
WIDE = ENTRIES + 2 * VECTORS


@inlined
def reduced(number: np.uint32) -> np.uint32:
    """Returns a u32 modulo p: two folds leave less than 2p, and subtracting p from less than p wraps to more."""
    once = np.uint32(np.uint32(FOLD * np.uint32(number >> HALF)) + np.uint32(number & LOW))
    twice = np.uint32(np.uint32(FOLD * np.uint32(once >> HALF)) + np.uint32(once & LOW))
    wrapped = np.uint32(twice - P)
    return twice if twice < wrapped else wrapped


@inlined
def less(one: np.uint32, other: np.uint32) -> np.uint32:
    """Returns the difference of two residues modulo p."""
    difference = np.uint32(one - other)
    wrapped = np.uint32(difference + P)
    return difference if difference < wrapped else wrapped


@inlined
def distinct(positions_K: I64, modulus: int, seen_R: U32, mark: int) -> bool:
    """Returns whether the positions differ modulo ``modulus``; ``mark`` must be new to ``seen_R``."""
    for position in positions_K:
        residue = position % modulus
        if seen_R[residue] == mark:
            return False
        seen_R[residue] = mark
    return True


@inlined
def largest_modulus(positions_K: I64, above: int, seen_R: U32, mark: int) -> tuple[int, int]:
    """Returns the largest modulus above ``above`` that keeps the positions distinct (0 if none), and the next mark."""
    for modulus in range(PRIME, above, -1):
        mark += 1
        if distinct(positions_K, modulus, seen_R, mark):
            return modulus, mark
    return 0, mark


@inlined
def interpolate(count: int, x_W: U32, d_W: U32, inverses_R: U16, factor_W: U32, before_W: U32, q_W: U32) -> None:
    """Writes the coefficients of the polynomial through ``count`` points (x, d); d becomes its divided differences.

    Each loop reads a copy of what it overwrites, since a loop that reads its own results is not vectorised, and runs
    over a whole number of vectors, into padding that no result depends on.
    """
    for k in range(1, count):
        width = (count - k + VECTORS - 1) // VECTORS * VECTORS
        near_W, far_W, d_above_W, d_below_W = x_W[k:], x_W[:width], d_W[k:], d_W[k - 1 :]
        for i in range(width):
            factor_W[i], before_W[i] = less(near_W[i], far_W[i]), d_below_W[i]
        for i in range(width):
            factor_W[i] = inverses_R[factor_W[i]]
        for i in range(width):
            d_above_W[i] = reduced(np.uint32(less(d_above_W[i], before_W[i]) * factor_W[i]))
    q_W[:] = 0
    for step in range(count):
        width = (step + VECTORS) // VECTORS * VECTORS
        minus_x, before_W[0] = np.uint32(P - x_W[count - 1 - step]), d_W[count - 1 - step]
        for degree in range(width):
            before_W[degree + 1] = q_W[degree]
        for degree in range(width):
            q_W[degree] = reduced(np.uint32(np.uint32(q_W[degree] * minus_x) + before_W[degree]))


@inlined
def evaluate(coefficients_D: U16, x_K: U32, value_K: U32) -> None:
    """Writes the polynomial's value at each point, by Horner's scheme for all points at once."""
    value_K[:] = 0
    for degree in range(len(coefficients_D) - 1, -1, -1):
        coefficient = np.uint32(coefficients_D[degree])
        for k in range(len(x_K)):
            value_K[k] = reduced(np.uint32(np.uint32(value_K[k] * x_K[k]) + coefficient))


@compiled("int64(int64[:, ::1], int64[:, ::1], int64[::1], uint16[::1], uint16[:, ::1])")
def build(positions_CE: I64, bits_CE: I64, counts_C: I64, inverses_R: U16, fields_CF: U16) -> int:
    """Writes the fields of each chunk's proof, modulus and coefficients.

    Returns the number of chunks written: it stops at the first chunk without a modulus.
    """
    seen_R, mark = np.zeros(PRIME, np.uint32), 0
    x_W, d_W, q_W = np.zeros(WIDE, np.uint32), np.zeros(WIDE, np.uint32), np.zeros(WIDE, np.uint32)
    factor_W, before_W = np.zeros(WIDE, np.uint32), np.zeros(WIDE, np.uint32)
    for c in range(len(counts_C)):
        count = counts_C[c]
        modulus, mark = largest_modulus(positions_CE[c, :count], MODULUS_FLOOR, seen_R, mark)
        if modulus == 0:
            return c
        for k in range(count):
            x_W[k], d_W[k] = positions_CE[c, k] % modulus, bits_CE[c, k] % PRIME
        interpolate(count, x_W, d_W, inverses_R, factor_W, before_W, q_W)
        fields_CF[c, 0] = modulus
        for degree in range(ENTRIES):
            fields_CF[c, 1 + degree] = q_W[degree]
    return len(counts_C)


@inlined
def is_canonical(positions_E: I64, modulus: int, seen_R: U32, mark: int) -> tuple[bool, int]:
    """Returns whether an honest worker's entries could have led to this modulus, and the next mark."""
    if not distinct(positions_E[:CORE], modulus, seen_R, mark + 1):
        return False, mark + 1
    larger, mark = largest_modulus(positions_E, modulus, seen_R, mark + 1)
    return larger == 0, mark


@inlined
def mean(terms_K: F64) -> float:
    """Returns the mean of at most 128 numbers, added in numpy's order: eight sums side by side, joined in pairs."""
    count, total = len(terms_K), 0.0
    lanes = np.zeros(8)
    whole = count - count % 8
    for i in range(0, whole, 8):
        for lane in range(8):
            lanes[lane] += terms_K[i + lane]
    total = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))
    for i in range(whole, count):
        total += terms_K[i]
    return float(total / count)


@inlined
def relative(guess_K: F64, own_K: F64, terms_K: F64) -> float:
    """Returns the mean of min(1, |guess - own| / |own|); a guess that is not finite counts 1."""
    for k in range(len(own_K)):
        error, scale = abs(guess_K[k] - own_K[k]), abs(own_K[k])
        # Comparisons with NaN are false, so a value that is not finite fails both tests.
        if error < scale:
            terms_K[k] = error / scale
        else:
            terms_K[k] = 0.0 if error == 0 else 1.0
    total: float = mean(terms_K[: len(own_K)])
    return total


@inlined
def best_constant(own_K: F64) -> float:
    """Returns the least ``relative`` of one magnitude with the verifier's own signs; see the definition."""
    count = len(own_K)
    own_K = np.abs(own_K[::-1])  # they come in descending order
    sums_J, zeros = np.zeros(count + 1), 0
    for k in range(count):
        zeros += own_K[k] == 0
        sums_J[k + 1] = sums_J[k] + (1.0 / own_K[k] if own_K[k] > 0 else 0.0)
    best, low, here = float(count - zeros), zeros, zeros
    for k in range(zeros, count):
        while low < count and own_K[low] <= own_K[k] / 2:
            low += 1
        while here < count and own_K[here] <= own_K[k]:
            here += 1
        below = own_K[k] * (sums_J[here] - sums_J[low]) - (here - low)
        above = (count - here) - own_K[k] * (sums_J[count] - sums_J[here])
        best = min(best, ((low - zeros) + below + above) + zeros)
    return best / count


@inlined
def reference_figures(claimed_K: U32, own_bits_K: I64, figures_X: F64) -> None:
    """Writes exponent mismatches, then mean and upper median of mantissa differences where exponents agree."""
    errors, agreeing, total = np.zeros(128, np.int64), 0, 0
    for k in range(len(claimed_K)):
        own, claimed = own_bits_K[k], np.int64(claimed_K[k])
        if (own ^ claimed) & 0x7F80 == 0:
            error = abs((own & 0x7F) - (claimed & 0x7F))
            errors[error] += 1
            agreeing, total = agreeing + 1, total + error
    median, passed = -1, 0
    while agreeing and passed <= agreeing // 2:
        median += 1
        passed += errors[median]
    figures_X[0] = len(claimed_K) - agreeing
    figures_X[1] = total / agreeing if agreeing else NO_MANTISSA
    figures_X[2] = median if agreeing else NO_MANTISSA


@compiled("void(int64[:, ::1], int64[:, ::1], int64[::1], uint16[:, ::1], float64[:, ::1], float64[:, ::1])")
def measure(positions_CE: I64, bits_CE: I64, counts_C: I64, fields_CF: U16, guess_CK: F64, figures_CX: F64) -> None:
    """Writes the six figures of each chunk's ``Distance``, in its order. ``guess_CK`` may be empty."""
    seen_R, mark = np.zeros(PRIME, np.uint32), 0
    patterns, terms_K = np.zeros(2 * ENTRIES, np.uint32), np.empty(ENTRIES)
    values = patterns.view(np.float32)
    for c in range(len(counts_C)):
        count, modulus = min(counts_C[c], ENTRIES), int(fields_CF[c, 0])
        x_K, claimed_K = np.empty(count, np.uint32), np.empty(count, np.uint32)
        for k in range(count):
            x_K[k] = positions_CE[c, k] % modulus
        evaluate(fields_CF[c, 1:], x_K, claimed_K)
        for k in range(count):
            patterns[k], patterns[ENTRIES + k] = claimed_K[k] << HALF, bits_CE[c, k] << 16
        own_K = values[ENTRIES : ENTRIES + count].astype(np.float64)
        figures_CX[c, 0] = relative(values[:count].astype(np.float64), own_K, terms_K)
        figures_CX[c, 1] = best_constant(own_K)
        if len(guess_CK):
            figures_CX[c, 1] = min(figures_CX[c, 1], relative(guess_CK[c], own_K, terms_K))
        reference_figures(claimed_K, bits_CE[c], figures_CX[c, 2:5])
        figures_CX[c, 5], mark = is_canonical(positions_CE[c, : counts_C[c]], modulus, seen_R, mark)
