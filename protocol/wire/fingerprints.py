"""Fingerprints: figures of a juror's own prefill in its bundle, which show that somebody ran the model.

For each rollout n of a measured job, one row of the last chunk of its hidden states before the LM head (bf16):

    places      = SHAKE-256("assize/fingerprint/rows/1" ‖ job seed ‖ uint32 juror), eight bytes a rollout;
                  row n = the n-th number, modulo the chunk's rows
    signs       = SHAKE-256("assize/fingerprint/signs/1" ‖ draw seed ‖ job seed ‖ uint32 juror), a bit an entry, highest
                  first, 0 for +1 and 1 for −1: the H of a projection, the eight of a rollout, the rollouts
    projections = eight sums of the row's H entries under these signs, in float64, then rounded to float32
    gap         = logits between the seeded choice at that row and its runner-up, in float32

Integers are big-endian.
The row is known once the round has opened, so that a juror that judges before the draw keeps one row of each rollout;
the signs are known once it is drawn. The juror enters both, so that no juror's fingerprint serves another.

Such sums are exact where a row's entries span less than 2^34, so they do not depend on an order: two fingerprints
differ in a bit only if the rows do. An engine's rows may depend on what else is in its batch, and so the figure of a
rollout is a distance; see ``compare``. PURE.

Axes: N rollouts, T rows of a rollout, H hidden size, K projections.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from protocol.wire.toploc.codec import chunk_spans

PROJECTIONS = 8
TINY = 1e-30
"""Keeps the distance from a row of zeros finite."""

F32 = NDArray[np.float32]
U16 = NDArray[np.uint16]


class Likeness(Enum):
    """Outcome of comparing one rollout's figures in a bundle with a verifier's own.

    EQUAL  to the bit
    NEAR   as two honest prefills of the same tokens may differ
    APART  further: the juror did not run this model over these tokens, or ran it for another juror
    """

    EQUAL = "equal"
    NEAR = "near"
    APART = "apart"


@dataclass(frozen=True, slots=True)
class Compared:
    """The fingerprint of one rollout against a verifier's own.

    distance  relative distance of the projections: of the root of their summed squares
    gap       difference of the gaps, in logits
    """

    likeness: Likeness
    distance: float
    gap: float


def rows_of(job_seed: bytes, juror: int, lengths: Sequence[int]) -> list[int]:
    """Returns which row of each rollout its fingerprint is of; ``lengths`` are the rollouts' rows."""
    key = b"assize/fingerprint/rows/1" + job_seed + juror.to_bytes(4, "big")
    places = np.frombuffer(hashlib.shake_256(key).digest(8 * len(lengths)), ">u8").tolist()
    chunks = [chunk_spans(length)[-1] for length in lengths]
    return [start + place % (stop - start) for place, (start, stop) in zip(places, chunks, strict=True)]


def project(draw_seed: bytes, job_seed: bytes, juror: int, rows_NH: U16) -> F32:
    """Returns the projections (N, K) of one row of each rollout, given as the bits of bf16 numbers."""
    rollouts, hidden = rows_NH.shape
    count = rollouts * PROJECTIONS * hidden
    key = b"assize/fingerprint/signs/1" + draw_seed + job_seed + juror.to_bytes(4, "big")
    bits = np.unpackbits(np.frombuffer(hashlib.shake_256(key).digest(-(-count // 8)), np.uint8), count=count)
    negative_NKH = bits.reshape(rollouts, PROJECTIONS, hidden).astype(np.float64)
    values_NH = (rows_NH.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    negated_NK = (negative_NKH @ values_NH[:, :, None])[:, :, 0]
    projections_NK: F32 = (values_NH.sum(1, keepdims=True) - 2.0 * negated_NK).astype(np.float32)
    return projections_NK


def compare(
    said_NK: F32, said_gaps_N: F32, own_NK: F32, own_gaps_N: F32, most: float, most_gap: float
) -> list[Compared]:
    """Compares each rollout's figures in a bundle with a verifier's own.

    ``most`` and ``most_gap`` are the calibrated bounds of distance and gap between two honest prefills.
    """
    return [
        _compared(*rollout, most, most_gap)
        for rollout in zip(said_NK, said_gaps_N.tolist(), own_NK, own_gaps_N.tolist(), strict=True)
    ]


def _compared(said_K: F32, said_gap: float, own_K: F32, own_gap: float, most: float, most_gap: float) -> Compared:
    theirs, ours = said_K.astype(np.float64), own_K.astype(np.float64)
    distance = float(np.linalg.norm(theirs - ours)) / max(float(np.linalg.norm(ours)), TINY)
    gap = abs(said_gap - own_gap)
    if said_K.tobytes() == own_K.tobytes() and said_gap == own_gap:
        return Compared(Likeness.EQUAL, distance, gap)
    near = distance <= most and gap <= most_gap
    return Compared(Likeness.NEAR if near else Likeness.APART, distance, gap)
