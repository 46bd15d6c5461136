"""TOPLOC proofs and distances of many rollouts at once, from hidden states on any device.

Selection runs where the hidden states are; ``protocol.wire.toploc`` lays the polynomials, a few thousand numbers. Equal
magnitudes are taken in order of position, so every device selects the same entries.

Axes: N rows of all rollouts, T rows of one, H hidden size, C chunks, R rows of the longest chunk, F = R * H, K entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from protocol.errors import Rejected
from protocol.wire import toploc
from protocol.wire.polynomial import F64, I64
from protocol.wire.proof import ENTRIES, Proofs
from protocol.wire.toploc import CHUNK_ROWS, Distance

MAGNITUDE_BITS = 15
CHUNKS_AT_ONCE = 128


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Chunks of a batch as bf16 bits, int16 (C, F), short ones filled up with zeros.

    ``rows`` is each chunk's number of rows, ``rollouts`` and ``indices`` say which chunk of which rollout it is.
    """

    bits_CF: Tensor
    hidden: int
    rows: list[int]
    rollouts: list[int]
    indices: list[int]


def build_proofs(hidden_TH: Tensor, size: int = CHUNK_ROWS) -> list[bytes]:
    """Returns the encoded proof of each chunk of one rollout; see ``build_proofs_batch``."""
    return build_proofs_batch(hidden_TH, [len(hidden_TH)], size)[0]


def build_proofs_batch(hidden_NH: Tensor, lengths: Sequence[int], size: int = CHUNK_ROWS) -> list[list[bytes]]:
    """Returns the encoded proofs of each rollout, in the order of its chunks.

    ``hidden_NH`` is what the LM head saw at each sampled position (row 0 belongs to the last prompt token), the rows
    of all rollouts one after another; anything but bf16 is rounded to it first. Raises ``Misconfigured`` where they
    are not finite.
    """
    chunks = _cut(hidden_NH, lengths, size)
    proofs: list[list[bytes]] = [[] for _ in lengths]
    built: dict[int, bytes] = {}
    for members, entries in _top_entries(chunks, ENTRIES):
        built.update(zip(members, toploc.build_from_entries(entries).encode(), strict=True))
    for chunk, rollout in enumerate(chunks.rollouts):
        proofs[rollout].append(built[chunk])
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
    chunks = _cut(hidden_NH, lengths, size)
    decoded = _decode(chunks, proofs, len(lengths))
    guesses_from = _previous_chunks(chunks, previous)
    measured: dict[int, Distance] = {}
    for members, entries in _top_entries(chunks, toploc.REACH):
        positions_CK = entries.positions_CK[:, :ENTRIES]
        guesses_CK = [] if previous is None else [_values_at(chunks, [guesses_from[c] for c in members], positions_CK)]
        if template_H is not None:
            guesses_CK.append(template_H.double().cpu().numpy()[positions_CK % chunks.hidden])
        found = toploc.distances_from_entries(entries, decoded.take(members), guesses_CK)
        measured.update(zip(members, found, strict=True))
    by_rollout: list[list[Distance]] = [[] for _ in lengths]
    for chunk, rollout in enumerate(chunks.rollouts):
        by_rollout[rollout].append(measured[chunk])
    return by_rollout


def _cut(hidden_NH: Tensor, lengths: Sequence[int], size: int) -> _Chunks:
    """Lays the chunks of all rollouts side by side."""
    if sum(lengths) != len(hidden_NH):
        raise ValueError(f"{len(hidden_NH)} rows cannot be rollouts of {sum(lengths)} in all")
    starts, rows, rollouts, indices, offset = [], [], [], [], 0
    for rollout, length in enumerate(lengths):
        for index, (start, stop) in enumerate(toploc.chunk_spans(length, size)):
            starts.append(offset + start)
            rows.append(stop - start)
            rollouts.append(rollout)
            indices.append(index)
        offset += length
    bits_NH = hidden_NH.detach().to(torch.bfloat16).contiguous().view(torch.int16)
    absent_1H = torch.zeros_like(bits_NH[:1])
    span_R, rows_C = np.arange(max(rows, default=0)), np.array(rows, dtype=np.int64)
    source_CR = np.where(span_R < rows_C[:, None], np.array(starts, dtype=np.int64)[:, None] + span_R, len(bits_NH))
    bits_CRH = torch.cat([bits_NH, absent_1H])[torch.from_numpy(source_CR).to(bits_NH.device)]
    return _Chunks(bits_CRH.flatten(1), hidden_NH.shape[1], rows, rollouts, indices)


def _top_entries(chunks: _Chunks, count: int) -> Iterator[tuple[list[int], toploc.Entries]]:
    """Yields the numbers and top entries of a few chunks at a time, all of which have equally many."""
    available = [min(count, rows * chunks.hidden) for rows in chunks.rows]
    for width in sorted(set(available)):
        members = [chunk for chunk, entries in enumerate(available) if entries == width]
        for start in range(0, len(members), CHUNKS_AT_ONCE):
            batch = members[start : start + CHUNKS_AT_ONCE]
            yield batch, _select(chunks, batch, width)


def _select(chunks: _Chunks, members: list[int], count: int) -> toploc.Entries:
    """Sorts by magnitude, then position, in one key: | magnitude 15 | F - 1 - position |; absent rows come last."""
    bits_CF = chunks.bits_CF[members]
    last = bits_CF.shape[1] - 1
    position_bits = last.bit_length()
    dtype = torch.int32 if MAGNITUDE_BITS + position_bits < 32 else torch.int64
    from_end_F = torch.arange(last, -1, -1, dtype=dtype, device=bits_CF.device)
    keys_CF = bits_CF.to(dtype).bitwise_and_(0x7FFF).bitwise_left_shift_(position_bits).bitwise_or_(from_end_F)
    keys_CK = keys_CF.topk(count, dim=1).values.to(torch.int64)
    positions_CK = last - (keys_CK & ((1 << position_bits) - 1))
    bits_CK = bits_CF.gather(1, positions_CK).to(torch.int64) & 0xFFFF
    return toploc.Entries(positions_CK.cpu().numpy(), bits_CK.cpu().numpy())


def _decode(chunks: _Chunks, proofs: Sequence[Sequence[bytes]], rollouts: int) -> Proofs:
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


def _previous_chunks(chunks: _Chunks, previous: Sequence[int | None] | None) -> list[int]:
    """For each chunk, the number of the same chunk of the rollout named as previous; -1 where there is none."""
    if previous is None:
        return []
    number = {key: chunk for chunk, key in enumerate(zip(chunks.rollouts, chunks.indices, strict=True))}
    return [
        number.get((-1 if (other := previous[rollout]) is None else other, index), -1)
        for rollout, index in zip(chunks.rollouts, chunks.indices, strict=True)
    ]


def _values_at(chunks: _Chunks, sources: list[int], positions_CK: I64) -> F64:
    """Values of other chunks at flat positions, float64; NaN where they have no such row, or there is no source."""
    there_C = np.maximum(sources, 0)
    positions = torch.from_numpy(positions_CK).to(chunks.bits_CF.device)
    bits_CK = chunks.bits_CF[there_C.tolist()].gather(1, positions)
    filled_C = np.where(np.array(sources) < 0, 0, np.array(chunks.rows)[there_C] * chunks.hidden)
    return np.where(positions_CK < filled_C[:, None], bits_CK.view(torch.bfloat16).double().cpu().numpy(), np.nan)
