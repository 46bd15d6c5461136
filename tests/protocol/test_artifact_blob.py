"""A root binds every byte of its blob, and no bytes crash who checks them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from protocol.errors import Rejected
from protocol.wire.artifact_blob import HEAD_BYTES, ArtifactHead, head_of, parse_blob, parse_head

VECTORS = Path(__file__).parents[1] / "vectors" / "artifact.json"
hashes = st.binary(min_size=32, max_size=32)
heads = st.builds(ArtifactHead, hashes, hashes, st.integers(0, 2**64 - 1))


@given(hashes, st.binary(max_size=200))
def test_what_was_signed_is_read_back(rollouts: bytes, file: bytes) -> None:
    head = head_of(rollouts, file)
    assert parse_blob(head.packed + file, head.root) == (head, file)
    assert (head.rollouts_root, head.size) == (rollouts, len(file))


@given(heads, heads)
def test_two_heads_have_one_root_only_if_they_are_the_same(one: ArtifactHead, other: ArtifactHead) -> None:
    assert len(one.packed) == HEAD_BYTES
    assert parse_head(one.packed + b"anything", one.root) == one
    assert (one.root == other.root) == (one == other)


@given(hashes, st.binary(max_size=100), st.integers(0, 10**6), st.integers(1, 255), st.binary(max_size=9))
def test_a_blob_that_was_changed_cut_or_lengthened_is_another(
    rollouts: bytes, file: bytes, place: int, mask: int, more: bytes
) -> None:
    head = head_of(rollouts, file)
    blob = head.packed + file
    changed = bytearray(blob)
    changed[place % len(blob)] ^= mask
    for junk in (bytes(changed), blob[: place % len(blob)], blob + more + b"x", file):
        with pytest.raises(Rejected, match="not those of the artifact"):
            parse_blob(junk, head.root)


@given(st.binary(max_size=200), hashes)
def test_any_bytes_are_refused_under_a_root_that_is_not_theirs(data: bytes, root: bytes) -> None:
    with pytest.raises(Rejected):
        parse_blob(data, root)


@given(hashes, st.binary(max_size=50), st.integers(0, 2**64 - 1))
def test_a_head_that_lies_about_its_size_fits_no_file(rollouts: bytes, file: bytes, size: int) -> None:
    assume(size != len(file))
    lying = replace(head_of(rollouts, file), size=size)
    with pytest.raises(Rejected, match="size or hash"):
        parse_blob(lying.packed + file, lying.root)


def test_golden_vectors_hold() -> None:
    for vector in json.loads(VECTORS.read_text())["vectors"]:
        head = head_of(bytes.fromhex(vector["rollouts_root"]), bytes.fromhex(vector["file"]))
        assert head.root.hex() == vector["artifact_root"]
