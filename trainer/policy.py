"""The policy in training: a causal LM with its optimizer, and the weights of its recent versions.

Axes: B rows, T positions, K kept positions (completions), V vocabulary.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.func import functional_call

from protocol.errors import Misconfigured
from protocol.tensor.model import DTYPES, load_model
from protocol.wire.rules import Rules, check_format
from trainer import grpo
from trainer.batch import MicroBatch
from trainer.config import Recipe
from trainer.masters import Masters

Weights = dict[str, torch.Tensor]


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

    def __init__(self, directory: Path, recipe: Recipe, rules: Rules) -> None:
        check_format(directory, rules.model.dtype)
        self.directory, self.recipe, self.rules = directory, recipe, rules
        self.model = load_model(directory, DTYPES[rules.model.dtype])
        self.network = self.model.network
        self.masters = Masters(self.network)
        self.optimizer = _optimizer(self.masters, recipe)
        self.version = 0
        self.optimizer_steps = 0
        self.kept: dict[int, Weights] = {0: self.weights()}
        self.reference: Weights | None = self.kept[0] if recipe.kl_coefficient else None

    def weights(self) -> Weights:
        """Returns a copy of the parameters by name, tied ones once."""
        return {name: parameter.clone() for name, parameter in self.model.weights().items()}

    def step(self, batches: Sequence[Sequence[MicroBatch]]) -> StepRecord:
        """Trains on one list of micro-batches per optimizer step and advances to the next version.

        Raises:
            Misconfigured: the weights of a rollout's version are no longer kept (callers take only usable groups).
        """
        prepared = [[(batch, self._tokens(batch)) for batch in batches_of_step] for batches_of_step in batches]
        sums = _StepSums()
        for part in prepared:
            self._optimize(part, sums)
        self._advance()
        staleness = sum((self.version - 1 - b.version) * b.completion_tokens for part in batches for b in part)
        return sums.record(staleness)

    def _tokens(self, batch: MicroBatch) -> grpo.Tokens:
        """Returns the inputs of a micro-batch's loss that optimizer steps do not change."""
        behaviour_BK = self._frozen_taken(batch, self._weights_of(batch.version))
        start_BK = None
        if self.recipe.ratio == "decoupled":
            start_BK = self._frozen_taken(batch, None)
        return grpo.Tokens(batch.targets_BK, batch.mask_BK, batch.advantages_B, behaviour_BK, start_BK)

    def _with_reference(self, batch: MicroBatch, tokens: grpo.Tokens) -> grpo.Tokens:
        """Adds checkpoint 0's logprobs if the recipe has a KL term; those of a whole step would not fit in memory."""
        if self.reference is None:
            return tokens
        return replace(tokens, reference_BTV=self._frozen_logprobs(batch, self.reference))

    def _weights_of(self, version: int) -> Weights | None:
        """Returns the kept weights of ``version``, or None for the model's current ones."""
        if version == self.version:
            return None
        if version not in self.kept:
            raise Misconfigured(
                f"the weights of version {version} are not kept: the run's rules allow rollouts up to "
                f"{self.rules.async_level} versions old"
            )
        return self.kept[version]

    def _frozen_taken(self, batch: MicroBatch, weights: Weights | None) -> torch.Tensor:
        return grpo.taken(self._frozen_logprobs(batch, weights), batch.targets_BK)

    @torch.no_grad()
    def _frozen_logprobs(self, batch: MicroBatch, weights: Weights | None) -> torch.Tensor:
        return self._logprobs(batch, weights)

    def _logprobs(self, batch: MicroBatch, weights: Weights | None = None) -> torch.Tensor:
        """Returns logprobs_BKV of the completions, applying the LM head at their positions only."""
        inputs = {
            "input_ids": batch.tokens_BT[:, :-1],
            "use_cache": False,
            "logits_to_keep": batch.tokens_BT.shape[1] - batch.first,
        }
        output: Any = self.network(**inputs) if weights is None else functional_call(self.network, weights, (), inputs)
        return grpo.logprobs(output.logits, self.rules.temperature)

    def _optimize(self, part: Sequence[tuple[MicroBatch, grpo.Tokens]], sums: _StepSums) -> None:
        """Makes one optimizer step; skips it if the gradient is not finite."""
        self.optimizer.zero_grad()
        denominator = sum(batch.completion_tokens for batch, _ in part)
        for batch, tokens in part:
            referred = self._with_reference(batch, tokens)
            loss = grpo.loss(self._logprobs(batch), referred, self.recipe, denominator)
            loss.total.backward()  # type: ignore[no-untyped-call]
            self.masters.gather()
            sums.add(loss)
        rate = self.recipe.rate(self.optimizer_steps)
        norm = torch.nn.utils.clip_grad_norm_(self.masters.parameters(), self.recipe.gradient_clip).item()
        sums.rate, sums.norm = rate, norm
        self.optimizer_steps += 1
        if not math.isfinite(norm):
            sums.skipped += 1
            return
        for settings in self.optimizer.param_groups:
            settings["lr"] = rate * settings["multiple"]
        self.optimizer.step()
        self.masters.scatter()

    def _advance(self) -> None:
        self.version += 1
        self.kept[self.version] = self.weights()
        for version in [v for v in self.kept if v < self.version - self.rules.async_level]:
            del self.kept[version]

    def state_dict(self) -> dict[str, Any]:
        """Returns the state for resuming, which ``torch.save`` accepts."""
        return {
            "version": self.version,
            "optimizer_steps": self.optimizer_steps,
            "optimizer": self.optimizer.state_dict(),
            "masters": self.masters.state_dict(),
            "kept": self.kept,
            "reference": self.reference,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state returned by ``state_dict``, bit for bit."""
        self.version, self.optimizer_steps = state["version"], state["optimizer_steps"]
        self.kept = {version: dict(weights) for version, weights in state["kept"].items()}
        self.reference = state["reference"]
        self.model.copy_weights(self.kept[self.version])
        self.masters.load_state_dict(state["masters"])
        self.optimizer.load_state_dict(state["optimizer"])

    def adopt(self, version: int, directory: Path) -> None:
        """Goes back to the weights of an earlier ``version``, stored in ``directory``.

        Masters and optimizer are reset, because their low bits and moments belong to the steps taken back.
        """
        weights = self.kept.get(version) or load_model(directory, next(self.network.parameters()).dtype).weights()
        self.version = version
        self.kept = {kept: weights for kept, weights in self.kept.items() if kept < version} | {version: weights}
        self.model.copy_weights(weights)
        self.masters.take()
        self.optimizer = _optimizer(self.masters, self.recipe)

    def save_weights(self, directory: Path) -> None:
        """Writes the files of version 0 with the present weights; ``directory`` appears complete or not at all."""
        unfinished = directory.with_name(directory.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        self.model.save(unfinished, self.directory)
        os.replace(unfinished, directory)


def _optimizer(masters: Masters, recipe: Recipe) -> torch.optim.AdamW:
    """Returns AdamW with the norm gains (the one-dimensional parameters) in a group of their own."""
    parameters = masters.parameters()
    groups = [
        {"params": [p for p in parameters if p.dim() != 1], "multiple": 1.0},
        {"params": [p for p in parameters if p.dim() == 1], "multiple": recipe.gain_rate},
    ]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay)


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
