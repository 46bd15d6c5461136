"""The bytes of TOPLOC proofs, one at a time or many at once.

PURE. What the numbers mean: ``protocol.wire.toploc``. A proof is a polynomial modulo p = 65497:

    offset  size  field
    0       2     modulus: the largest, at most p, that keeps all 128 positions distinct; big-endian
    2       256   128 coefficients below p, ascending, 2 bytes each, big-endian

Axes: C chunks, D coefficients (128), F fields (129).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from protocol.errors import Rejected
from protocol.wire.polynomial import F64, I64, PRIME

MODULUS_FLOOR = 1 << 15  # the reference gives up here; honest chunks come nowhere near
ENTRIES = 128
PROOF_BYTES = 2 + 2 * ENTRIES
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


@dataclass(frozen=True, slots=True, eq=False)
class Proofs:
    """The proofs of C chunks: ``moduli_C`` int64, ``coefficients_CD`` whole numbers in float64."""

    moduli_C: I64
    coefficients_CD: F64

    def encode(self) -> list[bytes]:
        """Returns each proof's 258 bytes."""
        fields = np.concatenate([self.moduli_C[:, None], self.coefficients_CD], axis=1).astype(">u2").tobytes()
        return [fields[start : start + PROOF_BYTES] for start in range(0, len(fields), PROOF_BYTES)]

    @classmethod
    def decode(cls, encoded: Sequence[bytes]) -> Proofs:
        """Reads proofs of 258 bytes each; raises ``Rejected`` as ``Proof.decode`` does for the first that is none."""
        fields = b"".join(encoded)
        if set(map(len, encoded)) <= {PROOF_BYTES}:
            fields_CF = np.frombuffer(fields, dtype=">u2").reshape(-1, 1 + ENTRIES)
            moduli_C = fields_CF[:, 0].astype(np.int64)
            in_range = (moduli_C > MODULUS_FLOOR) & (moduli_C <= PRIME) & (fields_CF[:, 1:] < PRIME).all(axis=1)
            if in_range.all():
                return cls(moduli_C, fields_CF[:, 1:].astype(np.float64))
        return cls.of([Proof.decode(one) for one in encoded])  # raises, and says why

    @classmethod
    def of(cls, proofs: Sequence[Proof]) -> Proofs:
        """Puts single proofs side by side."""
        coefficients_CD = np.array([proof.coefficients for proof in proofs], dtype=np.float64)
        return cls(np.array([proof.modulus for proof in proofs], dtype=np.int64), coefficients_CD)

    def take(self, chunks: Sequence[int]) -> Proofs:
        """Returns the proofs of the given chunks."""
        return Proofs(self.moduli_C[chunks], self.coefficients_CD[chunks])
