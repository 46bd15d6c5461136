"""Work units: floating-point operations of a rollout's verified tokens under the run's model.

PURE, exact integers, so that worker, validator and ledger agree on every unit. A multiply-add counts two operations;
norms, biases, rotations, softmax and activations, under 1% together, count none. For one sampled token whose forward
pass attends to c positions (itself included), with h hidden, q = heads * head_dim and k = kv_heads * head_dim:

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
from typing import Annotated, Any

from pydantic import BaseModel, Field

from protocol.errors import Rejected
from protocol.wire.canonical import validating

MAX_UNITS = (1 << 64) - 1
"""A leaf holds units as u64."""

MAX_SIZE = 1 << 24
"""Bound of every field of a shape: keeps sums of honest jobs far below MAX_UNITS."""


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


_Size = Annotated[int, Field(gt=0, lt=MAX_SIZE, strict=True)]


ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
"""Values of ``model_type``: dense decoders with SwiGLU blocks."""


class _Config(BaseModel):
    """The fields of a ``config.json`` that give a shape."""

    model_type: str
    num_hidden_layers: _Size
    hidden_size: _Size
    num_attention_heads: _Size
    num_key_value_heads: _Size | None = None
    head_dim: _Size | None = None
    intermediate_size: _Size
    vocab_size: _Size
    tie_word_embeddings: Annotated[bool, Field(strict=True)] = False


def parse_shape(config: Mapping[str, Any]) -> ModelShape:
    """Reads the shape from a Hugging Face ``config.json`` of a Llama, Mistral, Qwen2 or Qwen3 model.

    ``num_key_value_heads``, ``head_dim`` and ``tie_word_embeddings`` may be missing, as there.

    Raises:
        Rejected: The architecture is another, or a field is missing or not a positive integer below 2^24.
    """
    with validating("the model's config.json"):
        read = _Config.model_validate(config)
    if read.model_type not in ARCHITECTURES:
        raise Rejected(f"unknown architecture {read.model_type!r}: expected {', '.join(ARCHITECTURES)}")
    heads, kv_heads = read.num_attention_heads, read.num_key_value_heads or read.num_attention_heads
    head_dim = read.head_dim or read.hidden_size // heads
    if heads % kv_heads or not head_dim:
        raise Rejected(
            f"invalid num_attention_heads {heads}: expected a multiple of num_key_value_heads {kv_heads}, "
            f"at most hidden_size {read.hidden_size}"
        )
    sizes = (read.num_hidden_layers, read.hidden_size, heads, kv_heads, head_dim, read.intermediate_size)
    return ModelShape(*sizes, read.vocab_size, read.tie_word_embeddings)


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
