"""The trainer's state on disk: whole or not there, the same when it comes back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from protocol.errors import Misconfigured
from trainer import checkpoint

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool]


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    values = torch.arange(1, 1 + int(torch.Size(shape).numel())).reshape(shape)
    return values.to(draw(st.sampled_from(DTYPES)))


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | tensors()
KEYS = st.integers(0, 3) | st.sampled_from(["1", "a", "a/b", "b", "", "tensor", "pairs"])
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@settings(max_examples=60, deadline=None)
@given(tree=TREES)
def test_any_tree_comes_back_as_it_went(tmp_path_factory: pytest.TempPathFactory, tree: Any) -> None:
    path = tmp_path_factory.mktemp("state") / "state.safetensors"
    checkpoint.save(path, tree)
    assert same(tree, checkpoint.load(path))


def test_paths_that_read_alike_do_not_mix_tensors_up(tmp_path: Path) -> None:
    tree = {1: torch.tensor(1), "1": torch.tensor(2), "a/b": torch.tensor(3), "a": {"b": torch.tensor(4)}}
    checkpoint.save(tmp_path / "s", tree)
    assert same(tree, checkpoint.load(tmp_path / "s"))


def test_views_of_one_tensor_are_kept_apart(tmp_path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    checkpoint.save(tmp_path / "s", {"rows": whole[1:], "columns": whole.T, "again": whole})
    held = checkpoint.load(tmp_path / "s")
    assert torch.equal(held["rows"], whole[1:])
    assert torch.equal(held["columns"], whole.T)
    assert torch.equal(held["again"], whole)


def test_a_write_that_was_cut_short_leaves_the_state_before(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    checkpoint.save(path, {"version": 4})
    (tmp_path / "state.safetensors.unfinished").write_bytes(b"\x10\x00")
    assert checkpoint.load(path) == {"version": 4}
    checkpoint.save(path, {"version": 5})
    assert checkpoint.load(path) == {"version": 5}
    assert os.listdir(tmp_path) == ["state.safetensors"]


def test_a_file_that_is_no_state_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    with pytest.raises(Misconfigured, match="cannot load"):
        checkpoint.load(path)
    checkpoint.save(path, {"weights": torch.ones(100)})
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(Misconfigured, match="move it away"):
        checkpoint.load(path)
    save_file({"w": torch.ones(2)}, path)
    with pytest.raises(Misconfigured, match="not a trainer state"):
        checkpoint.load(path)
