"""Attention in shapes that give a query the same bits whatever it is computed beside.

On CPUs the attention kernels of torch add in an order that depends on the number of queries and of columns of keys. It
no longer does where both are multiples, of ``QUERIES`` and of ``COLUMNS``, masked ones included. This is measured, not
promised: `assize validator compare-class`.

Axes: B rows, H query heads, K key-value heads, T queries, S columns, D width of a head.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

QUERIES, COLUMNS = 4, 64


def aligned(columns: int, step: int = COLUMNS) -> int:
    """Returns the least multiple of ``step`` that is not below ``columns``."""
    return -(-columns // step) * step


def attend_aligned(query_BHTD: Tensor, key_BKSD: Tensor, value_BKSD: Tensor, seen: Tensor, scale: float) -> Tensor:
    """Returns the attention of each query, (B, H, T, D), over the columns it sees.

    ``seen`` is (T, S), or (B, 1, 1, S) if all queries of a row see the same.
    """
    queries, columns = query_BHTD.shape[2], key_BKSD.shape[2]
    rows, more = aligned(queries, QUERIES) - queries, aligned(columns) - columns
    if more:
        key_BKSD, value_BKSD = (pad(states, (0, 0, 0, more)) for states in (key_BKSD, value_BKSD))
        seen = pad(seen, (0, more))
    if rows:
        query_BHTD = pad(query_BHTD, (0, 0, 0, rows))
        seen = pad(seen, (0, 0, 0, rows), value=True) if seen.shape[-2] == queries > 1 else seen
    found = scaled_dot_product_attention(query_BHTD, key_BKSD, value_BKSD, attn_mask=seen, scale=scale, enable_gqa=True)
    return found[:, :, :queries]
