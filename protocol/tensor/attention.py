"""Attention of packed rows: rows of any length side by side without padding, in any model of transformers.

A model receives the tokens of all rows one after another as one long row, with the position of each token; everything
but attention treats tokens independently. Attention goes through the interface that transformers has for it, to an
``AttentionLayout``, which knows the tokens that a query may see. A model that attends in another way, or keeps state
other than keys and values, is refused: its results would be wrong without any error.

Axes: N tokens of a pass, H query heads, K key-value heads, D width of a head.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from torch import Tensor
from transformers import AttentionInterface

from protocol.errors import Misconfigured

NAME = "assize"
"""Name under which ``_attend`` is registered with transformers."""

LAYER_TYPES = {"full_attention", "sliding_attention"}
"""Layers that ``_attend`` can tell apart by its arguments, unlike chunked and recurrent ones."""

ROPE_TYPES = {"default", "linear", "llama3", "yarn"}
"""Rotations of a position that do not depend on the rest of the batch."""

MEANINGFUL = ("softcap", "s_aux", "position_bias")
"""Arguments of other models' attention that change the result."""


class AttentionLayout(Protocol):
    """The relation between the tokens of one pass."""

    def attend(
        self, layer: int, query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Returns the attention of each query, (N, H, D), over its row up to itself, or over the last ``window``."""


class _Pass:
    """One run of the model: its layout, and the layers that attended through it."""

    def __init__(self, layout: AttentionLayout) -> None:
        self.layout = layout
        self.layers: set[int] = set()


_running: ContextVar[_Pass] = ContextVar("running")


def check_attention(network: Any) -> None:
    """Raises ``Misconfigured`` for a model that ``run`` is known to get wrong."""
    config = network.config.get_text_config(decoder=True)
    for kind in set(getattr(config, "layer_types", None) or LAYER_TYPES) - LAYER_TYPES:
        raise _refusal(f"has layers of type {kind!r}")
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in rope.values() if any(isinstance(value, dict) for value in rope.values()) else [rope]:
        if parameters.get("rope_type", "default") not in ROPE_TYPES:
            raise _refusal(f"rotates positions depending on the longest row (rope {parameters['rope_type']!r})")
    if "position_ids" not in inspect.signature(network.base_model.forward).parameters:
        raise _refusal("takes no positions")


def run(network: Any, layout: AttentionLayout, tokens_N: Tensor, positions_N: Tensor, **more: Any) -> Any:
    """Runs ``network``, or the part of it below the LM head, over tokens that attend through ``layout``.

    Returns the network's output, which has one row of N tokens.

    Raises:
        Misconfigured: A layer did not attend through the layout.
    """
    with attending(network, layout):
        return network(input_ids=tokens_N[None], position_ids=positions_N[None], use_cache=False, **more)


@contextmanager
def attending(network: Any, layout: AttentionLayout) -> Iterator[None]:
    """Context in which ``network`` attends through ``layout``, in backward passes that repeat a forward pass, too.

    Raises:
        Misconfigured: At the end, if a layer did not.
    """
    own, config = _Pass(layout), network.config.get_text_config(decoder=True)
    before = config._attn_implementation
    config._attn_implementation = NAME
    token = _running.set(own)
    try:
        yield
    finally:
        _running.reset(token)
        config._attn_implementation = before
    if len(own.layers) != config.num_hidden_layers:
        raise _refusal("does not attend through transformers' attention interface")


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Attention function called by transformers: tensors (1, heads, N, D) in, (1, N, H, D) out."""
    for name in MEANINGFUL:
        if more.get(name) is not None:
            raise _refusal(f"attends with {name!r}")
    current = _running.get()
    current.layers.add(module.layer_idx)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    query_NHD, key_NKD, value_NKD = (states[0].transpose(0, 1) for states in (query, key, value))
    return current.layout.attend(module.layer_idx, query_NHD, key_NKD, value_NKD, scale, sliding_window)[None], None


def _refusal(what: str) -> Misconfigured:
    return Misconfigured(
        f"this model {what}, so rows of different lengths cannot share a batch: use a model whose layers all attend "
        "fully or in a sliding window, like Llama, Mistral or Qwen3"
    )


AttentionInterface.register(NAME, _attend)
