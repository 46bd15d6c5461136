"""Estimate of the memory that training takes, made before anything is loaded.

For every parameter its master, moments and gradient in fp32, and the activations of one micro-batch:

    weights      parameters in the network's format, and masters in fp32 if that is another
    gradients    fp32, and once more in the network's format if that is another
    moments      two of AdamW, fp32
    activations  of each token and layer: inputs of norms and projections, rotated queries and keys, attention's own
                 copies, four arrays of the SwiGLU block; checkpointed, each layer's input and one layer's all
    head         logits of a chunk with their gradient, and the gradient of the LM head's weights

    evaluation   the weights of a version in a process of its own, if versions are evaluated

Reference and earlier versions are mapped from disk on a processor, and copies of the weights on a GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import psutil

from protocol.errors import Misconfigured
from protocol.tensor.directory import shape_of
from protocol.wire.pins import tensors_in
from protocol.wire.rules import Rules
from protocol.wire.units import ModelShape
from trainer.config import Recipe

BYTES = {"float32": 4, "bfloat16": 2}
REUSE = 2
"""Positions that attention copies for each token of a pass: sequences of a group share their prompt."""
PROCESS_BYTES = 600 << 20
"""The interpreter with torch and transformers, before a model is loaded."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes by what they hold."""

    weights: int
    gradients: int
    moments: int
    activations: int
    head: int
    evaluation: int

    @property
    def total(self) -> int:
        """Bytes of a training process."""
        parts = (self.weights, self.gradients, self.moments, self.activations, self.head, self.evaluation)
        return PROCESS_BYTES + sum(parts)


def memory_need(
    shape: ModelShape,
    parameters: int,
    dtype: str,
    recipe: Recipe,
    logits: int,
    longest: int,
    on_gpu: bool = False,
    evaluated: bool = False,
) -> MemoryNeed:
    """Returns the estimate. PURE.

    Args:
        shape: sizes of the model.
        parameters: numbers in its tensors, tied ones once.
        dtype: the network's number format by its name in the rules.
        recipe: whose ``microbatch_tokens`` run at once.
        logits: numbers of a chunk of logits (``trainer.head.LOGITS_AT_ONCE``).
        longest: tokens of the longest rollout, which runs in one pass.
        on_gpu: whether all of it is on a GPU.
        evaluated: whether versions are evaluated beside training.
    """
    size = BYTES[dtype]
    twice = size if dtype != "float32" else 0
    q, k = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layer = 6 * shape.hidden + 6 * q + 6 * k + REUSE * 3 * q + 4 * shape.intermediate
    kept = layer + shape.layers * shape.hidden if recipe.checkpoint_activations else shape.layers * layer
    copies = (1 if recipe.kl_coefficient else 0) + 1 if on_gpu else 0
    return MemoryNeed(
        weights=parameters * (4 + twice + copies * size),
        gradients=parameters * (4 + twice),
        moments=8 * parameters,
        activations=max(recipe.microbatch_tokens, longest) * kept * size,
        head=4 * logits * (4 if recipe.kl_coefficient else 3) + 4 * shape.vocab * shape.hidden,
        evaluation=PROCESS_BYTES + parameters * size if evaluated else 0,
    )


def check_memory(
    directory: Path, recipe: Recipe, rules: Rules, device: str, evaluated: bool, beside: int = 0
) -> MemoryNeed:
    """Returns the estimate for a model directory; so many other processes hold the model ``beside`` the trainer.

    Raises:
        Misconfigured: this machine, or its GPU, has less; or the architecture is unknown.
    """
    from protocol.tensor.model import check_device
    from trainer.head import LOGITS_AT_ONCE

    check_device(device)
    sizes = [tensor for held in tensors_in(directory).values() for tensor in held.values()]
    parameters = sum(math.prod(tensor.shape) for tensor in sizes)
    shape = shape_of(directory)
    need = memory_need(
        shape,
        parameters,
        rules.model.dtype,
        recipe,
        LOGITS_AT_ONCE[device],
        rules.max_tokens,
        device == "cuda",
        evaluated,
    )
    has, others = available(device), beside * (PROCESS_BYTES + parameters * BYTES[rules.model.dtype])
    if need.total + others > has:
        place, at_once = "GPU" if device == "cuda" else "machine", max(recipe.microbatch_tokens, rules.max_tokens)
        more = f"with {beside} workers and validators " if beside else ""
        raise Misconfigured(
            f"training this model {more}takes about {_gib(need.total + others)}, of which {_gib(need.activations)} for "
            f"{at_once} tokens at once, and this {place} has "
            f"{_gib(has)}: lower microbatch_tokens, or set checkpoint_activations in [recipe]"
        )
    return need


def available(device: str) -> int:
    """Returns the bytes of memory of this machine, or of its GPU."""
    if device == "cpu":
        return int(psutil.virtual_memory().total)
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
