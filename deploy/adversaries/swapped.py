"""Workers that run another model than the policy, and report its activations and logprobs; and the same after a
prefill of the finished text by the policy itself, which leaves nothing to see but the choice of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from typing_extensions import override

from deploy.adversaries.choosing import prefilled
from deploy.adversaries.models import other_model
from protocol.tensor.completions import Completion
from protocol.tensor.model import Model
from worker.engines.transformers_engine import TransformersEngine
from worker.producer import Producer
from worker.prover import Task

GROUP = 32
"""Weights that share a scale where they are cut to four bits."""


class Swapped(Producer):
    """Generates with ``other``, which ``prepare`` makes anew for each version of the policy.

    ``models`` says where the models lie that are not the policy.
    """

    other: TransformersEngine
    models = staticmethod(other_model)

    @override
    def load(self, version: int, directory: Path) -> None:
        if version == self.loaded:
            return
        super().load(version, directory)
        self.other = self.prepare(directory)

    def prepare(self, directory: Path) -> TransformersEngine:
        """The engine that generates in place of the policy in ``directory``."""
        raise NotImplementedError

    @override
    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        return self.other.generate([task.request for task in tasks], self.cancelled)


class Prefilled(Producer):
    """Has the true policy read what was generated, and reports what that gives. Stands before another in the bases."""

    @override
    def complete(self, tasks: Sequence[Task]) -> list[Completion]:
        outputs = [completion.output_tokens for completion in super().complete(tasks)]
        return prefilled(self.engine.model, self.rules, [task.request for task in tasks], outputs)


class StalePolicy(Swapped):
    """Generates with the version before the one asked for; honest as long as there is none."""

    before: TransformersEngine | None = None

    @override
    def prepare(self, directory: Path) -> TransformersEngine:
        older = self.before
        self.before = loaded(self.rules.model.dtype, directory)
        return older or self.before


class Sibling(Swapped):
    """Generates with a model of the same shape and teacher, made from another seed."""

    @override
    def prepare(self, directory: Path) -> TransformersEngine:
        return loaded(self.rules.model.dtype, self.models("sibling", self.environment))


class Smaller(Swapped):
    """Generates with a model of half the width and one layer."""

    @override
    def prepare(self, directory: Path) -> TransformersEngine:
        return loaded(self.rules.model.dtype, self.models("smaller", self.environment))


class OtherDtype(Swapped):
    """Generates in bf16 where the rules say fp32, and in fp32 where they say bf16."""

    @override
    def prepare(self, directory: Path) -> TransformersEngine:
        return loaded("bfloat16" if self.rules.model.dtype == "float32" else "float32", directory)


class Int8(Swapped):
    """Generates with weights of eight bits, a scale for each output channel."""

    @override
    def prepare(self, directory: Path) -> TransformersEngine:
        return quantised(loaded(self.rules.model.dtype, directory), _int8)


class Int4(Swapped):
    """Generates with weights of four bits, a scale for each 32 of them."""

    @override
    def prepare(self, directory: Path) -> TransformersEngine:
        return quantised(loaded(self.rules.model.dtype, directory), _int4)


class Fp8(Swapped):
    """Generates with weights in fp8 (e4m3), a scale for each output channel."""

    @override
    def prepare(self, directory: Path) -> TransformersEngine:
        return quantised(loaded(self.rules.model.dtype, directory), _fp8)


class StalePolicyPrefilled(Prefilled, StalePolicy):
    """The version before, then a prefill by the true one."""


class SiblingPrefilled(Prefilled, Sibling):
    """The sibling, then a prefill by the policy."""


class SmallerPrefilled(Prefilled, Smaller):
    """A small model, then a prefill by the policy: the cheat that activation proofs alone cannot see."""


class OtherDtypePrefilled(Prefilled, OtherDtype):
    """The other number format, then a prefill in the right one."""


class Int8Prefilled(Prefilled, Int8):
    """Eight-bit weights, then a prefill by the policy."""


class Int4Prefilled(Prefilled, Int4):
    """Four-bit weights, then a prefill by the policy."""


class Fp8Prefilled(Prefilled, Fp8):
    """Weights in fp8, then a prefill by the policy."""


def loaded(dtype: str, directory: Path) -> TransformersEngine:
    """An engine with the model of a directory."""
    engine = TransformersEngine("bfloat16" if dtype == "bfloat16" else "float32")
    engine.load(directory)
    return engine


def quantised(engine: TransformersEngine, rounded: Callable[[torch.Tensor], torch.Tensor]) -> TransformersEngine:
    """The engine with every linear layer's weights but the LM head's replaced by what ``rounded`` leaves of them."""
    for weight_OI in linear_weights(engine.model):
        weight_OI.copy_(rounded(weight_OI.float()))
    return engine


def linear_weights(model: Model) -> list[torch.Tensor]:
    """The weights that are quantised in practice: those of the layers, neither embeddings nor LM head."""
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
