"""TOPLOC proofs: a 258-byte commitment to 32 rows of hidden states, and its distance from a verifier's own rows.

PURE. Source: "TOPLOC: A Locality Sensitive Hashing Scheme for Trustless Verifiable Inference" (arXiv 2501.16007);
bytes agree with the `toploc` package 0.1.6. The rows are the last hidden states after the final norm, as bf16 bits.
A chunk of rows is flattened, its 128 entries of largest magnitude are kept (of equal ones the first), and a polynomial
modulo p = 65497 (above every finite bf16) is laid through the points (position mod modulus, bf16 bits):

    offset  size  field
    0       2     modulus: the largest, at most p, that keeps all 128 positions distinct; big-endian
    2       256   128 coefficients below p, ascending, 2 bytes each, big-endian

What differs from the package: the verdict counts the sign, is measured against what a forger could reach without
computing, and includes the modulus; failures propagate instead of turning into null proofs. A chunk with fewer than
128 entries interpolates those it has and leaves the highest coefficients zero.

Axes: C chunks, K entries of a chunk, E wider entries, D coefficients (128), T rows, H hidden size.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.wire import polynomial
from protocol.wire.polynomial import F64, I64, PRIME

U16 = NDArray[np.uint16]

MODULUS_FLOOR = 1 << 15  # the reference gives up here; honest chunks come nowhere near
ENTRIES = 128
PROOF_BYTES = 2 + 2 * ENTRIES
CHUNK_ROWS = 32
SHORTEST_SPAN = 8  # shorter spans are too noisy to stand alone
CORE, REACH = ENTRIES // 2, ENTRIES * 2  # what every, and what any, honest top 128 holds
NO_MANTISSA = 2.0**64  # the reference's mantissa error where no exponent agrees
_FORMAT = struct.Struct(f">{1 + ENTRIES}H")


@dataclass(frozen=True, slots=True)
class Proof:
    """One chunk's commitment: ``modulus`` in (2^15, p], 128 ``coefficients`` below p, ascending."""

    modulus: int
    coefficients: tuple[int, ...]

    def encode(self) -> bytes:
        """Returns the 258 bytes drawn atop this module."""
        return _FORMAT.pack(self.modulus, *self.coefficients)

    @classmethod
    def decode(cls, encoded: bytes) -> Proof:
        """Reads 258 bytes; raises ``Rejected`` for any other length, or a field out of its range."""
        if len(encoded) != PROOF_BYTES:
            raise Rejected(f"a proof has {PROOF_BYTES} bytes, not {len(encoded)}")
        modulus, *coefficients = _FORMAT.unpack(encoded)
        if not MODULUS_FLOOR < modulus <= PRIME:
            raise Rejected(f"a proof's modulus lies in ({MODULUS_FLOOR}, {PRIME}], not {modulus}")
        if max(coefficients) >= PRIME:
            raise Rejected(f"a proof's coefficients stay below {PRIME}, one is {max(coefficients)}")
        return cls(modulus, tuple(coefficients))


@dataclass(frozen=True, slots=True)
class Distance:
    """How far a proof is from the verifier's own rows.

    ``rel``   mean over the verifier's top entries v of min(1, |a - v| / |v|), a the proof's value there.
    ``null``  the least ``rel`` a proof could reach without computing; an honest ``rel`` is a small share of it.
    ``exponent_mismatches``, ``mantissa_mean``, ``mantissa_median`` (the upper)  the reference's figures, sign ignored;
                          where no exponent agrees both mantissa errors are 2^64.
    ``modulus_canonical`` whether an honest worker's entries could have led to this modulus.
    """

    rel: float
    null: float
    exponent_mismatches: int
    mantissa_mean: float
    mantissa_median: float
    modulus_canonical: bool


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of largest magnitude of C chunks, in descending order: flat positions and bf16 bits, int64 (C, K)."""

    positions_CK: I64
    bits_CK: I64


def chunk_spans(rows: int, size: int = CHUNK_ROWS) -> list[tuple[int, int]]:
    """Returns (start, stop) of each chunk of a rollout. A last span under 8 rows joins the one before, if any."""
    starts = list(range(0, rows, size))
    if len(starts) > 1 and rows - starts[-1] < min(SHORTEST_SPAN, size):
        starts.pop()
    return list(zip(starts, [*starts[1:], rows], strict=True)) if starts else []


def top_entries(rows_TH: U16, count: int = ENTRIES) -> Entries:
    """Returns the ``count`` entries (or all) of one chunk (bf16 bits) largest in magnitude; of equals, the first."""
    bits = np.ascontiguousarray(rows_TH).reshape(-1).astype(np.int64)
    magnitudes = bits & 0x7FFF
    order = np.argsort(-magnitudes, kind="stable")[:count]
    return Entries(order[None], bits[order][None])


def build(rows_TH: U16) -> Proof:
    """Returns the proof of one chunk of hidden states, given as bf16 bits.

    Raises ``Misconfigured`` where they are empty or not finite: the engine that made them is broken.
    """
    return build_from_entries(top_entries(rows_TH))[0]


def build_from_entries(entries: Entries) -> list[Proof]:
    """Returns the proofs of C chunks from their top entries; raises ``Misconfigured`` as ``build`` does."""
    if entries.bits_CK.shape[1] == 0 or not _all_finite(entries.bits_CK):
        raise Misconfigured("hidden states are missing or not finite: check the model's weights and dtype")
    moduli_C = np.array([canonical_modulus(positions_K) for positions_K in entries.positions_CK], dtype=np.int64)
    coefficients_CD = polynomial.interpolate(entries.positions_CK % moduli_C[:, None], entries.bits_CK, ENTRIES)
    rows = coefficients_CD.astype(np.int64).tolist()
    return [Proof(modulus, tuple(row)) for modulus, row in zip(moduli_C.tolist(), rows, strict=True)]


def canonical_modulus(positions_K: I64) -> int:
    """Returns the largest modulus, at most p, that keeps all positions distinct; ``Misconfigured`` if none does."""
    if int(positions_K.max()) < PRIME:
        return PRIME
    for modulus in range(PRIME, MODULUS_FLOOR, -1):
        if _distinct(positions_K, modulus):
            return modulus
    raise Misconfigured(f"this model cannot be proved: every modulus above {MODULUS_FLOOR} makes positions collide")


def distance(
    rows_TH: U16, proof: Proof, template_H: NDArray[np.float32] | None = None, previous: Proof | U16 | None = None
) -> Distance:
    """Returns how far ``proof`` is from one chunk of the verifier's hidden states, given as bf16 bits.

    ``template_H`` is the calibrated mean of each channel; ``previous`` is the same chunk of another prompt's rollout,
    as its proof or the verifier's rows. Both only sharpen ``null``. Raises ``Unavailable`` where the verifier's own
    rows are empty or not finite: no proof can be blamed for that.
    """
    templates_CK = []
    entries = top_entries(rows_TH, REACH)
    positions_K = entries.positions_CK[0, :ENTRIES]
    if template_H is not None:
        templates_CK.append(template_H[positions_K % rows_TH.shape[1]].astype(np.float64)[None])
    if isinstance(previous, Proof):
        templates_CK.append(evaluate([previous], positions_K[None]))
    elif previous is not None:
        templates_CK.append(values_at(previous, positions_K)[None])
    return distances_from_entries(entries, [proof], templates_CK)[0]


def values_at(rows_TH: U16, positions_K: I64) -> F64:
    """Returns the values of other rows (bf16 bits) at flat positions, float64; NaN beyond their end."""
    flat = np.ascontiguousarray(rows_TH).reshape(-1)
    inside = positions_K < flat.size
    values = np.full(positions_K.shape, np.nan)
    values[inside] = _decode_bf16(flat[positions_K[inside]].astype(np.int64))
    return values


def evaluate(proofs: Sequence[Proof], positions_CK: I64) -> F64:
    """Returns what each chunk's proof claims at the given flat positions, float64 (C, K); NaN or inf where it does."""
    return _decode_bf16(_evaluate_bits(proofs, positions_CK))


def distances_from_entries(entries: Entries, proofs: Sequence[Proof], guesses_CK: Sequence[F64] = ()) -> list[Distance]:
    """Returns the distance of each of C proofs from the verifier's entries of the same chunk.

    ``entries`` holds up to 256 entries a chunk: the first 128 are compared, all serve to judge the modulus.
    ``guesses_CK`` are values a forger could know at the first 128: the least distance of any enters ``null``.
    """
    if entries.bits_CK.shape[1] == 0 or not _all_finite(entries.bits_CK):
        raise Unavailable("the verifier's own hidden states are missing or not finite: abstain")
    positions_CK, own_bits_CK = entries.positions_CK[:, :ENTRIES], entries.bits_CK[:, :ENTRIES]
    claimed_bits_CK = _evaluate_bits(proofs, positions_CK)
    own_CK = _decode_bf16(own_bits_CK)
    rel_C = _relative(_decode_bf16(claimed_bits_CK), own_CK)
    null_C = np.min([_best_constant(own_CK), *(_relative(guess_CK, own_CK) for guess_CK in guesses_CK)], axis=0)
    return [
        Distance(float(rel_C[c]), float(null_C[c]), *_reference_figures(claimed_bits_CK[c], own_bits_CK[c]), canonical)
        for c, canonical in enumerate(map(_modulus_is_canonical, proofs, entries.positions_CK))
    ]


def _modulus_is_canonical(proof: Proof, positions_E: I64) -> bool:
    """Whether some set an honest worker may have kept leads to the proof's modulus.

    Numerical noise swaps entries near rank 128, so the verifier's own top 128 would condemn honest workers at
    H > 2046, where moduli below p occur. Instead: the 64 largest, which every honest set holds, must stay distinct,
    and each larger modulus must make some two of the 256 largest, which no honest set exceeds, collide.
    """
    if not _distinct(positions_E[:CORE], proof.modulus):
        return False
    return not any(_distinct(positions_E, larger) for larger in range(PRIME, proof.modulus, -1))


def _distinct(positions_K: I64, modulus: int) -> bool:
    return len(np.unique(positions_K % modulus)) == len(positions_K)


def _reference_figures(claimed_K: I64, own_K: I64) -> tuple[int, float, float]:
    """Exponent mismatches, then mean and upper median of mantissa differences where exponents agree."""
    agree_K = (claimed_K >> 7 & 0xFF) == (own_K >> 7 & 0xFF)
    if not agree_K.any():
        return len(own_K), NO_MANTISSA, NO_MANTISSA
    errors = np.sort(np.abs((claimed_K & 0x7F) - (own_K & 0x7F))[agree_K])
    return int(len(own_K) - len(errors)), float(errors.mean()), float(errors[len(errors) // 2])


def _relative(guess_CK: F64, own_CK: F64) -> F64:
    """Mean over each chunk of min(1, |guess - own| / |own|), where a guess that is not finite counts 1."""
    error_CK = np.abs(np.where(np.isfinite(guess_CK), guess_CK, np.inf) - own_CK)
    scale_CK = np.abs(own_CK)
    # At own = 0 only an exact guess is right; elsewhere the quotient is exact enough to compare.
    near_CK = error_CK < scale_CK
    terms_CK: F64 = np.where(near_CK, error_CK / np.where(near_CK, scale_CK, 1.0), error_CK > 0)
    return np.asarray(terms_CK.mean(axis=1))


def _best_constant(own_CK: F64) -> F64:
    """The least ``_relative`` of one magnitude with the verifier's own signs.

    As a function of the magnitude it is piecewise linear and turns upward only at an own magnitude: try those. With
    magnitudes sorted, |c - v| / v is below 1 exactly for v > c / 2, and the sums over v <= c and v > c are cumulative.
    """
    own_CK = np.sort(np.abs(own_CK), axis=1)
    return np.array([_best_constant_of(own_K) for own_K in own_CK])


def _best_constant_of(own_K: F64) -> float:
    own_K, zeros = own_K[own_K > 0], int((own_K == 0).sum())
    if not len(own_K):
        return 0.0
    inverse = np.concatenate([[0.0], np.cumsum(1.0 / own_K)])
    count = len(own_K)
    low = np.searchsorted(own_K, own_K / 2, side="right")  # below: saturated at 1
    here = np.searchsorted(own_K, own_K, side="right")  # low..here: c / v - 1; here..: 1 - c / v
    below = own_K * (inverse[here] - inverse[low]) - (here - low)
    above = (count - here) - own_K * (inverse[count] - inverse[here])
    # The constant is wrong at every zero, or zero itself is the constant and wrong everywhere else.
    return float(min((low + below + above).min() + zeros, count)) / (count + zeros)


def _all_finite(bits: I64) -> bool:
    return bool(((bits & 0x7F80) != 0x7F80).all())


def _decode_bf16(bits: I64) -> F64:
    """bf16 bits as float64, whatever is not finite as a quiet NaN (signalling ones would warn when converted)."""
    bits = np.where((bits & 0x7F80) == 0x7F80, 0x7FC0, bits)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def _evaluate_bits(proofs: Sequence[Proof], positions_CK: I64) -> I64:
    """The proofs' polynomials at flat positions: bf16 bits, int64 (C, K)."""
    moduli_C = np.array([proof.modulus for proof in proofs], dtype=np.int64)
    coefficients_CD = np.array([proof.coefficients for proof in proofs], dtype=np.float64)
    return polynomial.evaluate(coefficients_CD, positions_CK % moduli_C[:, None])
