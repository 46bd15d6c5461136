"""Keys and values of rows that decode side by side, each at its own position.

A row has a slot; its position p is stored in column p. When rows end, other rows move into their slots or new ones
start there.

Axes: B rows that run, R allocated slots, S columns, P prompt tokens, N nodes of a pack, H query heads, K heads of keys
and values, D width of a head.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from protocol.tensor.alignment import aligned, attend_aligned

I64 = NDArray[np.int64]


class Slots:
    """Key-value store; also the attention layout of a decoding step, which adds one token to each row, at ``at_B``.

    If ``aligned``, attention is as in ``protocol.tensor.alignment``.
    """

    def __init__(self, device: torch.device, aligned: bool = False) -> None:
        self.device, self.aligned = device, aligned
        self.keys_RKSD: dict[int, Tensor] = {}
        self.values_RKSD: dict[int, Tensor] = {}
        self.rows = self.capacity = 0
        self.at_B: I64 = np.empty(0, dtype=np.int64)

    def reserve(self, rows: int, capacity: int) -> None:
        """Grows to at least ``rows`` rows of ``capacity`` positions; layers are allocated with their first states."""
        if rows <= self.rows and capacity <= self.capacity:
            return
        self.rows, self.capacity = max(rows, len(self.at_B)), max(capacity, self._width())
        self.capacity = self._columns(self.capacity)
        for held in (self.keys_RKSD, self.values_RKSD):
            for layer, states in held.items():
                held[layer] = self._grown(states)

    def _grown(self, states_RKSD: Tensor) -> Tensor:
        new = self._room(states_RKSD)
        used, width = len(self.at_B), self._width()
        new[:used, :, :width] = states_RKSD[:used, :, :width]
        return new

    def _room(self, like: Tensor) -> Tensor:
        # Zeros, because masked values are multiplied by 0 and uninitialised memory may hold NaN.
        return like.new_zeros(self.rows, like.shape[1], self.capacity, like.shape[-1])

    def _width(self) -> int:
        return int(self.at_B.max(initial=-1)) + 1

    def start(self, rows: I64, at: I64) -> None:
        """Sets the next position of ``rows`` to ``at``; rows beyond the last become the next slots."""
        grown = np.zeros(max(len(self.at_B), int(rows.max()) + 1), dtype=np.int64)
        grown[: len(self.at_B)] = self.at_B
        grown[rows] = at
        self.at_B = grown

    def fill(self, rows: I64, kept: Mapping[int, tuple[Tensor, Tensor]], nodes_BP: I64) -> None:
        """Copies the keys and values of each prompt's nodes (-1 behind its end) into its row of ``rows``."""
        places, nodes = (torch.from_numpy(array).to(self.device) for array in (rows, np.maximum(nodes_BP, 0)))
        for layer, states in kept.items():
            for held, states_NKD in zip((self.keys_RKSD, self.values_RKSD), states, strict=True):
                self._make_layer(held, layer, states_NKD)
                held[layer][places, :, : nodes.shape[1]] = states_NKD[nodes].transpose(1, 2)

    def copy(self, row: int, states: Mapping[int, tuple[Tensor, Tensor]]) -> None:
        """Copies keys and values (K, P, D) of a row's first positions, by layer, into ``row``."""
        for layer, pair in states.items():
            for held, states_KPD in zip((self.keys_RKSD, self.values_RKSD), pair, strict=True):
                held[layer][row, :, : states_KPD.shape[1]] = states_KPD

    def _make_layer(self, held: dict[int, Tensor], layer: int, states_NKD: Tensor) -> None:
        if layer not in held:
            held[layer] = self._room(states_NKD)

    def shrink(self, sources: I64, targets: I64, rows: int) -> None:
        """Moves the rows ``sources`` to the slots ``targets`` and keeps the first ``rows`` rows."""
        width = self._width()
        there, here = (torch.from_numpy(array).to(self.device) for array in (sources, targets))
        for held in (self.keys_RKSD, self.values_RKSD):
            for states in held.values():
                states[here, :, :width] = states[there, :, :width]
        self.at_B[targets] = self.at_B[sources]
        self.at_B = self.at_B[:rows]

    def begin(self) -> Tensor:
        """Prepares a step. Returns the positions of its tokens."""
        self.level = not self.aligned and bool((self.at_B == self.at_B[0]).all())
        self.masks: dict[int | None, Tensor] = {}
        self.positions_B = torch.from_numpy(self.at_B).to(self.device)
        self.index_B = torch.arange(len(self.at_B), device=self.device)
        return self.positions_B

    def advance(self) -> None:
        """Ends a step. A row that has ended but still runs stays within its slot."""
        self.at_B = np.minimum(self.at_B + 1, self.capacity - 1)

    def attend(
        self, layer: int, query_BHD: Tensor, key_BKD: Tensor, value_BKD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Stores each row's key and value, and returns its query's attention over the whole row, (B, H, D)."""
        keys, values = (
            self._stored(held, layer, states)
            for held, states in ((self.keys_RKSD, key_BKD), (self.values_RKSD, value_BKD))
        )
        rows, heads, width = key_BKD.shape
        # Query heads that share keys become several queries of one head, so that keys are not repeated.
        grouped = query_BHD.reshape(rows, heads, -1, width)
        if self.aligned:
            if window not in self.masks:
                self.masks[window] = self._seen(window)
            return attend_aligned(grouped, keys, values, self.masks[window], scale).reshape(query_BHD.shape)
        first, mask = 0, None
        if not self.level:
            mask = self._mask(window, query_BHD.dtype)
        elif window is not None:
            first = max(0, keys.shape[2] - window)
        found = scaled_dot_product_attention(
            grouped, keys[:, :, first:], values[:, :, first:], attn_mask=mask, scale=scale
        )
        return found.reshape(query_BHD.shape)

    def _stored(self, held: dict[int, Tensor], layer: int, states_BKD: Tensor) -> Tensor:
        self._make_layer(held, layer, states_BKD)
        rows = len(states_BKD)
        if self.level:
            held[layer][:rows, :, int(self.at_B[0])] = states_BKD
        else:
            held[layer][self.index_B, :, self.positions_B] = states_BKD
        return held[layer][:rows, :, : self._columns(self._width())]

    def _columns(self, width: int) -> int:
        return aligned(width) if self.aligned else width

    def _mask(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """Returns the additive mask (B, 1, 1, S): 0 at positions that the row may see, else minus infinity."""
        if window not in self.masks:
            seen = self._seen(window)
            self.masks[window] = torch.zeros(seen.shape, dtype=dtype, device=self.device).masked_fill_(
                ~seen, -torch.inf
            )
        return self.masks[window]

    def _seen(self, window: int | None) -> Tensor:
        """Returns the positions that each row may see, (B, 1, 1, S)."""
        columns = self._columns(self._width())
        columns_S, last_B1 = torch.arange(columns, device=self.device), self.positions_B[:, None]
        seen_BS = columns_S <= last_B1
        if window is not None:
            seen_BS &= columns_S > last_B1 - window
        return seen_BS[:, None, None]
