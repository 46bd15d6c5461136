"""Attention in our own hands: rows of any length side by side without padding, in any model of transformers.

A model is given all rows' tokens one after another, as one long row, with each token's position beside it; everything
but attention treats tokens one by one and needs to know no more. Attention goes through the interface transformers has
for it, to a ``Layout``, which knows which of the tokens a query may see. A model that attends in some other way, or
keeps a state that is no keys and values, is refused: its numbers would be wrong without anybody seeing it.

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
LAYER_TYPES = {"full_attention", "sliding_attention"}
ROPE_TYPES = {"default", "linear", "llama3", "yarn"}
MEANINGFUL = ("softcap", "s_aux", "position_bias")


class Layout(Protocol):
    """Where the tokens of a pass stand to one another."""

    def attend(
        self, layer: int, query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Returns what each query gets from those it may see: itself and all before it, or the last ``window``."""
        ...


class _Pass:
    """One run of the model: its layout, and which layers came to it."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.layers: set[int] = set()


_running: ContextVar[_Pass] = ContextVar("running")


def check_attention(network: Any) -> None:
    """Raises ``Misconfigured`` where the model is known to be one that ``run`` would get wrong."""
    config = network.config.get_text_config(decoder=True)
    for kind in set(getattr(config, "layer_types", None) or LAYER_TYPES) - LAYER_TYPES:
        raise _refusal(f"has layers of type {kind!r}")
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in rope.values() if any(isinstance(value, dict) for value in rope.values()) else [rope]:
        if parameters.get("rope_type", "default") not in ROPE_TYPES:
            raise _refusal(f"turns positions differently by the longest row (rope {parameters['rope_type']!r})")
    if "position_ids" not in inspect.signature(network.base_model.forward).parameters:
        raise _refusal("takes no positions")


def run(network: Any, layout: Layout, tokens_N: Tensor, positions_N: Tensor, **more: Any) -> Any:
    """Runs ``network``, or the part of it below the LM head, over tokens that stand to one another as ``layout`` says.

    Its output has one row of N tokens. Raises ``Misconfigured`` where not every layer attended through the layout.
    """
    own = _Pass(layout)
    with _attending(network.config.get_text_config(decoder=True)) as config:
        token = _running.set(own)
        try:
            output = network(input_ids=tokens_N[None], position_ids=positions_N[None], use_cache=False, **more)
        finally:
            _running.reset(token)
    if len(own.layers) != config.num_hidden_layers:
        raise _refusal("does not attend by the interface that transformers has for it")
    return output


@contextmanager
def _attending(config: Any) -> Iterator[Any]:
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield config
    finally:
        config._attn_implementation = before


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
    """What transformers calls in place of its own: tensors (1, heads, N, D) in, (1, N, H, D) out."""
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
        f"this model {what}, so rows of different lengths cannot share a batch: take one whose layers all attend "
        "fully or in a sliding window, as those of Llama, Mistral and Qwen3 do"
    )


AttentionInterface.register(NAME, _attend)

# LAYER_TYPES: what ``_attend`` can tell from its arguments; chunks and recurrent states it could not.
# ROPE_TYPES: those that turn a position the same way whatever else is in the batch.
# MEANINGFUL: arguments of other models' attention that change the result.
