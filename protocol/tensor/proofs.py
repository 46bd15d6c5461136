"""TOPLOC proofs and distances of many rollouts at once.

Compiled loops do the work on the CPU, to which hidden states from any other device are copied. Where numba does not
load, ``protocol.wire.toploc.definition`` does it chunk by chunk, with the same results.

Axes: N rows of all rollouts, T rows of one, H hidden size, C chunks, E entries of each, K those compared, F fields of a
proof, X figures of a distance.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray
from torch import Tensor

from protocol.compiled import kernels
from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.tensor.kernels import PROOFS
from protocol.tensor.selection import Chunks, cut, select
from protocol.wire.toploc import definition
from protocol.wire.toploc.codec import ENTRIES, PRIME, PROOF_BYTES, Distance, Proof, decode_fields

U16 = NDArray[np.uint16]


def build_proofs(hidden_TH: Tensor) -> list[bytes]:
    """Returns the encoded proof of each chunk of one rollout; see ``build_proofs_batch``."""
    return build_proofs_batch(hidden_TH, [len(hidden_TH)])[0]


def build_proofs_batch(hidden_NH: Tensor, lengths: Sequence[int]) -> list[list[bytes]]:
    """Returns the encoded proofs of each rollout, in the order of its chunks.

    ``hidden_NH`` is the LM head's input at each sampled position (row 0 belongs to the last prompt token), the rows of
    all rollouts one after another; other dtypes are rounded to bf16 first.

    Raises:
        Misconfigured: Hidden states are not finite, or no modulus fits them.
    """
    chunks, kernel = cut(hidden_NH, lengths), kernels(PROOFS)
    built = _build(kernel, chunks) if kernel else build_by_definition(chunks)
    return chunks.by_rollout(built, len(lengths))


def hash_chunks(hidden_NH: Tensor, lengths: Sequence[int]) -> list[list[bytes]]:
    """Returns BLAKE3-256 of each chunk's bf16 bits, row after row, little-endian; see ``build_proofs_batch``."""
    chunks = cut(hidden_NH, lengths)
    spans = zip(chunks.starts_C.tolist(), chunks.stops_C.tolist(), strict=True)
    bits_NH = chunks.bits_NH.numpy().view("<u2")
    return chunks.by_rollout((blake3(bits_NH[start:stop].tobytes()).digest() for start, stop in spans), len(lengths))


def distances_batch(
    hidden_NH: Tensor,
    lengths: Sequence[int],
    proofs: Sequence[Sequence[bytes]],
    previous: Sequence[int | None] | None = None,
) -> list[list[Distance]]:
    """Returns the distances of each rollout's proofs from the verifier's own rows, in the order of its chunks.

    ``previous`` names, for each rollout, another one of the batch whose chunks serve as a forger's guess. It must
    answer another prompt: honest rollouts of one prompt share rows.

    Raises:
        Rejected: A rollout has a wrong number of proofs, or one that does not decode.
        Unavailable: The verifier's own rows are not finite.
    """
    chunks, kernel = cut(hidden_NH, lengths), kernels(PROOFS)
    fields_CF = _decode(chunks, proofs, len(lengths))
    sources = chunks.same_chunk_of(previous) if previous else []
    if kernel:
        measured = _measure(kernel, chunks, fields_CF, sources)
    else:
        measured = measure_by_definition(chunks, fields_CF, sources)
    return chunks.by_rollout(measured, len(lengths))


def _build(kernel: Any, chunks: Chunks) -> list[bytes]:
    selected = select(chunks, ENTRIES)
    if not selected.all_finite:
        raise Misconfigured(definition.NOT_FINITE)
    fields_CF = np.empty((len(selected.counts_C), 1 + ENTRIES), dtype=np.uint16)
    entries = selected.positions_CE, selected.bits_CE, selected.counts_C
    if kernel.build(*entries, _inverses(), fields_CF) < len(fields_CF):
        raise Misconfigured(definition.POSITIONS_COLLIDE)
    encoded = fields_CF.astype(">u2").tobytes()
    return [encoded[start : start + PROOF_BYTES] for start in range(0, len(encoded), PROOF_BYTES)]


def build_by_definition(chunks: Chunks) -> list[bytes]:
    """Returns the encoded proof of each chunk where numba does not load; raises as ``build_proofs_batch`` does."""
    return [definition.build(chunks.rows(chunk)).encode() for chunk in range(len(chunks.rollouts))]


def _measure(kernel: Any, chunks: Chunks, fields_CF: U16, sources: Sequence[int]) -> list[Distance]:
    # Entries beyond those compared only serve to judge a modulus below p.
    selected = select(chunks, np.where(fields_CF[:, 0] < PRIME, definition.REACH, ENTRIES))
    if not selected.all_finite:
        raise Unavailable(definition.OWN_NOT_FINITE)
    positions_CK = selected.positions_CE[:, :ENTRIES]
    guess_CK = chunks.values_at(sources, positions_CK) if sources else np.empty((0, ENTRIES))
    figures_CX = np.empty((len(selected.counts_C), 6))
    entries = selected.positions_CE, selected.bits_CE, selected.counts_C
    kernel.measure(*entries, fields_CF, guess_CK, figures_CX)
    return [
        Distance(rel, null, int(mismatches), mantissa_mean, mantissa_median, canonical != 0)
        for rel, null, mismatches, mantissa_mean, mantissa_median, canonical in figures_CX.tolist()
    ]


def measure_by_definition(chunks: Chunks, fields_CF: U16, sources: Sequence[int]) -> list[Distance]:
    """Returns the distance of each chunk's proof where numba does not load; see ``Chunks.values_at``."""
    proofs = [Proof(modulus, tuple(coefficients)) for modulus, *coefficients in fields_CF.tolist()]
    previous = [None if source < 0 else chunks.rows(source) for source in sources or [-1] * len(proofs)]
    return [definition.distance(chunks.rows(n), proof, previous[n]) for n, proof in enumerate(proofs)]


@functools.cache
def _inverses() -> U16:
    return definition.inverses().astype(np.uint16)


def _decode(chunks: Chunks, proofs: Sequence[Sequence[bytes]], rollouts: int) -> U16:
    """Returns the fields of every chunk's proof; raises ``Rejected`` naming the first rollout with wrong proofs."""
    if len(proofs) != rollouts:
        raise Rejected(f"invalid proofs of {len(proofs)} rollouts: expected {rollouts}")
    wanted = np.bincount(np.array(chunks.rollouts, dtype=np.int64), minlength=rollouts).tolist()
    for rollout, given in enumerate(proofs):
        if len(given) != wanted[rollout]:
            raise Rejected(f"rollout {rollout} needs {wanted[rollout]} proofs, {len(given)} are given")
    try:
        return decode_fields([encoded for given in proofs for encoded in given])
    except Rejected:
        for rollout, given in enumerate(proofs):
            _decode_rollout(rollout, given)
        raise


def _decode_rollout(rollout: int, proofs: Sequence[bytes]) -> None:
    try:
        decode_fields(proofs)
    except Rejected as error:
        raise Rejected(f"rollout {rollout}: {error}", error.reason) from error
