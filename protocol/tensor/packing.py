"""Sequences packed for one pass of a model: without padding, and with shared prefixes run only once.

Sorted sequences form a tree in which equal tokens at the same place after equal tokens are one node. A pass runs the
model over the nodes. Only attention needs whole sequences: it gathers them from the nodes, several of about the same
length at a time.

Axes: S sequences of a pack, T positions, N nodes, M positions of all runs one after another, H and K heads, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from protocol.tensor.alignment import attend_aligned

I64 = NDArray[np.int64]

MAX_REUSE = 16
"""Positions that attention may gather per node of a full pack: bounds memory if a thousand sequences differ only in
their last token."""

LENGTH_STEPS = 16
"""Sequences whose lengths differ by less than this fraction of the longest attend together."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Sequences that run together.

    members_S    index of each sequence in the caller's order
    nodes_ST     the node of each position of each sequence, -1 behind its end
    tokens_N     token id of each node
    positions_N  position of each node in its sequences
    runs         for each run of sequences that attend together its nodes (R, T), padded with any node
    source_N     index of each node among the positions of all runs
    """

    members_S: I64
    nodes_ST: I64
    tokens_N: I64
    positions_N: I64
    runs: list[I64]
    source_N: I64

    def inputs(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Returns tokens and positions (N,) on ``device``."""
        return torch.from_numpy(self.tokens_N).to(device), torch.from_numpy(self.positions_N).to(device)


def pack(sequences: Sequence[NDArray[np.int32]], most: int) -> Iterator[Pack]:
    """Yields packs of at most ``most`` nodes, or of one sequence; each sequence (of 1 token or more) is in one pack."""
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    keys = [sequence.astype(">u4").tobytes() for sequence in sequences]
    # In descending order of tokens, a sequence that is a prefix of another comes behind it and adds no nodes.
    order = np.array(sorted(range(len(sequences)), key=keys.__getitem__, reverse=True), dtype=np.int64)
    shared = _shared(sequences, order)
    start = nodes = positions = 0
    for place, member in enumerate(order):
        added = lengths[member] - shared[place]
        if place > start and (nodes + added > most or positions + lengths[member] > MAX_REUSE * most):
            yield _pack(sequences, order[start:place], shared[start:place])
            start, nodes, positions, added = place, 0, 0, lengths[member]
        nodes, positions = nodes + added, positions + lengths[member]
    if len(order):
        yield _pack(sequences, order[start:], shared[start:])


def _shared(sequences: Sequence[NDArray[np.int32]], order: I64) -> I64:
    """Returns the length of the prefix that each sequence, in ``order``, shares with the one before it."""
    shared = np.zeros(len(order), dtype=np.int64)
    for place in range(1, len(order)):
        one, other = sequences[order[place - 1]], sequences[order[place]]
        length = min(len(one), len(other))
        differs = np.flatnonzero(one[:length] != other[:length])
        shared[place] = differs[0] if len(differs) else length
    return shared


def _pack(sequences: Sequence[NDArray[np.int32]], members_S: I64, shared_S: I64) -> Pack:
    lengths_S = np.array([len(sequences[member]) for member in members_S], dtype=np.int64)
    shared_S = np.concatenate([[0], shared_S[1:]])
    added_S = lengths_S - shared_S
    first_S = np.cumsum(added_S) - added_S
    span_T = np.arange(lengths_S.max())
    # Owner of each position: the latest sequence up to this one whose unshared suffix starts at or before it.
    owner_ST = np.maximum.accumulate(np.where(span_T >= shared_S[:, None], np.arange(len(members_S))[:, None], 0))
    nodes_ST = np.where(span_T < lengths_S[:, None], first_S[owner_ST] + span_T - shared_S[owner_ST], -1)
    tokens_N = np.concatenate([sequences[m][shared:] for m, shared in zip(members_S, shared_S, strict=True)])
    positions_N = np.concatenate([np.arange(s, s + a) for s, a in zip(shared_S, added_S, strict=True)])
    runs, source_N = _runs(nodes_ST, lengths_S, shared_S, first_S)
    return Pack(members_S, nodes_ST, tokens_N.astype(np.int64), positions_N, runs, source_N)


def _runs(nodes_ST: I64, lengths_S: I64, shared_S: I64, first_S: I64) -> tuple[list[I64], I64]:
    """Returns runs of sequences of similar length, without those that add no nodes, and each node's index in them."""
    own_S = np.flatnonzero(lengths_S > shared_S)
    step = max(1, int(lengths_S.max()) // LENGTH_STEPS)
    widths = -(-lengths_S[own_S] // step) * step
    runs, source_N, offset = [], np.empty(int((lengths_S - shared_S).sum()), dtype=np.int64), 0
    for width in np.unique(widths):
        rows = own_S[widths == width]
        longest = int(lengths_S[rows].max())
        runs.append(np.maximum(nodes_ST[rows, :longest], 0))
        for place, row in enumerate(rows):
            begin, count = offset + place * longest + shared_S[row], lengths_S[row] - shared_S[row]
            source_N[first_S[row] : first_S[row] + count] = np.arange(begin, begin + count)
        offset += len(rows) * longest
    return runs, source_N


@dataclass(slots=True)
class PackedLayout:
    """The attention layout of a pack on a device; keeps keys and values by layer if ``keeps``.

    If ``aligned``, attention is as in ``protocol.tensor.alignment``.
    """

    runs: list[Tensor]
    source_N: Tensor
    keeps: bool = False
    aligned: bool = False
    kept: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @classmethod
    def of(cls, pack: Pack, device: torch.device, keeps: bool = False, aligned: bool = False) -> PackedLayout:
        """Puts the layout of ``pack`` on ``device``."""
        runs = [torch.from_numpy(run).to(device) for run in pack.runs]
        return cls(runs, torch.from_numpy(pack.source_N).to(device), keeps, aligned)

    def attend(
        self, layer: int, query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Returns the attention of each node over the nodes before it, (N, H, D)."""
        if self.keeps:
            self.kept[layer] = key_NKD, value_NKD
        found = []
        for run_RT in self.runs:
            query, key, value = (states[run_RT].transpose(1, 2) for states in (query_NHD, key_NKD, value_NKD))
            if self.aligned:
                states = attend_aligned(query, key, value, _seen(query.shape[2], window, query.device), scale)
            else:
                states = _causal(query, key, value, scale, window)
            found.append(states.transpose(1, 2).flatten(0, 1))
        return torch.cat(found)[self.source_N]


def _causal(query_RHTD: Tensor, key_RKTD: Tensor, value_RKTD: Tensor, scale: float, window: int | None) -> Tensor:
    length = query_RHTD.shape[2]
    if window is None or window >= length:
        return scaled_dot_product_attention(
            query_RHTD, key_RKTD, value_RKTD, is_causal=True, scale=scale, enable_gqa=True
        )
    seen_TT = _seen(length, window, query_RHTD.device)
    return scaled_dot_product_attention(
        query_RHTD, key_RKTD, value_RKTD, attn_mask=seen_TT, scale=scale, enable_gqa=True
    )


def _seen(length: int, window: int | None, device: torch.device) -> Tensor:
    """Returns which positions each position sees, (T, T)."""
    seen_TT = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    return seen_TT if window is None else seen_TT.triu(1 - window)
