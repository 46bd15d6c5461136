"""Chunks of hidden states, and the entries of largest magnitude of each.

Axes: N rows of all rollouts, T rows of a chunk, H hidden size, C chunks, E entries of each, K those compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protocol.wire.toploc.codec import chunk_spans

U16 = NDArray[np.uint16]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of a batch of rollouts.

    ``bits_NH`` holds the bf16 bits of all rows, int16, on the CPU. Chunk c is the rows from ``starts_C`` to
    ``stops_C``, and number ``indices[c]`` of rollout ``rollouts[c]``.
    """

    bits_NH: Tensor
    starts_C: I64
    stops_C: I64
    rollouts: list[int]
    indices: list[int]

    @property
    def hidden(self) -> int:
        """Channels of a row."""
        return self.bits_NH.shape[1]

    def rows(self, chunk: int) -> U16:
        """Returns the bf16 bits of one chunk, (T, H)."""
        return self.bits_NH[self.starts_C[chunk] : self.stops_C[chunk]].numpy().view(np.uint16)

    def by_rollout(self, values: Iterable[Value], rollouts: int) -> list[list[Value]]:
        """Groups one value per chunk into ``rollouts`` lists."""
        grouped: list[list[Value]] = [[] for _ in range(rollouts)]
        for rollout, value in zip(self.rollouts, values, strict=True):
            grouped[rollout].append(value)
        return grouped

    def same_chunk_of(self, others: Sequence[int | None]) -> list[int]:
        """Returns, per chunk, the chunk of the same index in the rollout that ``others`` names for its own, or -1."""
        number = {key: chunk for chunk, key in enumerate(zip(self.rollouts, self.indices, strict=True))}
        return [
            number.get((-1 if (other := others[rollout]) is None else other, index), -1)
            for rollout, index in zip(self.rollouts, self.indices, strict=True)
        ]

    def values_at(self, sources: Sequence[int], positions_CK: I64) -> F64:
        """Returns values of other chunks at flat positions, float64 (C, K).

        ``sources`` names a chunk per row of positions, or -1. The value is NaN outside the source, or without one.
        """
        sources_C = np.array(sources, dtype=np.int64)
        starts_C1, stops_C1 = ((rows_C[sources_C] * self.hidden)[:, None] for rows_C in (self.starts_C, self.stops_C))
        there_CK = (sources_C[:, None] >= 0) & (positions_CK < stops_C1 - starts_C1)
        places_CK = torch.from_numpy(np.where(there_CK, starts_C1 + positions_CK, 0))
        values_CK = self.bits_NH.view(torch.bfloat16).view(-1)[places_CK].double().numpy()
        return np.where(there_CK, values_CK, np.nan)


@dataclass(frozen=True, slots=True)
class Selected:
    """Each chunk's first ``counts_C`` entries in descending order: flat position and bf16 bits, int64 (C, E)."""

    positions_CE: I64
    bits_CE: I64
    counts_C: I64

    @property
    def all_finite(self) -> bool:
        """True if no chunk is empty or has a number that is not finite, which would be its largest."""
        return bool((self.counts_C > 0).all() and (self.bits_CE[:, 0] & 0x7F80 != 0x7F80).all())


def cut(hidden_NH: Tensor, lengths: Sequence[int]) -> Chunks:
    """Cuts the rows of rollouts into chunks; ``hidden_NH`` holds rollout after rollout, ``lengths`` rows each."""
    if sum(lengths) != len(hidden_NH):
        raise ValueError(f"invalid lengths: expected {len(hidden_NH)} rows in all, got {sum(lengths)}")
    spans, rollouts, indices, offset = [], [], [], 0
    for rollout, length in enumerate(lengths):
        for index, (start, stop) in enumerate(chunk_spans(length)):
            spans.append((offset + start, offset + stop))
            rollouts.append(rollout)
            indices.append(index)
        offset += length
    starts_C, stops_C = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    bits_NH = hidden_NH.detach().to(torch.bfloat16).cpu().contiguous().view(torch.int16)
    return Chunks(bits_NH, starts_C, stops_C, rollouts, indices)


def select(chunks: Chunks, wanted: int | I64) -> Selected:
    """Returns the ``wanted`` entries of each chunk (or of all) largest in magnitude, or all it has. Needs numba."""
    from protocol.tensor.kernels import selection_cpu

    counts_C = np.minimum(wanted, (chunks.stops_C - chunks.starts_C) * chunks.hidden)
    shape = len(counts_C), int(np.max(wanted, initial=1))
    selected = Selected(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64), counts_C)
    starts_C, stops_C = chunks.starts_C * chunks.hidden, chunks.stops_C * chunks.hidden
    bits_N = chunks.bits_NH.numpy().reshape(-1)
    selection_cpu.select(bits_N, starts_C, stops_C, counts_C, selected.positions_CE, selected.bits_CE)
    return selected
