"""Work units: floating-point operations of a rollout's verified tokens under the run's model.

PURE, exact integers, so that worker, validator and ledger agree on every unit. A multiply-add counts two operations;
norms, rotations, softmax and activations, under 1% together, count none. For one sampled token whose forward pass
attends to c positions (itself included), with h hidden, q = heads * head_dim and k = kv_heads * head_dim:

    layer = 2 h q + 2 * 2 h k + 2 q h     query; key and value; output projections
          + 3 * 2 h intermediate          gate, up and down of the SwiGLU block
          + 2 * 2 q c                     scores, and the values they weigh
    token = layers * layer + 2 h vocab    the LM head
    units = sum over i < output_tokens of token(c = prompt_tokens + i)

The first sampled token comes from the forward pass of the last prompt token. The rest of the prompt's prefill is not
counted: a group shares it, engines cache it, and paying for it would reward long prompts, not tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocol.errors import Rejected

MAX_UNITS = (1 << 64) - 1
"""A leaf holds units as u64."""

MAX_SIZE = 1 << 24
"""Bound of every field of a shape: keeps sums of honest jobs far below MAX_UNITS."""

ARCHITECTURES = ("llama", "qwen3")
"""``model_type`` of dense decoders with SwiGLU blocks."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a dense decoder. ``tied``: the LM head is the embedding matrix; operations do not depend on it."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool


def parse_shape(config: Mapping[str, Any]) -> ModelShape:
    """Reads the shape from a Hugging Face ``config.json`` of a Llama or Qwen3 model.

    ``num_key_value_heads``, ``head_dim`` and ``tie_word_embeddings`` may be missing, as there.

    Raises:
        Rejected: The architecture is another, or a field is missing or not a positive integer below 2^24.
    """
    if config.get("model_type") not in ARCHITECTURES:
        raise Rejected(f"invalid model_type {config.get('model_type')!r}: expected one of {', '.join(ARCHITECTURES)}")
    hidden, heads = _size(config, "hidden_size"), _size(config, "num_attention_heads")
    kv_heads = _size(config, "num_key_value_heads", heads)
    head_dim = _size(config, "head_dim", hidden // heads)
    if heads % kv_heads:
        raise Rejected(f"invalid num_attention_heads {heads}: expected a multiple of num_key_value_heads {kv_heads}")
    tied = config.get("tie_word_embeddings", False)
    if not isinstance(tied, bool):
        raise Rejected(f"invalid tie_word_embeddings {tied!r}: expected true or false")
    layers, intermediate = _size(config, "num_hidden_layers"), _size(config, "intermediate_size")
    return ModelShape(layers, hidden, heads, kv_heads, head_dim, intermediate, _size(config, "vocab_size"), tied)


def units(shape: ModelShape, prompt_tokens: int, output_tokens: int) -> int:
    """Returns the units of one rollout by the formula above; 0 for no output. Raises ``Rejected`` beyond u64."""
    if prompt_tokens < 1 or output_tokens < 0:
        raise Rejected(
            f"invalid rollout of {prompt_tokens} prompt and {output_tokens} output tokens: expected a prompt"
        )
    q, k = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    projections = 4 * shape.hidden * q + 4 * shape.hidden * k + 6 * shape.hidden * shape.intermediate
    attended = output_tokens * prompt_tokens + output_tokens * (output_tokens - 1) // 2
    layer = output_tokens * projections + 4 * q * attended
    total = shape.layers * layer + output_tokens * 2 * shape.hidden * shape.vocab
    if total > MAX_UNITS:
        raise Rejected(f"invalid rollout of {total} units: expected at most {MAX_UNITS}")
    return total


def capped(units: int, max_units: int) -> int:
    """Returns the units a run pays for: at most its ``max_units`` a job."""
    return min(units, max_units)


def _size(config: Mapping[str, Any], field: str, default: int | None = None) -> int:
    value = config.get(field)
    value = default if value is None else value
    if value is None:
        raise Rejected(f"the model's config.json lacks {field}")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < MAX_SIZE:
        raise Rejected(
            f"invalid {field} {value!r} in the model's config.json: expected a positive integer below {MAX_SIZE}"
        )
    return value
