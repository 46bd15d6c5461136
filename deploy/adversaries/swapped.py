"""Workers that run another model than the policy.

They report that model's activations and logprobs; the "Prefilled" ones those of a prefill by the policy, so that only
the choice of tokens differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from deploy.adversaries.choosing import prefilled
from deploy.adversaries.models import other_model
from protocol.tensor.completions import Completion
from protocol.tensor.model import Model
from worker.engines.transformers_engine import TransformersEngine
from worker.producer import Producer
from worker.prover import Task

GROUP = 32
"""Weights that share a scale when quantised to four bits."""


class Swapped(Producer):
    """Generates with ``other``, which ``prepare`` makes for each version of the policy.

    ``models`` finds the directories of models other than the policy.
    """

    other: TransformersEngine
    models = staticmethod(other_model)

    def load(self, version: int, directory: Path) -> None:
        """Loads a policy version."""
        if version == self.loaded:
            return
        super().load(version, directory)
        self.other = self.prepare(directory)

    def prepare(self, directory: Path) -> TransformersEngine:
        """Returns the engine that generates in place of the policy in ``directory``."""
        raise NotImplementedError

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        return self.other.generate([task.request for task in tasks], self.cancelled)


class Prefilled(Producer):
    """Mixin, first in the bases: reports the true policy's logprobs and hidden states of the generated tokens."""

    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        """Returns the completions to hand in."""
        outputs = [completion.output_tokens for completion in super().complete(tasks)]
        return prefilled(self.engine.model, self.rules, [task.request for task in tasks], outputs)


class StalePolicy(Swapped):
    """Generates with the previous version; works honestly with the first."""

    before: TransformersEngine | None = None

    def prepare(self, directory: Path) -> TransformersEngine:
        """Returns the engine that generates in place of the policy."""
        older = self.before
        self.before = loaded(self.rules.model.dtype, directory)
        return older or self.before


class Sibling(Swapped):
    """Generates with a model of the same shape and teacher, made from another seed."""

    def prepare(self, directory: Path) -> TransformersEngine:
        """Returns the engine that generates in place of the policy."""
        return loaded(self.rules.model.dtype, self.models("sibling", self.environment))


class Smaller(Swapped):
    """Generates with a model of half the width and one layer."""

    def prepare(self, directory: Path) -> TransformersEngine:
        """Returns the engine that generates in place of the policy."""
        return loaded(self.rules.model.dtype, self.models("smaller", self.environment))


class OtherDtype(Swapped):
    """Generates in bf16 where the rules say fp32, and in fp32 where they say bf16."""

    def prepare(self, directory: Path) -> TransformersEngine:
        """Returns the engine that generates in place of the policy."""
        return loaded("bfloat16" if self.rules.model.dtype == "float32" else "float32", directory)


class Int8(Swapped):
    """Generates with eight-bit weights, one scale for each output channel."""

    def prepare(self, directory: Path) -> TransformersEngine:
        """Returns the engine that generates in place of the policy."""
        return quantised(loaded(self.rules.model.dtype, directory), _int8)


class Int4(Swapped):
    """Generates with four-bit weights, one scale for each 32."""

    def prepare(self, directory: Path) -> TransformersEngine:
        """Returns the engine that generates in place of the policy."""
        return quantised(loaded(self.rules.model.dtype, directory), _int4)


class Fp8(Swapped):
    """Generates with fp8 weights (e4m3), one scale for each output channel."""

    def prepare(self, directory: Path) -> TransformersEngine:
        """Returns the engine that generates in place of the policy."""
        return quantised(loaded(self.rules.model.dtype, directory), _fp8)


class StalePolicyPrefilled(Prefilled, StalePolicy):
    """Generates with the previous version, then prefills with the true one."""


class SiblingPrefilled(Prefilled, Sibling):
    """Generates with the sibling, then prefills with the policy."""


class SmallerPrefilled(Prefilled, Smaller):
    """Generates with a small model, then prefills with the policy, which activation proofs alone cannot detect."""


class OtherDtypePrefilled(Prefilled, OtherDtype):
    """Generates in the other number format, then prefills in the right one."""


class Int8Prefilled(Prefilled, Int8):
    """Generates with eight-bit weights, then prefills with the policy."""


class Int4Prefilled(Prefilled, Int4):
    """Generates with four-bit weights, then prefills with the policy."""


class Fp8Prefilled(Prefilled, Fp8):
    """Generates with fp8 weights, then prefills with the policy."""


def loaded(dtype: str, directory: Path) -> TransformersEngine:
    """Returns an engine with the model of ``directory``."""
    engine = TransformersEngine("bfloat16" if dtype == "bfloat16" else "float32")
    engine.load(directory)
    return engine


def quantised(engine: TransformersEngine, rounded: Callable[[torch.Tensor], torch.Tensor]) -> TransformersEngine:
    """Returns the engine with the weights of all linear layers except the LM head replaced by ``rounded`` ones."""
    for weight_OI in linear_weights(engine.model):
        weight_OI.copy_(rounded(weight_OI.float()))
    return engine


def linear_weights(model: Model) -> list[torch.Tensor]:
    """Returns the weights that are quantised in practice: those of the layers, without embeddings and LM head."""
    head = model.network.get_output_embeddings()
    layers = [module for module in model.network.modules() if isinstance(module, torch.nn.Linear)]
    return [layer.weight.detach() for layer in layers if layer is not head]


def _int8(weight_OI: torch.Tensor) -> torch.Tensor:
    scale_O1 = weight_OI.abs().amax(1, keepdim=True) / 127
    return (weight_OI / scale_O1).round().to(torch.int8).float() * scale_O1


def _int4(weight_OI: torch.Tensor) -> torch.Tensor:
    grouped = weight_OI.reshape(-1, GROUP)
    scale = grouped.abs().amax(1, keepdim=True) / 7
    return ((grouped / scale).round().to(torch.int8).float() * scale).reshape(weight_OI.shape)


def _fp8(weight_OI: torch.Tensor) -> torch.Tensor:
    scale_O1 = weight_OI.abs().amax(1, keepdim=True) / torch.finfo(torch.float8_e4m3fn).max
    return (weight_OI / scale_O1).to(torch.float8_e4m3fn).float() * scale_O1
