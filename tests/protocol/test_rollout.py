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
from protocol.wire import canonical_parquet
from protocol.wire.canonical_parquet import Column
from protocol.wire.reasons import Reason
from protocol.wire.rollout import (
    COLUMNS,
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
    "assize.artifact": "2",
    "assize.round": "5",
    "assize.job": "3",
    "assize.node": "7",
    "assize.manifest_root": "01" * 32,
    "assize.canary": "00" * 32,
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
        proofs=draw(st.lists(st.binary(max_size=290), max_size=3)),
        finish_reason=draw(st.sampled_from(["stop", "length"])),
    )


artifacts = st.builds(
    Artifact,
    round=st.integers(0, 2**256 - 1),
    job=st.integers(0, 255),
    node=st.integers(0, 2**32 - 1),
    manifest_root=st.binary(min_size=32, max_size=32),
    rollouts=st.lists(rollouts(), min_size=1, max_size=5).map(tuple),
    canary=st.binary(min_size=32, max_size=32),
)


def an_artifact(count: int = 2, length: int = 3, proofs: tuple[bytes, ...] = (b"\x01" * 258,)) -> Artifact:
    rng = np.random.default_rng(7)
    made = (
        Rollout(rng.integers(0, 50, 4), rng.integers(0, 50, length), -rng.random(length), proofs, "stop")
        for _ in range(count)
    )
    return Artifact(5, 3, 7, b"\x01" * 32, tuple(made))


def a_file(pairs: dict[str, str] = METADATA, **columns: list) -> bytes:
    """A file in the canonical layout, with these rows in place of those of a sound artifact."""
    rows = {
        "prompt_tokens": [[1, 2]],
        "output_tokens": [[3]],
        "logprobs": [[-0.5]],
        "proofs": [[b"x"]],
        "finish_reason": [[b"stop"]],
    }
    made = [
        Column(np.array([len(row) for row in held], np.int64), [value for row in held for value in row])
        for held in (rows | columns).values()
    ]
    return canonical_parquet.write(COLUMNS, made, pairs.items())


def refused(data: bytes, limits: Limits | None = None) -> str:
    with pytest.raises(Rejected) as caught:
        decode(data, limits or Limits())
    assert caught.value.reason == Reason.SHAPE
    return str(caught.value)


@given(artifacts)
@settings(max_examples=60, deadline=None)
def test_what_is_encoded_is_decoded(artifact):
    data = encode(artifact)
    decoded = decode(data)
    assert decoded == artifact
    assert encode(decoded) == data
    assert rollouts_root(1, ROUNDS, decoded) == rollouts_root(1, ROUNDS, artifact)


@given(artifacts)
@settings(max_examples=30, deadline=None)
def test_any_reader_of_parquet_sees_the_same_values(artifact):
    table = pq.read_table(pa.BufferReader(encode(artifact)))
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (
            rollout.prompt_tokens.tolist(),
            rollout.output_tokens.tolist(),
            rollout.logprobs.tolist(),
            list(rollout.proofs),
            rollout.finish_reason,
        )
        for rollout in artifact.rollouts
    ]
    assert table.schema.metadata[b"assize.node"] == str(artifact.node).encode()


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


def test_a_file_over_the_limit_is_refused_unread():
    assert "more than the 1000" in refused(bytes(1001), Limits(file_bytes=1000))


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"prompt_tokens": [[-1]]}, "negative token"),
        ({"prompt_tokens": [[]]}, "prompt_tokens"),
        ({"output_tokens": [[]], "logprobs": [[]]}, "output_tokens"),
        ({"output_tokens": [[1, 2]]}, "one logprob for each"),
        ({"logprobs": [[0.5]]}, "not finite or above 0"),
        ({"logprobs": [[float("nan")]]}, "not finite"),
        ({"logprobs": [[float("-inf")]]}, "not finite"),
        ({"finish_reason": [[b"bored"]]}, "finish reason"),
        ({"finish_reason": [[b"\xff"]]}, "finish reason"),
        ({"proofs": [[b"x" * 291]]}, "proofs"),
        ({"proofs": [[b"x"] * 4097]}, "proofs"),
        ({"output_tokens": [[1] * 70000], "logprobs": [[-1.0] * 70000]}, "output_tokens"),
        ({"prompt_tokens": [[1], [2]]}, "columns of different lengths"),
        ({kind.name: [] for kind in COLUMNS}, "rollouts"),
    ],
)
def test_a_file_outside_the_bounds_is_refused(columns, sentence):
    assert sentence in refused(a_file(**columns))


@pytest.mark.parametrize(
    "change",
    [
        {"assize.artifact": "1"},
        {"assize.round": "-1"},
        {"assize.round": str(2**256)},
        {"assize.round": "05"},
        {"assize.round": "\n5"},
        {"assize.job": "256"},
        {"assize.node": str(2**32)},
        {"assize.manifest_root": "AB" * 32},
        {"assize.canary": "0"},
        {"assize.extra": "1"},
    ],
)
def test_a_file_with_other_metadata_is_refused(change):
    refused(a_file(METADATA | change))


def test_the_file_written_by_hand_is_the_canonical_one():
    assert decode(a_file()).job == 3


def test_levels_that_claim_more_than_the_page_holds_are_refused_before_they_are_read():
    """The first page header's count of levels (field 1 of its inner struct) becomes 2^27."""
    data = a_file()
    at = data.index(b"\x2c\x15", 4) + 2
    assert "more values" in refused(data[:at] + b"\x80\x80\x80\x80\x01" + data[at + 1 :])


@pytest.mark.parametrize(
    ("rows", "each", "said"), [(1, 100_000, "100000 proofs, more than 4096"), (5_000, 1, "5000 rows")]
)
def test_values_are_counted_before_any_is_read(rows, each, said):
    """The length of the first of them says that the file ends within it, which only a reader of values sees."""
    data = a_file(proofs=[[b"first" if row == place == 0 else b"" for place in range(each)] for row in range(rows)])
    at = data.index(b"\x05\x00\x00\x00first")
    assert said in refused(data[:at] + b"\xff" * 4 + data[at + 4 :])
    few = a_file(proofs=[[b"first"]])
    at = few.index(b"\x05\x00\x00\x00first")
    assert "ends too early" in refused(few[:at] + b"\xff" * 4 + few[at + 4 :])


def test_a_fault_shows_before_it_is_committed_to():
    for bad in ([0.5], [float("nan")], [-1.0, -1.0]):
        rollout = Rollout([1], [2], bad, (), "stop")
        with pytest.raises(Rejected):
            encode(Artifact(1, 1, 1, bytes(32), (rollout,)))
    with pytest.raises(Rejected):
        encode(Artifact(1, 1, 1, bytes(32), ()))


def test_the_root_is_bound_to_everything():
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
                {"node": 8},
                {"canary": b"\x01" * 32},
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
        root, canary = bytes.fromhex(vector["manifest_root"]), bytes.fromhex(vector["canary"])
        artifact = Artifact(int(vector["round"]), vector["job"], vector["node"], root, made, canary)
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
