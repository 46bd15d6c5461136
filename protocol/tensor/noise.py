"""Seeded sampling on torch tensors, equal to ``protocol.wire.sampling`` to the last bit on any device.

A compiled loop does the work on CPUs (``protocol.tensor.kernels.noise_cpu``), a triton kernel on CUDA
(``protocol.tensor.kernels.noise_cuda``). Tensors on a device without a kernel make a round trip through the CPU; a CPU
without numba runs the definition itself.

Axes: B rows, V vocabulary, K key words (2).
"""

from __future__ import annotations

import functools
import os
import shutil
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protocol.compiled import kernels
from protocol.tensor.kernels import NOISE
from protocol.wire import sampling


def perturb(
    logits_BV: Tensor,
    keys_BK: Tensor | NDArray[np.integer],
    positions_B: Tensor | NDArray[np.integer],
    temperatures_B: Tensor | NDArray[np.float32],
) -> Tensor:
    """Adds to each row of logits its temperature times its noise; the argmax of a row is then the seeded choice.

    Returns fp32 (B, V): ``logits_BV`` itself, changed, if it is fp32 and contiguous, else a new tensor. A row at
    temperature 0 keeps its logits. ``keys_BK`` and ``positions_B`` (0 is the first sampled token) hold u32 values in
    any integer dtype. ``temperatures_B`` must lie between 0 and 1.5; checking it here would make a CPU wait for its
    GPU.
    """
    scores_BV, device = logits_BV.to(torch.float32).contiguous(), logits_BV.device
    keys_BK, positions_B = _int64(keys_BK, device), _int64(positions_B, device)
    rows = scores_BV, keys_BK, positions_B, torch.as_tensor(temperatures_B).to(device=device, dtype=torch.float32)
    if device.type == "cpu" and (kernel := kernels(NOISE)):
        kernel.perturb_rows(*(tensor.numpy() for tensor in rows), _lines())
    elif device.type == "cpu":
        perturb_by_definition(*(tensor.numpy() for tensor in rows))
    elif device.type == "cuda" and (kernel := _triton()):
        kernel.perturb_rows(*rows, _table(device))
    else:
        scores_BV.copy_(perturb(*(tensor.cpu() for tensor in rows)))
    return scores_BV


def perturb_by_definition(
    logits_BV: NDArray[np.float32],
    keys_BK: NDArray[np.int64],
    positions_B: NDArray[np.int64],
    temperatures_B: NDArray[np.float32],
) -> None:
    """Does as ``perturb``, in place and one row at a time, where numba does not load."""
    words_BK = keys_BK.astype(np.uint32)
    for b, logits_V in enumerate(logits_BV):
        noise_1V = sampling.gumbel_noise(words_BK[b : b + 1], positions_B[b : b + 1], len(logits_V))
        logits_V += temperatures_B[b] * noise_1V[0]


def _int64(numbers: Tensor | NDArray[Any], device: torch.device) -> Tensor:
    tensor = torch.from_numpy(numbers.astype(np.int64)) if isinstance(numbers, np.ndarray) else numbers
    return tensor.to(device=device, dtype=torch.int64)


@functools.cache
def _triton() -> Any | None:
    """The kernel for CUDA, or ``None`` if triton, or the C compiler that it starts kernels with, is not installed."""
    if not (os.environ.get("CC") or shutil.which("clang") or shutil.which("gcc")):
        return None
    try:
        from protocol.tensor.kernels import noise_cuda
    except ImportError:
        return None
    return noise_cuda


@functools.cache
def _lines() -> NDArray[np.float32]:
    """Base and slope of each line of the Gumbel table side by side, (L, 2)."""
    table = sampling.gumbel_table()
    return np.ascontiguousarray(np.stack([table.base, table.slope], axis=1))


@functools.cache
def _table(device: torch.device) -> tuple[Tensor, Tensor]:
    table = sampling.gumbel_table()
    return torch.from_numpy(table.base).to(device), torch.from_numpy(table.slope).to(device)
