"""The trainer's state for resuming after a crash, in one file that appears complete or not at all.

The state is a tree of dicts, lists, numbers, strings and tensors. Tensors go into safetensors under a number and their
path, since paths alone may collide; the rest of the tree goes into its metadata as JSON. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from protocol.errors import Misconfigured

FORMAT = "assize.trainer/3"
_TENSOR = "tensor"
_PAIRS = "pairs"


def save(path: Path, state: Any) -> None:
    """Writes ``state`` to ``path``: under a temporary name, flushed to disk, then renamed."""
    tensors: dict[str, torch.Tensor] = {}
    shape = _describe(state, "", tensors)
    _separate(tensors)
    temporary = path.with_name(path.name + ".unfinished")
    save_file(tensors, temporary, {"format": FORMAT, "state": json.dumps(shape)})
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load(path: Path) -> Any:
    """Reads a state written by ``save``; raises `Misconfigured` if the file is not one."""
    try:
        with safe_open(path, framework="pt") as held:
            metadata = held.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise Misconfigured(f"{path} is not a trainer state: move it away to start from the chain")
            tensors = {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise Misconfigured(f"cannot load {path} ({error}): move it away to start from the chain") from error
    return _rebuild(json.loads(metadata["state"]), tensors)


def _describe(value: Any, path: str, tensors: dict[str, torch.Tensor]) -> Any:
    """Returns ``value`` as JSON with references to tensors, which are added to ``tensors``."""
    if isinstance(value, torch.Tensor):
        name = f"{len(tensors)}{path}"
        tensors[name] = value.detach().contiguous()
        return {_TENSOR: name}
    if isinstance(value, dict):
        return {_PAIRS: [[key, _describe(held, f"{path}/{key}", tensors)] for key, held in value.items()]}
    if isinstance(value, list | tuple):
        return [_describe(held, f"{path}/{index}", tensors) for index, held in enumerate(value)]
    return value


def _separate(tensors: dict[str, torch.Tensor]) -> None:
    """Copies tensors that share memory with an earlier one, which the format does not hold; the others as they are."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != tensor.nbytes:
            tensors[name] = tensor.clone()
        seen.add(storage.data_ptr())


def _rebuild(shape: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(shape, list):
        return [_rebuild(held, tensors) for held in shape]
    if isinstance(shape, dict) and _TENSOR in shape:
        return tensors[shape[_TENSOR]]
    if isinstance(shape, dict):
        return {key: _rebuild(held, tensors) for key, held in shape[_PAIRS]}
    return shape
