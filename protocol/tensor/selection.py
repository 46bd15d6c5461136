"""The entries of largest magnitude of each chunk of hidden states, on the device where those are.

Equal magnitudes are taken in order of position, so every device selects the same entries.

Axes: N rows of all rollouts, H hidden size, C chunks, R rows of the longest chunk, F = R * H, E entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from protocol.tensor.compiled import kernels
from protocol.wire import toploc
from protocol.wire.polynomial import F64, I64

MAGNITUDE_BITS = 15
CHUNKS_AT_ONCE = 128


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of a batch of rollouts. ``bits_NH`` is the bf16 bits of all rows, int16; chunk c is the rows from
    ``starts_C`` to ``stops_C``, and number ``indices[c]`` of rollout ``rollouts[c]``."""

    bits_NH: Tensor
    starts_C: I64
    stops_C: I64
    rollouts: list[int]
    indices: list[int]

    @property
    def hidden(self) -> int:
        """Channels of a row."""
        return self.bits_NH.shape[1]


@dataclass(frozen=True, slots=True)
class Selected:
    """Each chunk's first ``counts_C`` entries, in falling order: position in the chunk and bf16 bits, int64 (C, E)."""

    positions_CE: I64
    bits_CE: I64
    counts_C: I64

    def by_count(self, most: int) -> Iterator[tuple[I64, toploc.Entries]]:
        """Yields numbers and entries of the chunks that have equally many, ``most`` of each at most."""
        for count in np.unique(self.counts_C).tolist():
            members = np.flatnonzero(self.counts_C == count)
            kept = min(count, most)
            yield members, toploc.Entries(self.positions_CE[members, :kept], self.bits_CE[members, :kept])


def cut(hidden_NH: Tensor, lengths: Sequence[int], size: int) -> Chunks:
    """Cuts the rows of rollouts into chunks; ``hidden_NH`` holds rollout after rollout, ``lengths`` rows each."""
    if sum(lengths) != len(hidden_NH):
        raise ValueError(f"{len(hidden_NH)} rows cannot be rollouts of {sum(lengths)} in all")
    spans, rollouts, indices, offset = [], [], [], 0
    for rollout, length in enumerate(lengths):
        for index, (start, stop) in enumerate(toploc.chunk_spans(length, size)):
            spans.append((offset + start, offset + stop))
            rollouts.append(rollout)
            indices.append(index)
        offset += length
    starts_C, stops_C = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    bits_NH = hidden_NH.detach().to(torch.bfloat16).contiguous().view(torch.int16)
    return Chunks(bits_NH, starts_C, stops_C, rollouts, indices)


def select(chunks: Chunks, wanted: int | I64) -> Selected:
    """Returns the ``wanted`` entries of each chunk (or of all) largest in magnitude, or all it has."""
    counts_C = np.minimum(wanted, (chunks.stops_C - chunks.starts_C) * chunks.hidden)
    shape = len(counts_C), int(np.max(wanted, initial=1))
    selected = Selected(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64), counts_C)
    if chunks.bits_NH.device.type == "cpu" and (kernel := kernels("selection")):
        starts_C, stops_C = chunks.starts_C * chunks.hidden, chunks.stops_C * chunks.hidden
        bits_N = chunks.bits_NH.numpy().reshape(-1)
        kernel.select(bits_N, starts_C, stops_C, counts_C, selected.positions_CE, selected.bits_CE)
    else:
        _select_by_torch(chunks, selected)
    return selected


def values_at(chunks: Chunks, sources: Sequence[int], positions_CK: I64) -> F64:
    """Returns values of other chunks at flat positions, float64; NaN where they have no such row or source.

    ``sources`` names a chunk for each row of positions, or is -1.
    """
    sources_C = np.array(sources, dtype=np.int64)
    starts_C1, stops_C1 = ((rows_C[sources_C] * chunks.hidden)[:, None] for rows_C in (chunks.starts_C, chunks.stops_C))
    there_CK = (sources_C[:, None] >= 0) & (positions_CK < stops_C1 - starts_C1)
    places_CK = torch.from_numpy(np.where(there_CK, starts_C1 + positions_CK, 0)).to(chunks.bits_NH.device)
    values_CK = chunks.bits_NH.view(torch.bfloat16).view(-1)[places_CK].double().cpu().numpy()
    return np.where(there_CK, values_CK, np.nan)


def _select_by_torch(chunks: Chunks, selected: Selected) -> None:
    """Fills ``selected``, a few chunks at a time, short ones filled up with zeros."""
    absent_1H = torch.zeros_like(chunks.bits_NH[:1])
    padded_NH = torch.cat([chunks.bits_NH, absent_1H])
    for members, _ in selected.by_count(0):
        for first in range(0, len(members), CHUNKS_AT_ONCE):
            batch = members[first : first + CHUNKS_AT_ONCE]
            starts_C, stops_C = chunks.starts_C[batch, None], chunks.stops_C[batch, None]
            source_CR = starts_C + np.arange((stops_C - starts_C).max())
            source_CR = np.where(source_CR < stops_C, source_CR, len(chunks.bits_NH))
            bits_CF = padded_NH[torch.from_numpy(source_CR).to(padded_NH.device)].flatten(1)
            count = int(selected.counts_C[batch[0]])
            selected.positions_CE[batch, :count], selected.bits_CE[batch, :count] = _top(bits_CF, count)


def _top(bits_CF: Tensor, count: int) -> tuple[I64, I64]:
    """Sorts by magnitude, then position, in one key: | magnitude 15 | F - 1 - position |; absent rows come last."""
    last = bits_CF.shape[1] - 1
    position_bits = last.bit_length()
    dtype = torch.int32 if MAGNITUDE_BITS + position_bits < 32 else torch.int64
    from_end_F = torch.arange(last, -1, -1, dtype=dtype, device=bits_CF.device)
    keys_CF = bits_CF.to(dtype).bitwise_and_(0x7FFF).bitwise_left_shift_(position_bits).bitwise_or_(from_end_F)
    keys_CE = keys_CF.topk(count, dim=1).values.to(torch.int64)
    positions_CE = last - (keys_CE & ((1 << position_bits) - 1))
    bits_CE = bits_CF.gather(1, positions_CE).to(torch.int64) & 0xFFFF
    return positions_CE.cpu().numpy(), bits_CE.cpu().numpy()
