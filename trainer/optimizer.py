"""The optimizer of a policy's masters: AdamW, or Muon for the matrices of the layers and AdamW for the rest.

Muon steps a matrix along its momentum with all singular values made equal. Embeddings and LM head, whose rows are
tokens, and the one-dimensional gains have no use for that. Its steps are scaled to the size of AdamW's, so that one
learning rate serves both (arXiv 2502.16982).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from trainer.config import Recipe
from trainer.masters import Masters

MATRIX = 2


class Optimizer:
    """Steps masters by their gradients."""

    def __init__(self, network: Any, masters: Masters, recipe: Recipe) -> None:
        """Takes the masters of ``network``."""
        of_tokens = {id(each.weight) for each in (network.get_input_embeddings(), network.get_output_embeddings())}
        matrices: list[torch.nn.Parameter] = []
        others: list[torch.nn.Parameter] = []
        for parameter, master in masters.pairs():
            by_muon = recipe.optimizer == "muon" and master.dim() == MATRIX and id(parameter) not in of_tokens
            (matrices if by_muon else others).append(master)
        groups = [
            {"params": [p for p in others if p.dim() != 1], "multiple": 1.0},
            {"params": [p for p in others if p.dim() == 1], "multiple": recipe.gain_rate},
        ]
        rate, decay = recipe.learning_rate, recipe.weight_decay
        self._parts: dict[str, torch.optim.Optimizer] = {
            "adamw": torch.optim.AdamW(groups, lr=rate, betas=recipe.betas, weight_decay=decay)
        }
        if matrices:
            group = {"params": matrices, "multiple": 1.0}
            momentum = recipe.betas[0]
            self._parts["muon"] = torch.optim.Muon(
                [group], lr=rate, weight_decay=decay, momentum=momentum, adjust_lr_fn="match_rms_adamw"
            )

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for part in self._parts.values():
            part.zero_grad()

    def step(self, rate: float) -> None:
        """Makes one step at a learning rate."""
        for part in self._parts.values():
            for group in part.param_groups:
                group["lr"] = rate * group["multiple"]
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """Returns the moments, not copied."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state returned by ``state_dict``."""
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
