"""Checks a model directory before anything heavy is loaded; free of torch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from blake3 import blake3

from protocol.errors import Misconfigured, Rejected, accessing
from protocol.wire.pins import check_names
from protocol.wire.units import ModelShape, parse_shape

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")


def check_model_directory(directory: Path) -> None:
    """Checks what a model directory holds, by the names of its files.

    Raises:
        Misconfigured: it lacks a configuration, a tokenizer or weights.
        UnfitCheckpoint: it holds a file that cannot be part of a checkpoint, such as code or pickled weights.
    """
    if not directory.is_dir():
        raise Misconfigured(f"invalid model directory {directory}: it does not exist")
    if not (directory / "config.json").is_file():
        raise Misconfigured(f"invalid model directory {directory}: it has no config.json")
    if not any((directory / name).is_file() for name in TOKENIZER_FILES):
        raise Misconfigured(f"{directory} has no tokenizer: put its tokenizer.json beside the weights")
    if not any(directory.glob("*.safetensors")):
        raise Misconfigured(f"{directory} has no weights: put its *.safetensors beside config.json")
    check_names(path.name for path in directory.iterdir() if path.is_file() and not path.name.startswith("."))


def shape_of(directory: Path) -> ModelShape:
    """Reads the shape of a model directory.

    Raises:
        Misconfigured: it has no readable config.json, or work units are not defined for its architecture.
    """
    path = directory / "config.json"
    with accessing(f"read {path}: expected a Hugging Face directory"):
        text = path.read_bytes()
    try:
        return parse_shape(json.loads(text))
    except (ValueError, Rejected) as error:
        raise Misconfigured(f"cannot use {path}: {error}") from error


def tokenizer_hash(directory: Path) -> bytes:
    """Returns BLAKE3-256 over the files of the directory's tokenizer, one after another: 32 bytes.

    Raises:
        Misconfigured: there is no tokenizer, or it cannot be read.
    """
    digest, found = blake3(), [directory / name for name in TOKENIZER_FILES if (directory / name).is_file()]
    if not found:
        raise Misconfigured(f"{directory} has no tokenizer: expected one of {', '.join(TOKENIZER_FILES)}")
    for path in found:
        with accessing(f"read {path}"):
            digest.update(path.read_bytes())
    return digest.digest()


def weights_hash(directory: Path) -> bytes:
    """Returns SHA-256 over the directory's weights, file after file by name: 32 bytes."""
    digest = hashlib.sha256()
    for path in sorted(directory.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return digest.digest()
