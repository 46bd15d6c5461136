"""Artifacts: what goes in comes out, and whatever else comes in is refused."""

from __future__ import annotations

import json
import struct
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Rejected
from protocol.wire import parquet
from protocol.wire.reasons import Reason
from protocol.wire.rollout import (
    SCHEMA,
    Artifact,
    Limits,
    Rollout,
    canonical_bytes,
    decode,
    encode,
    merkle_root,
    rollouts_root,
)

VECTORS = Path(__file__).parents[1] / "vectors" / "artifact.json"
ROUNDS = "0x" + "22" * 20
METADATA = {
    "assize.artifact": "1",
    "assize.round": "5",
    "assize.job": "3",
    "assize.node": "7",
    "assize.manifest_root": "01" * 32,
}

tokens = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40)


@st.composite
def rollouts(draw):
    outputs = draw(tokens)
    logprob = st.floats(max_value=0, width=32, allow_nan=False, allow_infinity=False)
    return Rollout(
        prompt_tokens=draw(tokens),
        output_tokens=outputs,
        logprobs=draw(st.lists(logprob, min_size=len(outputs), max_size=len(outputs))),
        proofs=draw(st.lists(st.binary(max_size=258), max_size=3)),
        finish_reason=draw(st.sampled_from(["stop", "length"])),
    )


artifacts = st.builds(
    Artifact,
    round=st.integers(0, 2**256 - 1),
    job=st.integers(0, 255),
    node=st.integers(0, 2**32 - 1),
    manifest_root=st.binary(min_size=32, max_size=32),
    rollouts=st.lists(rollouts(), min_size=1, max_size=5).map(tuple),
)


def an_artifact(count: int = 2, length: int = 3, proofs: tuple[bytes, ...] = (b"\x01" * 258,)) -> Artifact:
    rng = np.random.default_rng(7)
    made = (
        Rollout(rng.integers(0, 50, 4), rng.integers(0, 50, length), -rng.random(length), proofs, "stop")
        for _ in range(count)
    )
    return Artifact(5, 3, 7, b"\x01" * 32, tuple(made))


def a_table(**columns) -> pa.Table:
    values = {
        "prompt_tokens": [[1, 2]],
        "output_tokens": [[3]],
        "logprobs": [[-0.5]],
        "proofs": [[b"x"]],
        "finish_reason": ["stop"],
    }
    return pa.table(values | columns, schema=SCHEMA)


def refused(data: bytes, limits: Limits | None = None) -> str:
    with pytest.raises(Rejected) as caught:
        decode(data, limits or Limits())
    assert caught.value.reason == Reason.SHAPE
    return str(caught.value)


@given(artifacts)
@settings(max_examples=60, deadline=None)
def test_what_is_encoded_is_decoded(artifact):
    decoded = decode(encode(artifact))
    assert decoded == artifact
    assert rollouts_root(1, ROUNDS, decoded) == rollouts_root(1, ROUNDS, artifact)


def test_the_bits_of_logprobs_survive():
    bits = np.array([0x80000000, 0x80000001, 0xFF7FFFFF, 0xBF800001], dtype=np.uint32)
    rollout = Rollout([1], [1, 2, 3, 4], bits.view(np.float32), (), "length")
    decoded = decode(encode(Artifact(0, 0, 0, bytes(32), (rollout,))))
    assert decoded.rollouts[0].logprobs.view(np.uint32).tolist() == bits.tolist()


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_refused_with_a_reason(data):
    refused(data)
    refused(b"PAR1" + data + struct.pack("<I", len(data)) + b"PAR1")


@given(st.integers(0, 10**9), st.integers(1, 255), st.integers(0, 10**9))
@settings(max_examples=150, deadline=None)
def test_a_flipped_or_cut_file_is_refused_or_has_another_root_or_says_the_same(position, mask, cut):
    artifact = an_artifact()
    data = bytearray(encode(artifact))
    data[position % len(data)] ^= mask
    for candidate in (bytes(data), bytes(data)[: cut % len(data)]):
        try:
            decoded = decode(candidate)
        except Rejected:
            continue
        same = rollouts_root(1, ROUNDS, decoded) == rollouts_root(1, ROUNDS, artifact)
        assert same == (replace(decoded, node=7) == artifact)


def test_no_footer_ends_the_process():
    """The library aborts on some values, codec 13 (26 in zigzag) among them, so it must never see a foreign footer."""
    data = encode(an_artifact(count=1))
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    for position in range(start, len(data) - 8):
        for value in (26, data[position] ^ 0x80):
            forged = data[:position] + bytes([value]) + data[position + 1 :]
            try:
                decode(forged)
            except Rejected:
                continue


def test_a_file_over_the_limit_is_refused_unread():
    assert "more than the 1000" in refused(bytes(1001), Limits(file_bytes=1000))


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (a_table(prompt_tokens=[[-1]]), "negative token"),
        (a_table(prompt_tokens=[[]]), "prompt_tokens"),
        (a_table(output_tokens=[[]], logprobs=[[]]), "output_tokens"),
        (a_table(output_tokens=[[1, 2]]), "one logprob for each"),
        (a_table(logprobs=[[0.5]]), "not finite or above 0"),
        (a_table(logprobs=[[float("nan")]]), "not finite"),
        (a_table(logprobs=[[float("-inf")]]), "not finite"),
        (a_table(finish_reason=["bored"]), "finish reason"),
        (a_table(proofs=[[b"x" * 259]]), "proofs"),
        (a_table(output_tokens=[[1] * 70000], logprobs=[[-1.0] * 70000]), "output_tokens"),
        (a_table().slice(0, 0), "rows"),
        (a_table().drop_columns(["proofs"]), "schema"),
        (a_table().rename_columns(["a", "b", "c", "d", "e"]), "schema"),
        (pa.table({"pickle": [b"x"]}), "schema"),
    ],
)
def test_a_file_outside_the_bounds_is_refused(table, sentence):
    assert sentence in refused(parquet.write(table, METADATA))


@pytest.mark.parametrize(
    "change",
    [
        {"assize.artifact": "2"},
        {"assize.round": "-1"},
        {"assize.round": str(2**256)},
        {"assize.round": "05"},
        {"assize.round": "٥"},
        {"assize.job": "256"},
        {"assize.node": str(2**32)},
        {"assize.manifest_root": "AB" * 32},
        {"assize.extra": "1"},
    ],
)
def test_a_file_with_other_metadata_is_refused(change):
    refused(parquet.write(a_table(), METADATA | change))


def written(table: pa.Table = None, metadata=METADATA, **options) -> bytes:
    sink = pa.BufferOutputStream()
    pinned = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "store_schema": False}
    with pq.ParquetWriter(sink, SCHEMA, **(pinned | options)) as writer:
        writer.write_table(table or a_table())
        writer.add_key_value_metadata(metadata)
    return bytes(sink.getvalue())


def test_the_layout_written_by_hand_is_the_pinned_one():
    assert decode(written()).job == 3


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "snappy"},
        {"compression": "none"},
        {"use_dictionary": True},
        {"write_statistics": True},
        {"store_schema": True},
        {"data_page_version": "2.0"},
        {"column_encoding": {"prompt_tokens.list.element": "DELTA_BINARY_PACKED"}},
        {"write_page_checksum": True},
    ],
)
def test_a_file_in_another_layout_is_refused(options):
    refused(written(**options))


def test_two_row_groups_are_refused():
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, SCHEMA, compression="zstd", use_dictionary=False, store_schema=False) as writer:
        writer.write_table(a_table())
        writer.write_table(a_table())
    assert "row groups" in refused(bytes(sink.getvalue()))


def test_a_bomb_is_refused_before_it_inflates():
    zeros = pa.array(np.zeros(4_000_000, dtype=np.int32))
    output_tokens = pa.ListArray.from_arrays(pa.array([0, 4_000_000], pa.int32()), zeros, type=SCHEMA.field(1).type)
    bomb = parquet.write(a_table(output_tokens=output_tokens), METADATA)
    assert len(bomb) < 1 << 20
    assert "inflates" in refused(bomb, Limits(uncompressed_bytes=1 << 20))


def test_a_page_that_claims_more_values_than_it_holds_is_refused():
    """The first page header's count of values (field 1 of its inner struct) is raised past what its bytes can hold."""
    data = encode(an_artifact(count=1, length=30, proofs=()))
    at = data.index(b"\x2c\x15", 4) + 2
    forged = data[:at] + b"\x7e" + data[at + 1 :]
    assert forged != data
    refused(forged)


def test_a_fault_shows_before_it_is_committed_to():
    for bad in ([0.5], [float("nan")], [-1.0, -1.0]):
        rollout = Rollout([1], [2], bad, (), "stop")
        with pytest.raises(Rejected):
            encode(Artifact(1, 1, 1, bytes(32), (rollout,)))
    with pytest.raises(Rejected):
        encode(Artifact(1, 1, 1, bytes(32), ()))


def test_the_root_is_bound_to_everything_but_the_node():
    artifact = an_artifact()
    root = rollouts_root(1, ROUNDS, artifact)
    others = [
        rollouts_root(2, ROUNDS, artifact),
        rollouts_root(1, "0x" + "33" * 20, artifact),
        *(
            rollouts_root(1, ROUNDS, replace(artifact, **change))
            for change in (
                {"round": 6},
                {"job": 4},
                {"manifest_root": bytes(32)},
                {"rollouts": artifact.rollouts[::-1]},
                {"rollouts": artifact.rollouts[:1]},
                {"rollouts": (*artifact.rollouts, artifact.rollouts[-1])},
                {"rollouts": (replace(artifact.rollouts[0], finish_reason="length"), artifact.rollouts[1])},
                {"rollouts": (replace(artifact.rollouts[0], proofs=()), artifact.rollouts[1])},
            )
        ),
    ]
    assert len({root, *others}) == len(others) + 1
    assert rollouts_root(1, ROUNDS, replace(artifact, node=8)) == root


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=2, max_size=20, unique=True), st.data())
def test_a_merkle_root_changes_with_order_and_length(leaves, data):
    i, j = data.draw(st.lists(st.integers(0, len(leaves) - 1), min_size=2, max_size=2, unique=True))
    swapped = list(leaves)
    swapped[i], swapped[j] = swapped[j], swapped[i]
    assert merkle_root(swapped) != merkle_root(leaves)
    assert merkle_root(leaves[:-1]) != merkle_root(leaves)
    assert merkle_root(leaves[:1]) == leaves[0]


def test_golden_vectors_hold():
    for vector in json.loads(VECTORS.read_text())["vectors"]:
        made = tuple(
            Rollout(
                rollout["prompt_tokens"],
                rollout["output_tokens"],
                np.array([int(bits, 16) for bits in rollout["logprob_bits"]], dtype=np.uint32).view(np.float32),
                tuple(bytes.fromhex(proof) for proof in rollout["proofs"]),
                rollout["finish_reason"],
            )
            for rollout in vector["rollouts"]
        )
        root = bytes.fromhex(vector["manifest_root"])
        artifact = Artifact(int(vector["round"]), vector["job"], vector["node"], root, made)
        assert [canonical_bytes(i, rollout).hex() for i, rollout in enumerate(made)] == vector["canonical"]
        assert rollouts_root(vector["chain_id"], vector["rounds"], artifact).hex() == vector["rollouts_root"]


def test_a_job_of_64_rollouts_takes_milliseconds():
    artifact = an_artifact(count=64, length=60, proofs=(b"\x05" * 258, b"\x06" * 258))
    took = []
    for _ in range(5):
        started = time.perf_counter()
        rollouts_root(1, ROUNDS, decode(encode(artifact)))
        took.append(time.perf_counter() - started)
    assert min(took) < 0.1, took  # about 0.004 s on an idle machine
