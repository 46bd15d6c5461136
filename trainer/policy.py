"""The policy in training: a causal LM with its optimizer.

Axes: K completion tokens of a micro-batch one after another, H hidden size.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protocol.tensor.attention import attending, check_attention
from protocol.tensor.model import DTYPES, check_device, load_model
from protocol.tensor.packing import PackedLayout
from protocol.wire.rules import Rules, check_format
from trainer import grpo, head
from trainer.batch import F32, Group, MicroBatch, Packed, micro_batches, pack_trajectories, trajectories_of
from trainer.config import Recipe
from trainer.losses import OF_ROLLOUTS, OF_THE_START, Tokens, of_rollouts
from trainer.masters import Masters
from trainer.optimizer import Optimizer

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Metrics of a training step. Means are over completion tokens.

    ``staleness`` is the mean age of a token in versions, ``gradient_norm`` that of the last optimizer step before
    clipping, ``entropy`` in nats, ``kl`` to checkpoint 0 in nats (0 if the recipe has none). ``skipped`` counts
    optimizer steps skipped because the gradient was not finite.
    """

    loss: float
    tokens: int
    staleness: float
    clip_ratio: float
    ratio: float
    entropy: float
    kl: float
    gradient_norm: float
    learning_rate: float
    skipped: int


class Policy:
    """A model in training. ``version`` is that of its current weights; ``step`` makes the next.

    The optimizer steps fp32 ``masters``; all else is computed with the bits that are published, in the number format of
    the run's rules.

    ``directory`` holds version 0, whose files every later version has, with other weights.
    """

    def __init__(self, directory: Path, recipe: Recipe, rules: Rules, device: str = "cpu") -> None:
        check_format(directory, rules.model.dtype)
        check_device(device)
        self.directory, self.recipe, self.rules = directory, recipe, rules
        self.model = load_model(directory, DTYPES[rules.model.dtype])
        self.network = self.model.network.to(device)
        self.device = torch.device(device)
        check_attention(self.network)
        if recipe.checkpoint_activations:
            self.network.gradient_checkpointing_enable({"use_reentrant": False})
        self.masters = Masters(self.network)
        self.optimizer = Optimizer(self.network, self.masters, recipe)
        self.head = head.Head(self.network.get_output_embeddings(), DTYPES[rules.model.head_dtype], rules.temperature)
        self.version = 0
        self.optimizer_steps = 0
        self.reference: Weights | None = self.model.stored_weights(directory) if recipe.kl_coefficient else None

    def weights(self) -> dict[str, torch.Tensor]:
        """Returns a copy of the parameters by name, tied ones once."""
        return {name: parameter.clone() for name, parameter in self.model.weights().items()}

    def weigh(self, groups: Sequence[Group], weights: Weights | None = None) -> list[Group]:
        """Returns groups of one version with their behaviour logprobs, recomputed.

        Args:
            groups: all of one version.
            weights: of that version, by name; None takes the present ones.
        """
        rollouts = trajectories_of(groups)
        logprobs: dict[int, F32] = {}
        with self._under(weights):
            for packed in pack_trajectories(rollouts, self.recipe.microbatch_tokens):
                taken = self._taken(packed).cpu().numpy()
                ends = np.cumsum([len(rollouts[member].completion) for member in packed.members])
                logprobs |= zip(packed.members, np.split(taken, ends[:-1]), strict=True)
        in_order = (logprobs[member] for member in range(len(rollouts)))
        return [replace(group, behaviour=tuple(islice(in_order, len(group.completions)))) for group in groups]

    def train(self, groups: Sequence[Group]) -> StepRecord:
        """Trains on weighed groups as the recipe says, and advances to the next version."""
        return self.step(micro_batches(groups, self.recipe))

    def step(self, batches: Sequence[Sequence[MicroBatch]]) -> StepRecord:
        """Trains on one list of micro-batches per optimizer step and advances to the next version."""
        prepared = [[(batch, self._tokens(batch)) for batch in batches_of_step] for batches_of_step in batches]
        sums = _StepSums()
        for part in prepared:
            self._optimize(part, sums)
        ages = sum(int((self.version - batch.versions_K).sum()) for part in batches for batch in part)
        self.version += 1
        return sums.record(ages)

    def _tokens(self, batch: MicroBatch) -> Tokens:
        """Returns the inputs of a micro-batch's loss that optimizer steps do not change."""
        tokens = batch.tokens.to(self.device)
        loss = self.recipe.of_source(batch.source).loss
        return replace(tokens, start_K=self._taken(batch.packed)) if loss in OF_THE_START else tokens

    @torch.no_grad()
    def _taken(self, packed: Packed) -> torch.Tensor:
        """Returns logprobs_K of the tokens under the network's weights."""
        with self._attending(packed) as hidden_KH:
            return self.head.taken(hidden_KH, packed.targets_K.to(self.device))

    @torch.no_grad()
    def _reference(self, packed: Packed) -> head.Reference | None:
        if self.reference is None:
            return None
        with self._under(self.reference), self._attending(packed) as hidden_KH:
            return head.Reference(self.head.frozen(), hidden_KH)

    @contextmanager
    def _attending(self, packed: Packed) -> Iterator[torch.Tensor]:
        """Gives the inputs hidden_KH of the LM head; what checkpointing runs again must run within."""
        layout = PackedLayout.of(packed.pack, self.device)
        tokens_N, positions_N = packed.pack.inputs(self.device)
        with attending(self.network.base_model, layout):
            output = self.network.base_model(input_ids=tokens_N[None], position_ids=positions_N[None], use_cache=False)
            yield output[0][0][packed.nodes_K.to(self.device)]

    @contextmanager
    def _under(self, weights: Weights | None) -> Iterator[None]:
        """Puts other weights in the place of the present ones for a time, without a copy."""
        if weights is None:
            yield
            return
        own = self.model.weights()
        self.model.use_weights(weights)
        try:
            yield
        finally:
            self.model.use_weights(own)

    def _optimize(self, part: Sequence[tuple[MicroBatch, Tokens]], sums: _StepSums) -> None:
        """Makes one optimizer step; skips it if the gradient is not finite."""
        self.optimizer.zero_grad()
        denominator = sum(batch.completion_tokens for batch, _ in part)
        for batch, tokens in part:
            sums.add(self._backward(batch, tokens, denominator))
            self.masters.gather()
        rate = self.recipe.rate(self.optimizer_steps)
        norm = torch.nn.utils.clip_grad_norm_(self.masters.parameters(), self.recipe.gradient_clip).item()
        sums.rate, sums.norm = rate, norm
        self.optimizer_steps += 1
        if not math.isfinite(norm):
            sums.skipped += 1
            return
        self.optimizer.step(rate)
        self.masters.scatter()

    def _backward(self, batch: MicroBatch, tokens: Tokens, denominator: int) -> grpo.Loss:
        """Adds a micro-batch's gradients to the network's; returns its loss."""
        recipe = self.recipe.of_source(batch.source)
        reference, targets_K = self._reference(batch.packed), batch.packed.targets_K.to(self.device)
        self.network.train(self.recipe.checkpoint_activations)  # in evaluation mode transformers keeps them all
        # Layers that are run again must find the pass that they belong to: on this thread, and before it ends.
        with self._attending(batch.packed) as hidden_KH, torch.autograd.set_multithreading_enabled(False):
            if recipe.loss in OF_ROLLOUTS:
                policy_K = self.head.taken(hidden_KH.detach(), targets_K)
                tokens = of_rollouts(tokens, policy_K, batch.rollout_K.to(self.device))
            loss = head.loss(self.head, hidden_KH, targets_K, tokens, recipe, denominator, reference)
            loss.total.backward()  # type: ignore[no-untyped-call]
        self.network.eval()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Returns the state for resuming, which ``torch.save`` accepts."""
        return {
            "version": self.version,
            "optimizer_steps": self.optimizer_steps,
            "optimizer": self.optimizer.state_dict(),
            "masters": self.masters.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state returned by ``state_dict``, bit for bit."""
        self.version, self.optimizer_steps = state["version"], state["optimizer_steps"]
        self.masters.load_state_dict(state["masters"])
        self.optimizer.load_state_dict(state["optimizer"])

    def adopt(self, version: int, directory: Path) -> None:
        """Goes back to the weights of an earlier ``version``, stored in ``directory``.

        Masters and optimizer are reset, because their low bits and moments belong to the steps taken back.
        """
        self.version = version
        self.model.load_weights(directory)
        self.masters.take()
        self.optimizer = Optimizer(self.network, self.masters, self.recipe)

    def save_weights(self, directory: Path, files: Mapping[str, bytes]) -> None:
        """Writes the files of version 0 with the present weights, and ``files``, the version's own.

        ``directory`` appears complete or not at all.
        """
        unfinished = directory.with_name(directory.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        self.model.save(unfinished, self.directory)
        for name, data in files.items():
            (unfinished / name).write_bytes(data)
        os.replace(unfinished, directory)


class _StepSums:
    """Sums over the optimizer steps of one training step."""

    def __init__(self) -> None:
        self.total, self.sums = 0.0, torch.zeros(5)
        self.norm, self.rate, self.parts, self.skipped = 0.0, 0.0, 0, 0

    def add(self, loss: grpo.Loss) -> None:
        self.total += loss.total.item()
        self.sums += torch.stack([loss.tokens, loss.clipped, loss.ratio, loss.entropy, loss.kl]).cpu()

    def record(self, staleness: int) -> StepRecord:
        tokens, clipped, ratio, entropy, kl = self.sums.tolist()
        count = max(tokens, 1.0)
        return StepRecord(
            loss=self.total,
            tokens=int(tokens),
            staleness=staleness / count,
            clip_ratio=clipped / count,
            ratio=ratio / count,
            entropy=entropy / count,
            kl=kl / count,
            gradient_norm=self.norm,
            learning_rate=self.rate,
            skipped=self.skipped,
        )
