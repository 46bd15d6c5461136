"""TOPLOC proofs as bytes, and the constants that worker and validator agree on.

A proof is a polynomial modulo p = 65497 for one chunk of hidden states (``protocol.wire.toploc.definition``):

    offset  size  field
    0       2     modulus: the largest, at most p, that keeps all 128 positions distinct; big-endian
    2       256   128 coefficients below p, ascending, 2 bytes each, big-endian

PURE. Axes: C chunks, F fields of a proof (129).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.errors import Rejected

PRIME = 65497
"""Above every finite bf16 pattern, so that any of them is a residue."""

MODULUS_FLOOR = 1 << 15
"""The reference package gives up at this modulus; honest chunks stay far above it."""

ENTRIES = 128
"""Entries of largest magnitude that a proof commits to, and its number of coefficients."""

PROOF_BYTES = 2 + 2 * ENTRIES

HASH_BYTES = 32
"""Bytes of the hash of a chunk, which follows the polynomial in the runs that compare bits, or stands in its place."""

CHUNK_ROWS = 32
"""Rows of hidden states in one chunk."""

SHORTEST_SPAN = 8
"""Fewest rows of a last chunk: shorter ones are too noisy to stand alone."""

_FIELDS = struct.Struct(f">{1 + ENTRIES}H")


@dataclass(frozen=True, slots=True)
class Proof:
    """The commitment to one chunk: ``modulus`` in (2^15, p], 128 ``coefficients`` below p, ascending."""

    modulus: int
    coefficients: tuple[int, ...]

    def encode(self) -> bytes:
        """Returns the 258 bytes drawn atop this module."""
        return _FIELDS.pack(self.modulus, *self.coefficients)

    @classmethod
    def decode(cls, encoded: bytes) -> Proof:
        """Reads 258 bytes; raises ``Rejected`` as ``decode_fields`` does."""
        modulus, *coefficients = decode_fields([encoded])[0].tolist()
        return cls(modulus, tuple(coefficients))


@dataclass(frozen=True, slots=True)
class Distance:
    """Distance of a proof from the verifier's own rows.

    ``rel``   mean over the verifier's top entries v of min(1, |a - v| / |v|), a the proof's value there.
    ``null``  the least ``rel`` a proof could reach without computing; an honest ``rel`` is a small share of it.
    ``exponent_mismatches``, ``mantissa_mean``, ``mantissa_median`` (the upper)  the reference's figures, sign ignored;
                          both mantissa figures are 2^64 if no exponent agrees.
    ``modulus_canonical`` whether the entries of an honest worker could have led to this modulus.
    """

    rel: float
    null: float
    exponent_mismatches: int
    mantissa_mean: float
    mantissa_median: float
    modulus_canonical: bool


def decode_fields(encoded: Sequence[bytes]) -> NDArray[np.uint16]:
    """Reads proofs of 258 bytes: modulus and coefficients of each, uint16 (C, F).

    Raises:
        Rejected: A proof has another length, or a field is out of its range.
    """
    for proof in encoded:
        if len(proof) != PROOF_BYTES:
            raise Rejected(f"invalid proof of {len(proof)} bytes: expected {PROOF_BYTES}")
    fields_CF = np.frombuffer(b"".join(encoded), dtype=">u2").reshape(-1, 1 + ENTRIES).astype(np.uint16)
    moduli_C, highest = fields_CF[:, 0], int(fields_CF[:, 1:].max(initial=0))
    wrong = moduli_C[(moduli_C <= MODULUS_FLOOR) | (moduli_C > PRIME)]
    if len(wrong):
        raise Rejected(f"invalid proof modulus {wrong[0]}: expected {MODULUS_FLOOR + 1} to {PRIME}")
    if highest >= PRIME:
        raise Rejected(f"invalid proof coefficient {highest}: expected less than {PRIME}")
    return fields_CF


def chunk_spans(rows: int) -> list[tuple[int, int]]:
    """Returns (start, stop) of each chunk of a rollout. A last span under 8 rows joins the one before, if any."""
    starts = list(range(0, rows, CHUNK_ROWS))
    if len(starts) > 1 and rows - starts[-1] < SHORTEST_SPAN:
        starts.pop()
    return list(zip(starts, [*starts[1:], rows], strict=True)) if starts else []
