"""Polynomials modulo p = 65497, many at once: what a TOPLOC proof is made of.

PURE. Residues are whole numbers held in float64: their products stay below 2^33, so every step is exact, and numpy
reduces floats several times faster than it divides integers.

Axes: C polynomials, K points of each, D coefficients, ascending; P powers of a point, B blocks of P coefficients.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

PRIME = 65497
POWERS = 16  # of a point at once: sums of so many products stay exact


def interpolate(x_CK: I64, y_CK: I64, coefficients: int) -> F64:
    """Returns the polynomials through K points each, whole numbers below p in float64 (C, ``coefficients``).

    ``x_CK`` holds numbers below p, distinct within each row; ``y_CK`` any below 2^32. Coefficients from K on are zero.
    Newton's divided differences, then expansion from the last node down, q <- q * (x - x_i) + d_i. All polynomials
    advance together, point axis first so that every step works on contiguous memory.
    """
    x_KC, d_KC = np.ascontiguousarray(x_CK.T), np.ascontiguousarray(y_CK.T).astype(np.float64)
    _reduce(d_KC)
    inverse_R, count = inverses(), len(x_KC)
    for k in range(1, count):
        # A negative difference indexes the table from its end, where the inverse of its residue stands.
        inverse = inverse_R[x_KC[k:] - x_KC[:-k]]
        d_KC[k:] = _reduce((d_KC[k:] - d_KC[k - 1 : -1] + PRIME) * inverse)
    q_DC = np.zeros((coefficients, x_KC.shape[1]))
    minus_x_KC = (PRIME - x_KC).astype(np.float64)
    for degree, i in enumerate(range(count - 1, -1, -1)):
        shifted = q_DC[:degree].copy()
        q_DC[:degree] *= minus_x_KC[i]
        q_DC[1 : degree + 1] += shifted
        q_DC[0] += d_KC[i]
        _reduce(q_DC[: degree + 1])
    return q_DC.T


def evaluate(coefficients_CD: F64, x_CK: I64) -> I64:
    """Returns each polynomial's values at its K points, all below p (int64).

    Blocks of 16 coefficients are matrix products with the points' powers, exact because a sum of 16 products stays
    below 2^36; Horner's scheme in the 16th power joins the blocks.
    """
    count, degrees = coefficients_CD.shape
    points_CK = x_CK.astype(np.float64)
    powers_PCK = _powers(points_CK)
    padded_CD = np.pad(coefficients_CD, ((0, 0), (0, -degrees % POWERS)))
    blocks_CBK = padded_CD.reshape(count, -1, POWERS) @ powers_PCK.transpose(1, 0, 2)
    block_power_CK = _reduce(powers_PCK[-1] * points_CK)
    value_CK = np.zeros_like(points_CK)
    for block in range(blocks_CBK.shape[1] - 1, -1, -1):
        value_CK *= block_power_CK
        value_CK += blocks_CBK[:, block]
        _reduce(value_CK)
    return value_CK.astype(np.int64)


def _powers(points_CK: F64) -> F64:
    """The points' powers 0 to 15 modulo p, (P, C, K)."""
    powers_PCK = np.empty((POWERS, *points_CK.shape))
    powers_PCK[0], powers_PCK[1] = 1.0, points_CK
    known = 2
    while known < POWERS:
        more = min(known - 1, POWERS - known)
        _reduce(np.multiply(powers_PCK[1 : more + 1], powers_PCK[known - 1], out=powers_PCK[known : known + more]))
        known += more
    return powers_PCK


def _reduce(values: F64) -> F64:
    """Reduces whole numbers in [0, 2^48) modulo p in place, exactly: the half keeps the quotient off the borders."""
    quotient = values + 0.5
    quotient *= 1.0 / PRIME
    np.floor(quotient, out=quotient)
    quotient *= PRIME
    values -= quotient
    return values


@functools.cache
def inverses() -> F64:
    """Returns the inverse of each residue modulo p at its index (0 at 0), by Fermat's little theorem."""
    power, result = np.arange(PRIME, dtype=np.float64), np.ones(PRIME)
    for bit in bin(PRIME - 2)[:1:-1]:
        result = _reduce(result * power) if bit == "1" else result
        power = _reduce(power * power)
    return result
