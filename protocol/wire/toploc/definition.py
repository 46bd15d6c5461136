"""The definition of TOPLOC: from the rows of one chunk to a proof, and from a proof to its distance from other rows.

PURE. Source: "TOPLOC: A Locality Sensitive Hashing Scheme for Trustless Verifiable Inference" (arXiv 2501.16007);
proofs agree with the `toploc` package 0.1.6. The rows are the last hidden states after the final norm, as bf16 bits.

    rows (T, H) --flatten--> the 128 entries of largest magnitude, the first of equal ones: positions, bits
    modulus      the largest, from p = 65497 down to 2^15 + 1, that keeps all positions distinct
    polynomial   modulo p, of degree below 128, through the points (position mod modulus, bits)

Differences from the package: the distance counts the sign, is measured against what a forger could reach without
computing, and covers the modulus; failures propagate instead of turning into null proofs. A chunk with fewer than 128
entries interpolates those it has and leaves the highest coefficients zero.

``protocol.tensor`` compiles the same maths for many chunks, equal to the last bit, and calls this module where numba
does not load.

Axes: T rows, H hidden size, E entries, K entries that are compared (128 of E), D coefficients (128), R residues (p).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from protocol.errors import Misconfigured, Unavailable
from protocol.wire.toploc.codec import ENTRIES, MODULUS_FLOOR, PRIME, Distance, Proof

U16 = NDArray[np.uint16]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

CORE, REACH = ENTRIES // 2, ENTRIES * 2
"""Entries that every honest top 128 holds, and entries that no honest top 128 exceeds."""

NO_MANTISSA = 2.0**64
"""The reference's mantissa figure if no exponent agrees."""

NOT_FINITE = "hidden states are missing or not finite: check the model's weights and dtype"
OWN_NOT_FINITE = "the verifier's own hidden states are missing or not finite: abstain"
POSITIONS_COLLIDE = f"this model cannot be proved: every modulus above {MODULUS_FLOOR} makes positions collide"


def build(rows_TH: U16) -> Proof:
    """Returns the proof of one chunk.

    Raises:
        Misconfigured: The rows are empty or not finite (the engine is broken), or no modulus fits.
    """
    positions_K, bits_K = top_entries(rows_TH)
    if not _finite(bits_K):
        raise Misconfigured(NOT_FINITE)
    modulus = largest_modulus(positions_K, MODULUS_FLOOR)
    if not modulus:
        raise Misconfigured(POSITIONS_COLLIDE)
    return Proof(modulus, tuple(interpolate(positions_K % modulus, bits_K).tolist()))


def distance(rows_TH: U16, proof: Proof, previous_TH: U16 | None = None) -> Distance:
    """Returns the distance of ``proof`` from one chunk of the verifier's rows.

    ``previous_TH`` is the same chunk of another prompt's rollout: a guess that a forger could make, which can only
    lower ``null``.

    Raises:
        Unavailable: The verifier's own rows are empty or not finite, which no proof can be blamed for.
    """
    positions_E, bits_E = top_entries(rows_TH, REACH)
    if not _finite(bits_E):
        raise Unavailable(OWN_NOT_FINITE)
    positions_K, own_bits_K = positions_E[:ENTRIES], bits_E[:ENTRIES]
    claimed_bits_K = evaluate(proof.coefficients, positions_K % proof.modulus)
    own_K = decode_bf16(own_bits_K)
    null = best_constant(own_K)
    if previous_TH is not None:
        null = min(null, relative(values_at(previous_TH, positions_K), own_K))
    figures = reference_figures(claimed_bits_K, own_bits_K)
    canonical = modulus_is_canonical(proof.modulus, positions_E)
    return Distance(relative(decode_bf16(claimed_bits_K), own_K), null, *figures, canonical)


def top_entries(rows_TH: U16, count: int = ENTRIES) -> tuple[I64, I64]:
    """Returns flat positions and bf16 bits, int64 (E,), of the ``count`` entries (or all) largest in magnitude.

    They come in descending order of magnitude, equal ones in order of position.
    """
    bits = rows_TH.reshape(-1).astype(np.int64)
    order = np.argsort(-(bits & 0x7FFF), kind="stable")[:count]
    return order, bits[order]


def largest_modulus(positions_K: I64, above: int) -> int:
    """Returns the largest modulus, above ``above`` and at most p, that keeps the positions distinct; 0 if none does."""
    return next((modulus for modulus in range(PRIME, above, -1) if _distinct(positions_K % modulus)), 0)


def modulus_is_canonical(modulus: int, positions_E: I64) -> bool:
    """Returns whether some set of entries that an honest worker may have kept leads to ``modulus``.

    Numerical noise swaps entries near rank 128, so the verifier's own top 128 would condemn honest workers at
    H > 2046, where moduli below p occur. Instead the 64 largest entries, which every honest set holds, must stay
    distinct, and each larger modulus must make two of the 256 largest, which no honest set exceeds, collide.
    """
    return _distinct(positions_E[:CORE] % modulus) and largest_modulus(positions_E, modulus) == 0


def interpolate(x_K: I64, y_K: I64) -> I64:
    """Returns the 128 coefficients, ascending, of the polynomial modulo p through at most 128 points with distinct x.

    Newton's divided differences, then expansion from the last node down: q <- q * (x - x_k) + d_k.
    """
    differences_K = y_K % PRIME
    for k in range(1, len(x_K)):
        inverse = inverses()[(x_K[k:] - x_K[:-k]) % PRIME]
        differences_K[k:] = (differences_K[k:] - differences_K[k - 1 : -1]) * inverse % PRIME
    q_D = np.zeros(ENTRIES, dtype=np.int64)
    for x, difference in zip(x_K[::-1], differences_K[::-1], strict=True):
        shifted_D = np.concatenate([[difference], q_D[:-1]])
        q_D = (shifted_D - q_D * x) % PRIME
    return q_D


def evaluate(coefficients_D: Sequence[int], x_K: I64) -> I64:
    """Returns the values of a polynomial modulo p at each x, by Horner's scheme."""
    values_K = np.zeros_like(x_K)
    for coefficient in reversed(coefficients_D):
        values_K = (values_K * x_K + coefficient) % PRIME
    return values_K


@functools.cache
def inverses() -> I64:
    """Returns the inverse of each residue modulo p at its index (0 at 0), int64 (R,)."""
    return np.array([0, *(pow(residue, -1, PRIME) for residue in range(1, PRIME))], dtype=np.int64)


def relative(guess_K: F64, own_K: F64) -> float:
    """Returns the mean of min(1, |guess - own| / |own|); a guess that is not finite counts 1."""
    error_K = np.abs(np.where(np.isfinite(guess_K), guess_K, np.inf) - own_K)
    scale_K = np.abs(own_K)
    # At own = 0 only an exact guess is right.
    near_K = error_K < scale_K
    return float(np.where(near_K, error_K / np.where(near_K, scale_K, 1.0), error_K > 0).mean())


def best_constant(own_K: F64) -> float:
    """Returns the least ``relative`` of one magnitude with the verifier's own signs.

    As a function of the magnitude c it is piecewise linear and turns upward only at an own magnitude, so those are
    tried, and zero. |c - v| / v is below 1 exactly for v > c / 2; sums over v <= c and v > c are cumulative.
    """
    ordered_K = np.sort(np.abs(own_K))
    c = ordered_K[ordered_K > 0]
    zeros, count = len(ordered_K) - len(c), len(c)
    inverse_sums = np.concatenate([[0.0], np.cumsum(1.0 / c)])
    low, here = np.searchsorted(c, c / 2, side="right"), np.searchsorted(c, c, side="right")
    below = c * (inverse_sums[here] - inverse_sums[low]) - (here - low)
    above = (count - here) - c * (inverse_sums[-1] - inverse_sums[here])
    # A constant is wrong at every zero; zero itself is wrong everywhere else.
    return float(min(np.min(low + below + above, initial=np.inf) + zeros, count) / len(ordered_K))


def reference_figures(claimed_bits_K: I64, own_bits_K: I64) -> tuple[int, float, float]:
    """Returns exponent mismatches, then mean and upper median of mantissa differences where exponents agree."""
    agree_K = ((claimed_bits_K ^ own_bits_K) & 0x7F80) == 0
    errors = np.sort(np.abs((claimed_bits_K & 0x7F) - (own_bits_K & 0x7F))[agree_K])
    if not len(errors):
        return len(own_bits_K), NO_MANTISSA, NO_MANTISSA
    return len(own_bits_K) - len(errors), float(errors.mean()), float(errors[len(errors) // 2])


def values_at(rows_TH: U16, positions_K: I64) -> F64:
    """Returns the values of rows (bf16 bits) at flat positions, float64; NaN beyond their end."""
    bits = np.append(rows_TH.reshape(-1).astype(np.int64), 0x7FC0)
    return decode_bf16(bits[np.minimum(positions_K, len(bits) - 1)])


def decode_bf16(bits: I64) -> F64:
    """Returns bf16 bits as float64; all patterns that are not finite become a quiet NaN, since others would warn."""
    bits = np.where((bits & 0x7F80) == 0x7F80, 0x7FC0, bits)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def _distinct(residues_K: I64) -> bool:
    return len(np.unique(residues_K)) == len(residues_K)


def _finite(bits_E: I64) -> bool:
    """Returns whether there are entries and the first, the largest in magnitude, is finite."""
    return len(bits_E) > 0 and bool(bits_E[0] & 0x7F80 != 0x7F80)
