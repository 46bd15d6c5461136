"""Model directories for tests: the smallest that can be pinned, and what a trainer may not change in real ones.

``CHANGES`` are what a published version may not do. Each takes a copy of a fit directory and leaves it unfit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from deploy.adversaries.ambiguous_checkpoint import exchange_digits

CONFIG, TENSORS = "config.json", "model.safetensors"


def file_of_tensors(tensors: dict[str, Any], values: bytes) -> bytes:
    """A ``*.safetensors`` by its header and the bytes after it."""
    header = json.dumps(tensors).encode()
    return len(header).to_bytes(8, "little") + header + values


def smallest(directory: Path, values: bytes) -> Path:
    """Writes the smallest directory that can be pinned, whose only tensor has these values, 4 bytes each."""
    directory.mkdir(exist_ok=True)
    (directory / CONFIG).write_text("{}")
    tensor = {"dtype": "F32", "shape": [len(values) // 4], "data_offsets": [0, len(values)]}
    (directory / TENSORS).write_bytes(file_of_tensors({"weight": tensor}, values))
    return directory


def _second_file(model: Path) -> None:
    """The same tensors once more, with other values, in a file that sorts behind."""
    tensors = {name: tensor + 1 for name, tensor in load_file(model / TENSORS).items()}
    save_file(tensors, model / "model2.safetensors", {"format": "pt"})


def _rope_theta(model: Path) -> None:
    path = model / CONFIG
    text = path.read_text()
    assert '"rope_theta": 1' in text
    path.write_text(text.replace('"rope_theta": 1', '"rope_theta": 2'))


def _pickle(model: Path) -> None:
    (model / "pytorch_model.bin").write_bytes(b"\x80\x04.")


def _code(model: Path) -> None:
    (model / "modeling_qwen3.py").write_text("raise SystemExit\n")


def _missing_tensor(model: Path) -> None:
    tensors = load_file(model / TENSORS)
    tensors.pop("model.norm.weight")
    save_file(tensors, model / TENSORS, {"format": "pt"})


def _missing_file(model: Path) -> None:
    (model / "generation_config.json").unlink()


def _shape(model: Path) -> None:
    """A tensor of as many values in another shape."""
    tensors = load_file(model / TENSORS)
    name = "model.layers.0.mlp.down_proj.weight"
    tensors[name] = tensors[name].reshape(-1, 1).contiguous()
    save_file(tensors, model / TENSORS, {"format": "pt"})


def _format(model: Path) -> None:
    tensors = load_file(model / TENSORS)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].bfloat16()
    save_file(tensors, model / TENSORS, {"format": "pt"})


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a second file of tensors": (_second_file, "model2.safetensors is not among the files that the run's rules pin"),
    "another tokenizer": (exchange_digits, "tokenizer.json"),
    "another rope_theta": (_rope_theta, "config.json is another file than the run's rules pin"),
    "pickled weights": (_pickle, "pytorch_model.bin cannot be part of a checkpoint"),
    "code": (_code, "modeling_qwen3.py cannot be part of a checkpoint"),
    "a missing tensor": (_missing_tensor, "model.safetensors has"),
    "a missing file": (_missing_file, "generation_config.json is missing, which the run's rules pin"),
    "a tensor of another shape": (_shape, "model.safetensors"),
    "a tensor in another format": (_format, "model.safetensors has"),
}
"""By what changed: the change, and words of the refusal."""
