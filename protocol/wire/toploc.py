"""TOPLOC proofs: a 258-byte commitment to 32 rows of hidden states, and its distance from a verifier's own rows.

PURE. Source: "TOPLOC: A Locality Sensitive Hashing Scheme for Trustless Verifiable Inference" (arXiv 2501.16007);
proofs agree with the `toploc` package 0.1.6. The rows are the last hidden states after the final norm, as bf16 bits.
A chunk of rows is flattened, its 128 entries of largest magnitude are kept (of equal ones the first), and a polynomial
modulo p = 65497 (above every finite bf16) is laid through the points (position mod modulus, bf16 bits), where modulus
is the largest, at most p, that keeps all positions distinct. The bytes are drawn atop ``protocol.wire.proof_codec``.

What differs from the package: the verdict counts the sign, is measured against what a forger could reach without
computing, and includes the modulus; failures propagate instead of turning into null proofs. A chunk with fewer than
128 entries interpolates those it has and leaves the highest coefficients zero.

Axes: C chunks, K entries of a chunk, E wider entries, D coefficients (128), T rows, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.errors import Misconfigured, Unavailable
from protocol.wire import polynomial
from protocol.wire.polynomial import F64, I64, PRIME
from protocol.wire.proof_codec import ENTRIES, MODULUS_FLOOR, Proof, Proofs

U16 = NDArray[np.uint16]
BOOL = NDArray[np.bool_]

CHUNK_ROWS = 32
SHORTEST_SPAN = 8  # shorter spans are too noisy to stand alone
CORE, REACH = ENTRIES // 2, ENTRIES * 2  # what every, and what any, honest top 128 holds
NO_MANTISSA = 2.0**64  # the reference's mantissa error where no exponent agrees

NOT_FINITE = "hidden states are missing or not finite: check the model's weights and dtype"
OWN_NOT_FINITE = "the verifier's own hidden states are missing or not finite: abstain"
POSITIONS_COLLIDE = f"this model cannot be proved: every modulus above {MODULUS_FLOOR} makes positions collide"


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
    return Proof.decode(build_from_entries(top_entries(rows_TH)).encode()[0])


def build_from_entries(entries: Entries) -> Proofs:
    """Returns the proofs of C chunks from their top entries; raises ``Misconfigured`` as ``build`` does."""
    if entries.bits_CK.shape[1] == 0 or not _all_finite(entries.bits_CK):
        raise Misconfigured(NOT_FINITE)
    moduli_C = canonical_moduli(entries.positions_CK)
    positions_CK = entries.positions_CK % moduli_C[:, None]
    return Proofs(moduli_C, polynomial.interpolate(positions_CK, entries.bits_CK, ENTRIES))


def canonical_moduli(positions_CK: I64) -> I64:
    """Returns the largest modulus, at most p, that keeps each chunk's positions distinct, (C,).

    Raises ``Misconfigured`` where none above 2^15 does.
    """
    moduli_C = _largest_moduli(positions_CK, MODULUS_FLOOR)
    if not moduli_C.all():
        raise Misconfigured(POSITIONS_COLLIDE)
    return moduli_C


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
        templates_CK.append(evaluate(Proofs.of([previous]), positions_K[None]))
    elif previous is not None:
        templates_CK.append(values_at(previous, positions_K)[None])
    return distances_from_entries(entries, Proofs.of([proof]), templates_CK)[0]


def values_at(rows_TH: U16, positions_K: I64) -> F64:
    """Returns the values of other rows (bf16 bits) at flat positions, float64; NaN beyond their end."""
    flat = np.ascontiguousarray(rows_TH).reshape(-1)
    inside = positions_K < flat.size
    values = np.full(positions_K.shape, np.nan)
    values[inside] = _decode_bf16(flat[positions_K[inside]].astype(np.int64))
    return values


def evaluate(proofs: Proofs, positions_CK: I64) -> F64:
    """Returns what each chunk's proof claims at the given flat positions, float64 (C, K); NaN or inf where it does."""
    return _decode_bf16(_evaluate_bits(proofs, positions_CK))


def distances_from_entries(entries: Entries, proofs: Proofs, guesses_CK: Sequence[F64] = ()) -> list[Distance]:
    """Returns the distance of each of C proofs from the verifier's entries of the same chunk.

    ``entries`` holds up to 256 entries a chunk: the first 128 are compared, all serve to judge the modulus.
    ``guesses_CK`` are values a forger could know at the first 128: the least distance of any enters ``null``.
    """
    if entries.bits_CK.shape[1] == 0 or not _all_finite(entries.bits_CK):
        raise Unavailable(OWN_NOT_FINITE)
    positions_CK, own_bits_CK = entries.positions_CK[:, :ENTRIES], entries.bits_CK[:, :ENTRIES]
    claimed_bits_CK = _evaluate_bits(proofs, positions_CK)
    own_CK = _decode_bf16(own_bits_CK)
    rel_C = _relative(_decode_bf16(claimed_bits_CK), own_CK)
    null_C = np.min([_best_constant(own_CK), *(_relative(guess_CK, own_CK) for guess_CK in guesses_CK)], axis=0)
    figures = *_reference_figures(claimed_bits_CK, own_bits_CK), _moduli_are_canonical(proofs, entries.positions_CK)
    columns = [column_C.tolist() for column_C in (rel_C, null_C, *figures)]
    return [Distance(*figures_of_one) for figures_of_one in zip(*columns, strict=True)]


def _moduli_are_canonical(proofs: Proofs, positions_CE: I64) -> BOOL:
    """Whether some set an honest worker may have kept leads to each proof's modulus, (C,).

    Numerical noise swaps entries near rank 128, so the verifier's own top 128 would condemn honest workers at
    H > 2046, where moduli below p occur. Instead: the 64 largest, which every honest set holds, must stay distinct,
    and each larger modulus must make some two of the 256 largest, which no honest set exceeds, collide.
    """
    canonical_C = _distinct(positions_CE[:, :CORE] % proofs.moduli_C[:, None])
    smaller = np.flatnonzero(canonical_C & (proofs.moduli_C < PRIME))
    canonical_C[smaller] = _largest_moduli(positions_CE[smaller], proofs.moduli_C[smaller]) == 0
    return canonical_C


def _largest_moduli(positions_CK: I64, above: I64 | int) -> I64:
    """The largest modulus above ``above`` (per chunk, or for all) and at most p that keeps each chunk's positions
    distinct, (C,); 0 where none does."""
    moduli_C = np.zeros(len(positions_CK), dtype=np.int64)
    above_C = np.broadcast_to(above, moduli_C.shape)
    searching = np.flatnonzero(above_C < PRIME)
    for modulus in range(PRIME, MODULUS_FLOOR, -1):
        if not len(searching):
            break
        found = _distinct(positions_CK[searching] % modulus)
        moduli_C[searching[found]] = modulus
        searching = searching[~found & (above_C[searching] < modulus - 1)]
    return moduli_C


def _distinct(residues_CK: I64) -> BOOL:
    """Whether each row's numbers differ from one another, (C,)."""
    ordered_CK = np.sort(residues_CK, axis=1)
    return np.asarray((ordered_CK[:, 1:] != ordered_CK[:, :-1]).all(axis=1))


def _reference_figures(claimed_CK: I64, own_CK: I64) -> tuple[I64, F64, F64]:
    """Exponent mismatches, then mean and upper median of mantissa differences where exponents agree, each (C,)."""
    agree_CK = ((claimed_CK ^ own_CK) & 0x7F80) == 0
    agreeing_C = agree_CK.sum(axis=1)
    errors_CK = np.abs((claimed_CK & 0x7F) - (own_CK & 0x7F))
    counted_C = np.maximum(agreeing_C, 1)
    mean_C = np.where(agree_CK, errors_CK, 0).sum(axis=1) / counted_C
    ordered_CK = np.sort(np.where(agree_CK, errors_CK, 0xFF).astype(np.uint8), axis=1)
    median_C = np.take_along_axis(ordered_CK, (agreeing_C // 2)[:, None] % ordered_CK.shape[1], axis=1)[:, 0]
    none_C = agreeing_C == 0
    mismatches_C = own_CK.shape[1] - agreeing_C
    return mismatches_C, np.where(none_C, NO_MANTISSA, mean_C), np.where(none_C, NO_MANTISSA, median_C)


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
    count = own_CK.shape[1]
    zeros_C = (own_CK == 0).sum(axis=1)
    inverse_CK = np.divide(1.0, own_CK, out=np.zeros_like(own_CK), where=own_CK > 0)
    inverse_CJ = np.cumsum(np.pad(inverse_CK, ((0, 0), (1, 0))), axis=1)  # sums over the first 0..K magnitudes
    low_CK = np.maximum(_places(own_CK, own_CK / 2), zeros_C[:, None])  # zeros..low: saturated at 1
    here_CK = _places(own_CK, own_CK)  # low..here: c / v - 1; here..: 1 - c / v
    below_here_CK = np.take_along_axis(inverse_CJ, here_CK, axis=1)
    below_low_CK = np.take_along_axis(inverse_CJ, low_CK, axis=1)
    below_CK = own_CK * (below_here_CK - below_low_CK) - (here_CK - low_CK)
    above_CK = (count - here_CK) - own_CK * (inverse_CJ[:, -1:] - below_here_CK)
    # The constant is wrong at every zero, or zero itself is the constant and wrong everywhere else.
    terms_CK = np.where(own_CK > 0, (low_CK - zeros_C[:, None]) + below_CK + above_CK, np.inf)
    best_C: F64 = np.minimum(terms_CK.min(axis=1) + zeros_C, count - zeros_C) / count
    return best_C


def _places(ordered_CK: F64, wanted_CK: F64) -> I64:
    """How many numbers of each ordered row are at most each number wanted of it, (C, K). bf16 values or their halves.

    Non-negative float32 order like their bits, so a row's number before the bits lets one search serve all rows.
    """
    row_C1 = np.arange(len(ordered_CK), dtype=np.int64)[:, None]
    ordered, wanted = (
        (values_CK.astype(np.float32).view(np.uint32).astype(np.int64) | row_C1 << 32).reshape(-1)
        for values_CK in (ordered_CK, wanted_CK)
    )
    places_CK = np.searchsorted(ordered, wanted, side="right").reshape(wanted_CK.shape)
    return np.asarray(places_CK - row_C1 * ordered_CK.shape[1])


def _all_finite(bits: I64) -> bool:
    return bool(((bits & 0x7F80) != 0x7F80).all())


def _decode_bf16(bits: I64) -> F64:
    """bf16 bits as float64, whatever is not finite as a quiet NaN (signalling ones would warn when converted)."""
    bits = np.where((bits & 0x7F80) == 0x7F80, 0x7FC0, bits)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def _evaluate_bits(proofs: Proofs, positions_CK: I64) -> I64:
    """The proofs' polynomials at flat positions: bf16 bits, int64 (C, K)."""
    return polynomial.evaluate(proofs.coefficients_CD, positions_CK % proofs.moduli_C[:, None])
