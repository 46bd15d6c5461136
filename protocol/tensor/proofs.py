"""TOPLOC proofs and distances of many rollouts at once, from hidden states on any device.

Selection runs where the hidden states are. The polynomials, a few thousand numbers, are laid and measured by compiled
loops, or by ``protocol.wire.toploc`` where numba does not load: the same numbers either way.

Axes: N rows of all rollouts, T rows of one, H hidden size, C chunks, E entries of each, K those compared, F fields of a
proof, G guesses, X figures of a distance.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from protocol.errors import Misconfigured, Rejected, Unavailable
from protocol.tensor.compiled import kernels
from protocol.tensor.selection import Chunks, Selected, cut, select, values_at
from protocol.wire import polynomial, toploc
from protocol.wire.polynomial import F64, I64
from protocol.wire.proof_codec import ENTRIES, PROOF_BYTES, Proofs
from protocol.wire.toploc import CHUNK_ROWS, Distance


def build_proofs(hidden_TH: Tensor, size: int = CHUNK_ROWS) -> list[bytes]:
    """Returns the encoded proof of each chunk of one rollout; see ``build_proofs_batch``."""
    return build_proofs_batch(hidden_TH, [len(hidden_TH)], size)[0]


def build_proofs_batch(hidden_NH: Tensor, lengths: Sequence[int], size: int = CHUNK_ROWS) -> list[list[bytes]]:
    """Returns the encoded proofs of each rollout, in the order of its chunks.

    ``hidden_NH`` is what the LM head saw at each sampled position (row 0 belongs to the last prompt token), the rows
    of all rollouts one after another; anything but bf16 is rounded to it first. Raises ``Misconfigured`` where they
    are not finite.
    """
    chunks = cut(hidden_NH, lengths, size)
    selected = select(chunks, ENTRIES)
    if _missing_or_not_finite(selected):
        raise Misconfigured(toploc.NOT_FINITE)
    proofs: list[list[bytes]] = [[] for _ in lengths]
    for rollout, encoded in zip(chunks.rollouts, _lay(selected), strict=True):
        proofs[rollout].append(encoded)
    return proofs


def distances(
    hidden_TH: Tensor, proofs: Sequence[bytes], template_H: Tensor | None = None, size: int = CHUNK_ROWS
) -> list[Distance]:
    """Returns the distance of each chunk's proof from the verifier's rows of one rollout; see ``distances_batch``."""
    return distances_batch(hidden_TH, [len(hidden_TH)], [proofs], template_H, size=size)[0]


def distances_batch(
    hidden_NH: Tensor,
    lengths: Sequence[int],
    proofs: Sequence[Sequence[bytes]],
    template_H: Tensor | None = None,
    previous: Sequence[int | None] | None = None,
    size: int = CHUNK_ROWS,
) -> list[list[Distance]]:
    """Returns the distances of each rollout's proofs from the verifier's own rows, in the order of its chunks.

    ``template_H`` is the calibrated mean of each channel. ``previous`` names, for each rollout, another one of the
    batch whose chunks serve as a forger's guess. It must answer another prompt: what two rollouts of one prompt share
    is honestly equal. Raises ``Rejected`` for a wrong number of proofs or one that does not decode, ``Unavailable``
    where the verifier's own rows are not finite.
    """
    chunks = cut(hidden_NH, lengths, size)
    decoded = _decode(chunks, proofs, len(lengths))
    # Only a modulus below p is judged by more entries than are compared.
    selected = select(chunks, np.where(decoded.moduli_C < polynomial.PRIME, toploc.REACH, ENTRIES))
    if _missing_or_not_finite(selected):
        raise Unavailable(toploc.OWN_NOT_FINITE)
    guesses_GCK = _guesses(chunks, selected.positions_CE[:, :ENTRIES], template_H, previous)
    by_rollout: list[list[Distance]] = [[] for _ in lengths]
    for rollout, distance in zip(chunks.rollouts, _measure(selected, decoded, guesses_GCK), strict=True):
        by_rollout[rollout].append(distance)
    return by_rollout


def _missing_or_not_finite(selected: Selected) -> bool:
    """Whether a chunk is empty or has a number that is not finite, which would be larger than any that is."""
    return bool((selected.counts_C == 0).any() or (selected.bits_CE[:, 0] & 0x7F80 == 0x7F80).any())


def _lay(selected: Selected) -> list[bytes]:
    """The encoded proof of each chunk."""
    kernel = kernels("proof")
    fields_CF = _fields_by_numpy(selected) if kernel is None else _fields(kernel, selected)
    encoded = fields_CF.astype(">u2").tobytes()
    return [encoded[start : start + PROOF_BYTES] for start in range(0, len(encoded), PROOF_BYTES)]


def _fields(kernel: Any, selected: Selected) -> NDArray[np.uint16]:
    """Modulus and coefficients of each chunk's proof."""
    fields_CF = np.empty((len(selected.counts_C), 1 + ENTRIES), dtype=np.uint16)
    entries = selected.positions_CE, selected.bits_CE, selected.counts_C
    if kernel.lay(*entries, _inverses(), fields_CF) < len(fields_CF):
        raise Misconfigured(toploc.POSITIONS_COLLIDE)
    return fields_CF


def _fields_by_numpy(selected: Selected) -> NDArray[np.uint16]:
    fields_CF = np.empty((len(selected.counts_C), 1 + ENTRIES), dtype=np.uint16)
    for members, entries in selected.by_count(ENTRIES):
        laid = toploc.build_from_entries(entries)
        fields_CF[members] = np.column_stack([laid.moduli_C, laid.coefficients_CD])
    return fields_CF


def _measure(selected: Selected, proofs: Proofs, guesses_GCK: F64) -> list[Distance]:
    """The distance of each chunk's proof from the verifier's entries."""
    kernel = kernels("proof")
    if kernel is None:
        return _measure_by_numpy(selected, proofs, guesses_GCK)
    figures_CX = np.empty((len(selected.counts_C), 6))
    entries = selected.positions_CE, selected.bits_CE, selected.counts_C
    kernel.measure(*entries, proofs.moduli_C, proofs.coefficients_CD, guesses_GCK, figures_CX)
    return [
        Distance(rel, null, int(mismatches), mantissa_mean, mantissa_median, canonical != 0)
        for rel, null, mismatches, mantissa_mean, mantissa_median, canonical in figures_CX.tolist()
    ]


def _measure_by_numpy(selected: Selected, proofs: Proofs, guesses_GCK: F64) -> list[Distance]:
    distances: dict[int, Distance] = {}
    for members_C, entries in selected.by_count(toploc.REACH):
        members, compared = members_C.tolist(), min(entries.positions_CK.shape[1], ENTRIES)
        found = toploc.distances_from_entries(entries, proofs.take(members), list(guesses_GCK[:, members, :compared]))
        distances.update(zip(members, found, strict=True))
    return [distances[chunk] for chunk in range(len(selected.counts_C))]


@functools.cache
def _inverses() -> NDArray[np.uint16]:
    return polynomial.inverses().astype(np.uint16)


def _guesses(
    chunks: Chunks, positions_CK: I64, template_H: Tensor | None, previous: Sequence[int | None] | None
) -> F64:
    """What a forger could know of the numbers compared, (G, C, K)."""
    guesses_CK = [] if previous is None else [values_at(chunks, _previous_chunks(chunks, previous), positions_CK)]
    if template_H is not None:
        guesses_CK.append(template_H.double().cpu().numpy()[positions_CK % chunks.hidden])
    return np.stack(guesses_CK) if guesses_CK else np.empty((0, *positions_CK.shape))


def _decode(chunks: Chunks, proofs: Sequence[Sequence[bytes]], rollouts: int) -> Proofs:
    """Reads every chunk's proof; raises ``Rejected`` naming the first rollout whose proofs are wrong."""
    if len(proofs) != rollouts:
        raise Rejected(f"proofs are given for {len(proofs)} rollouts, there are {rollouts}")
    wanted = np.bincount(np.array(chunks.rollouts, dtype=np.int64), minlength=rollouts).tolist()
    for rollout, given in enumerate(proofs):
        if len(given) != wanted[rollout]:
            raise Rejected(f"rollout {rollout} needs {wanted[rollout]} proofs, {len(given)} are given")
    try:
        return Proofs.decode([encoded for given in proofs for encoded in given])
    except Rejected:
        for rollout, given in enumerate(proofs):
            _decode_of(rollout, given)
        raise


def _decode_of(rollout: int, proofs: Sequence[bytes]) -> None:
    try:
        Proofs.decode(proofs)
    except Rejected as error:
        raise Rejected(f"rollout {rollout}: {error}", error.reason) from error


def _previous_chunks(chunks: Chunks, previous: Sequence[int | None]) -> list[int]:
    """For each chunk, the number of the same chunk of the rollout named as previous; -1 where there is none."""
    number = {key: chunk for chunk, key in enumerate(zip(chunks.rollouts, chunks.indices, strict=True))}
    return [
        number.get((-1 if (other := previous[rollout]) is None else other, index), -1)
        for rollout, index in zip(chunks.rollouts, chunks.indices, strict=True)
    ]
