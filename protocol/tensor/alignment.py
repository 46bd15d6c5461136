"""Passes in shapes that give a row the same bits whatever it is computed beside.

On CPUs two kinds of kernels of torch add in an order that depends on the shape. A matrix product of one row does it
otherwise than of several, so no pass has one. Attention depends on the number of queries and of columns of keys; it no
longer does where both are multiples, of ``QUERIES`` and of ``COLUMNS``, masked ones included, and the remainder of the
columns modulo ``SPLIT`` is none of ``ODD``. This is measured, not promised: `assize validator compare-class`.

Axes: N tokens of a pass, B rows, H query heads, K key-value heads, T queries, S columns, D width of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from protocol.tensor.attention import AttentionLayout, run

QUERIES, COLUMNS = 4, 64

SPLIT, ODD, EVEN = 512, (256, 320), 384
"""Columns that the kernel takes at a time; remainders that it adds in another order; the next one that it does not."""


def aligned(columns: int) -> int:
    """Returns the least number of columns, at least so many, at which attention keeps its bits."""
    width = _multiple(columns, COLUMNS)
    return width - width % SPLIT + EVEN if width % SPLIT in ODD else width


def _multiple(number: int, step: int) -> int:
    return -(-number // step) * step


class Several:
    """A layout of one token as that of two equal ones, of which the second repeats the first."""

    def __init__(self, layout: AttentionLayout) -> None:
        self.layout = layout

    def attend(
        self, layer: int, query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Returns the attention of the one token twice."""
        found_NHD = self.layout.attend(layer, query_NHD[:1], key_NKD[:1], value_NKD[:1], scale, window)
        return torch.cat([found_NHD, found_NHD])


def run_aligned(network: Any, layout: AttentionLayout, tokens_N: Tensor, positions_N: Tensor, **more: Any) -> Any:
    """Runs as ``protocol.tensor.attention.run``; the output of a pass of one token has a second row that repeats it."""
    if len(tokens_N) > 1:
        return run(network, layout, tokens_N, positions_N, **more)
    return run(network, Several(layout), tokens_N.repeat(2), positions_N.repeat(2), **more)


def attend_aligned(query_BHTD: Tensor, key_BKSD: Tensor, value_BKSD: Tensor, seen: Tensor, scale: float) -> Tensor:
    """Returns the attention of each query, (B, H, T, D), over the columns it sees.

    ``seen`` is (T, S), or (B, 1, 1, S) if all queries of a row see the same; columns beyond it are not seen.
    """
    queries, columns = query_BHTD.shape[2], key_BKSD.shape[2]
    rows, more = _multiple(queries, QUERIES) - queries, aligned(columns) - columns
    if more:
        key_BKSD, value_BKSD = (pad(states, (0, 0, 0, more)) for states in (key_BKSD, value_BKSD))
    if unseen := key_BKSD.shape[2] - seen.shape[-1]:
        seen = pad(seen, (0, unseen))
    if rows:
        query_BHTD = pad(query_BHTD, (0, 0, 0, rows))
        seen = pad(seen, (0, 0, 0, rows), value=True) if seen.shape[-2] == queries > 1 else seen
    found = scaled_dot_product_attention(query_BHTD, key_BKSD, value_BKSD, attn_mask=seen, scale=scale, enable_gqa=True)
    return found[:, :, :queries]
