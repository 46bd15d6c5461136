"""Fuzz targets: each parser with its invariants, its seeds and its structure-aware mutations.

A target returns whether the bytes were taken. ``Rejected`` is the only exception that a parser may raise, and bytes
that it takes must encode back to themselves. PURE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.broadcast.deltas.frames import decode
from protocol.environments.registry import environment
from protocol.environments.task_set import TaskSet
from protocol.errors import Misconfigured, Rejected
from protocol.wire import delta_manifest, evidence, manifest, rollout
from protocol.wire.assignments import pack_assignments, pack_leaves, unpack_assignments, unpack_leaves
from protocol.wire.delta_manifest import FRAMES_FILE
from protocol.wire.reasons import Reason
from protocol.wire.rewards import parse_rewards
from protocol.wire.rules import decode_rules, encode_rules
from protocol.wire.toploc.codec import PROOF_BYTES, Proof, decode_fields
from protocol.wire.toploc.definition import distance
from protocol.wire.votes import Vote, reasons_of
from tests.fuzz import seeds
from tests.fuzz.changes import Change, by_bytes
from tests.fuzz.changing_json import change_json
from tests.fuzz.changing_parquet import change_parquet

LIMITS = rollout.Limits(file_bytes=64 << 10)
"""Bounds of the size that the rules of a small run give."""

ROWS_TH = (np.random.default_rng(3).normal(size=(32, 64)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
"""A chunk of a verifier's hidden states as bf16 bits, against which proofs are measured."""


@dataclass(frozen=True, slots=True)
class Target:
    """One parser. ``share`` is its part of all inputs, ``longest`` the most bytes of one."""

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    change: Change
    share: float
    longest: int = 16 << 10

    def take(self, data: bytes) -> bool:
        """Returns whether ``data`` is taken rather than refused; whatever else happens is a defect."""
        try:
            self.check(data)
        except Rejected as refusal:
            if not str(refusal):
                raise AssertionError("a refusal without a reason") from refusal
            return False
        return True


def artifact(data: bytes) -> None:
    """A worker's file: refused as a wrong shape, or the one file of the artifact read."""
    try:
        read = rollout.decode(data, LIMITS)
    except Rejected as refusal:
        if refusal.reason != Reason.SHAPE:
            raise AssertionError(f"refused with reason {refusal.reason}") from refusal
        raise
    rollout.rollouts_root(seeds.CHAIN_ID, seeds.ROUNDS, read)
    assert rollout.encode(read) == data


def proof(data: bytes) -> None:
    """Proofs one by one and all at once agree; those that are well formed can be measured."""
    pieces = [data[start : start + PROOF_BYTES] for start in range(0, len(data), PROOF_BYTES)]
    try:
        fields_CF = decode_fields(pieces)
    except Rejected:
        assert any(_refused(piece) for piece in pieces), "refused together, taken one by one"
        raise
    assert [Proof(modulus, tuple(rest)).encode() for modulus, *rest in fields_CF.tolist()] == pieces
    for piece in pieces[:1]:
        measured = distance(ROWS_TH, Proof.decode(piece), ROWS_TH[::-1])
        assert 0 <= measured.rel <= 1
        assert 0 <= measured.null <= 1


def _refused(piece: bytes) -> bool:
    try:
        Proof.decode(piece)
    except Rejected:
        return True
    return False


def plain_manifest(data: bytes) -> None:
    """A manifest: its chunks cover its files."""
    read = manifest.parse(data)
    assert read.canonical == data
    if read.size < 1 << 20:
        assert sum(chunk.size for chunk in read.chunks()) == read.size


def signed_manifest(data: bytes) -> None:
    """A manifest under a signature, as it travels."""
    read = manifest.parse_signed(data)
    assert read.canonical == data
    read.verify(seeds.CHAIN_ID, seeds.ROUNDS, seeds.KEY.address)


def signed_delta(data: bytes) -> None:
    """A delta's manifest under a signature: its frames lie one after another."""
    read = delta_manifest.parse_signed(data)
    assert read.canonical == data
    read.maker(seeds.CHAIN_ID, seeds.ROUNDS)
    assert sum(chunk.size for chunk in read.delta.chunks()) == read.delta.size == read.delta.sizes[FRAMES_FILE]


def frame(data: bytes) -> None:
    """A frame of a delta: fills its range and nothing beyond it, the same way each time."""
    made = np.zeros((2, len(seeds.FRAME_BASE) + 8), np.uint8)
    for row in made:
        decode(data, row[:-8], [len(seeds.FRAME_BASE)], seeds.read_frame_base)
    assert not made[:, -8:].any()
    assert np.array_equal(*made)


def bundle(data: bytes) -> None:
    """A juror's evidence under its signature."""
    read = evidence.parse_signed(data)
    assert read.canonical == data
    read.verify(seeds.KEY.address)


def rules(data: bytes) -> None:
    """A run's rules, and the environment they name: an operator who joins such a run is told so in one sentence."""
    read = decode_rules(data)
    assert encode_rules(read) == data
    try:
        environment(read.environment.name, read.environment.params).problem(bytes(32))
    except Misconfigured as error:
        raise Rejected(str(error)) from error


def task_file(data: bytes) -> None:
    """A run's tasks: whatever is taken can be drawn from."""
    tasks = TaskSet.of_file(data)
    file = tasks.opened.file
    for row in range(len(file)):
        assert len(tasks.opened.problem(row, 1).prompt) <= file.longest_prompt
    assert not tasks.problem(bytes(32)).held_out


def version_rewards(data: bytes) -> None:
    """The rewards that a version publishes."""
    assert parse_rewards(data).canonical == data


def packed(data: bytes) -> None:
    """The contracts' packed words: assignments, leaves, reasons of a vote."""
    kind, rest = data[:1], data[1:]
    if kind == b"\x00":
        assert pack_assignments(unpack_assignments(rest)) == rest
    elif kind == b"\x01":
        assert pack_leaves(unpack_leaves(rest)) == rest
    else:
        submitted = int.from_bytes(rest[:1], "big")
        reasons_of(Vote(submitted & 1, 0, rest[1:], bytes(32)), submitted)


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("artifact", artifact, seeds.artifacts, change_parquet, 0.08, 8 << 10),
        Target("tasks", task_file, seeds.task_files, change_parquet, 0.03, 8 << 10),
        Target("rewards", version_rewards, seeds.rewards, change_json, 0.05, 4 << 10),
        Target("evidence", bundle, seeds.bundles, change_json, 0.2),
        Target("signed manifest", signed_manifest, seeds.signed_manifests, change_json, 0.17),
        Target("manifest", plain_manifest, seeds.manifests, change_json, 0.17),
        Target("signed delta", signed_delta, seeds.signed_deltas, change_json, 0.2),
        Target("frame", frame, seeds.frames, by_bytes, 0.46, 4 << 10),
        Target("rules", rules, seeds.rules, change_json, 0.15, 4 << 10),
        Target("proof", proof, lambda: [b"".join(seeds.proofs(n)) for n in (1, 2, 5)], by_bytes, 0.05, 2 << 10),
        Target("packed", packed, seeds.packed, by_bytes, 0.18, 2 << 10),
    )
}


def defect_of(target: Target, data: bytes) -> Any:
    """Returns the exception that ``data`` causes, None where there is none."""
    try:
        target.take(data)
    except Exception as defect:
        return defect
    return None
