"""Models of bfloat16 weights that move a little between versions, as an optimizer with fp32 masters moves them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Stored = tuple[str, tuple[int, ...], bytes]
"""A tensor as safetensors keeps it: format, shape, values."""


def safetensors(tensors: Mapping[str, Stored]) -> bytes:
    """The file that holds these tensors, in their order."""
    head, end = {}, 0
    for name, (dtype, shape, values) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(values)]}
        end += len(values)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(values for _, _, values in tensors.values())


def bfloat16(weights: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The nearest bfloat16 of each, ties to even, as bits."""
    bits = weights.view(np.uint32)
    rounded: NDArray[np.uint16] = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return rounded


class EvolvingModel:
    """fp32 masters away from the bfloat16 grid; each step moves them by about ``rate``."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], rate: float = 3e-7, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.rate = rate
        self.weights = {
            name: (0.02 * self.random.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()
        }

    def step(self) -> None:
        for name, weights in self.weights.items():
            moves = self.random.standard_normal(weights.shape, np.float32).clip(-1, 1)
            self.weights[name] = weights + np.float32(self.rate) * moves

    def tensors(self) -> dict[str, Stored]:
        return {name: ("BF16", weights.shape, bfloat16(weights).tobytes()) for name, weights in self.weights.items()}

    def write(self, directory: Path) -> Path:
        """Writes the model as a new directory."""
        directory.mkdir(parents=True)
        (directory / "config.json").write_text('{"model_type": "qwen3"}')
        (directory / "tokenizer.json").write_text('{"version": "1.0"}')
        (directory / "model.safetensors").write_bytes(safetensors(self.tensors()))
        return directory
