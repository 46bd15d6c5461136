"""A worker's result for one job: its rollouts, their file, and the root of the rollouts.

File: the Parquet layout of ``protocol.wire.parquet``, one row per rollout, and in the footer

    assize.artifact = "1" · assize.round, assize.job, assize.node (decimal) · assize.manifest_root (64 hex digits)

Rollouts root: independent of how the file was compressed; what is signed binds the file as well
(``protocol.wire.artifact_blob``). With P prompt tokens, T output tokens and K proofs (integers
big-endian, logprobs as their IEEE 754 bits),

    rollout = u32 index ‖ u32 P ‖ u32 T ‖ u32 K ‖ P × u32 ‖ T × u32 ‖ T × f32 ‖ K × (u32 length ‖ bytes) ‖ u8 finish
    leaf    = keccak(0x00 ‖ rollout)        node = keccak(0x01 ‖ left ‖ right)        an odd node rises unchanged
    root    = keccak(abi.encode("assize/artifact/1", chain id, Rounds, round, job, manifest root, uint32 count, top))

finish is 0 for "stop" and 1 for "length". The root covers chain, contract, round, job and policy, so an artifact cannot
be claimed for another job. PURE.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from eth_abi import encode as abi_encode
from eth_hash.auto import keccak  # without eth_utils' conversions, which take a third of the time

from protocol.wire import parquet
from protocol.wire.parquet import malformed

FinishReason = Literal["stop", "length"]
DOMAIN = "assize/artifact/1"
FORMAT = "1"
FINISH_CODES: dict[str, int] = {"stop": 0, "length": 1}


def _list(element: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", element, nullable=False))


SCHEMA = pa.schema(
    [
        pa.field("prompt_tokens", _list(pa.int32()), nullable=False),
        pa.field("output_tokens", _list(pa.int32()), nullable=False),
        pa.field("logprobs", _list(pa.float32()), nullable=False),
        pa.field("proofs", _list(pa.binary()), nullable=False),
        pa.field("finish_reason", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of an artifact; those on the file are checked before any of it is parsed."""

    file_bytes: int = 64 << 20
    uncompressed_bytes: int = 256 << 20
    rollouts: int = 4096
    prompt_tokens: int = 65536
    output_tokens: int = 65536
    proofs: int = 4096
    proof_bytes: int = 290


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """One completion of one prompt.

    ``prompt_tokens`` (P,) and ``output_tokens`` (T,) are int32, including the end token if there is one; ``logprobs``
    (T,) float32 are natural logs of each output token as the worker sampled it; ``proofs`` are in order of chunks.
    """

    prompt_tokens: np.ndarray[Any, np.dtype[np.int32]]
    output_tokens: np.ndarray[Any, np.dtype[np.int32]]
    logprobs: np.ndarray[Any, np.dtype[np.float32]]
    proofs: tuple[bytes, ...]
    finish_reason: FinishReason

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt_tokens", np.asarray(self.prompt_tokens, dtype=np.int32))
        object.__setattr__(self, "output_tokens", np.asarray(self.output_tokens, dtype=np.int32))
        object.__setattr__(self, "logprobs", np.asarray(self.logprobs, dtype=np.float32))
        object.__setattr__(self, "proofs", tuple(self.proofs))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rollout) and canonical_bytes(0, self) == canonical_bytes(0, other)

    def __hash__(self) -> int:
        return hash(canonical_bytes(0, self))


@dataclass(frozen=True, slots=True)
class Artifact:
    """The rollouts of ``job`` of ``round`` by ``node``, from the policy with ``manifest_root`` (32 bytes)."""

    round: int
    job: int
    node: int
    manifest_root: bytes
    rollouts: tuple[Rollout, ...]


def encode(artifact: Artifact, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Returns the artifact's file; raises `Rejected` as `decode` would, so that faults show before commitment."""
    rollouts = artifact.rollouts
    arrays = [
        _column([rollout.prompt_tokens for rollout in rollouts], 0),
        _column([rollout.output_tokens for rollout in rollouts], 1),
        _column([rollout.logprobs for rollout in rollouts], 2),
        pa.array([list(rollout.proofs) for rollout in rollouts], SCHEMA.field(3).type),
        pa.array([rollout.finish_reason for rollout in rollouts], pa.string()),
    ]
    numbers = {f"assize.{name}": str(getattr(artifact, name)) for name in ("round", "job", "node")}
    metadata = {"assize.artifact": FORMAT, **numbers, "assize.manifest_root": artifact.manifest_root.hex()}
    table = pa.Table.from_arrays(arrays, schema=SCHEMA)
    _header(metadata)
    _checked(table, limits)
    data = parquet.write(table, metadata)
    if len(data) > limits.file_bytes:
        raise malformed(f"has {len(data)} bytes, more than the {limits.file_bytes} allowed")
    return data


def decode(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Artifact:
    """Returns the artifact in ``data``.

    Arrays are read-only views. Logprobs are finite and at most 0, tokens not negative, completions not empty.

    Raises:
        Rejected: ``data`` is anything else, with reason SHAPE.
        Unavailable: This machine has too little memory.
    """
    table, metadata = parquet.read(data, SCHEMA, limits.rollouts, limits.file_bytes, limits.uncompressed_bytes)
    round_, job, node, manifest_root = _header(metadata)
    return Artifact(round_, job, node, manifest_root, _rollouts(table, limits))


def rollouts_root(chain_id: int, rounds_address: str, artifact: Artifact) -> bytes:
    """Returns the 32-byte root of the rollouts, bound to chain, contract, round, job and policy as drawn above."""
    leaves = [keccak(b"\x00" + canonical_bytes(index, rollout)) for index, rollout in enumerate(artifact.rollouts)]
    types = ["string", "uint256", "address", "uint256", "uint8", "bytes32", "uint32", "bytes32"]
    bound = (DOMAIN, chain_id, rounds_address, artifact.round, artifact.job, artifact.manifest_root)
    return keccak(abi_encode(types, (*bound, len(leaves), merkle_root(leaves))))


def canonical_bytes(index: int, rollout: Rollout) -> bytes:
    """Returns the bytes of one rollout for its leaf's hash, laid out as drawn above."""
    counts = (index, len(rollout.prompt_tokens), len(rollout.output_tokens), len(rollout.proofs))
    return b"".join(
        (
            np.array(counts, dtype=">u4").tobytes(),
            rollout.prompt_tokens.astype(">u4").tobytes(),
            rollout.output_tokens.astype(">u4").tobytes(),
            rollout.logprobs.astype(">f4").tobytes(),
            *(len(proof).to_bytes(4, "big") + proof for proof in rollout.proofs),
            bytes([FINISH_CODES[rollout.finish_reason]]),
        )
    )


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """Returns the root over 32-byte ``leaves`` (at least one); an odd node rises to the next level unchanged."""
    level = list(leaves)
    while len(level) > 1:
        paired = [keccak(b"\x01" + level[i] + level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = paired + level[len(paired) * 2 :]
    return level[0]


def _column(parts: list[np.ndarray[Any, Any]], field: int) -> pa.Array:
    offsets = np.zeros(len(parts) + 1, dtype=np.int32)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    type_ = SCHEMA.field(field).type
    values = pa.array(np.concatenate(parts) if parts else [], type_.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=type_)


def _header(metadata: dict[str, str]) -> tuple[int, int, int, bytes]:
    """Returns round, job, node and manifest root from the footer's pairs."""
    names = {"assize.artifact", "assize.round", "assize.job", "assize.node", "assize.manifest_root"}
    if set(metadata) != names or metadata["assize.artifact"] != FORMAT:
        raise malformed(f"is not marked as an artifact of format {FORMAT}")
    if not re.fullmatch(r"[0-9a-f]{64}", metadata["assize.manifest_root"]):
        raise malformed("names a manifest root that is not 64 hex digits")
    round_, job, node = (_number(metadata, name, bits) for name, bits in (("round", 256), ("job", 8), ("node", 32)))
    return round_, job, node, bytes.fromhex(metadata["assize.manifest_root"])


def _number(metadata: dict[str, str], name: str, bits: int) -> int:
    text = metadata[f"assize.{name}"]
    if not re.fullmatch(r"0|[1-9][0-9]{0,77}", text) or int(text) >> bits:
        raise malformed(f"names a {name} that is not a number of {bits} bits")
    return int(text)


def _rollouts(table: pa.Table, limits: Limits) -> tuple[Rollout, ...]:
    """Checks bounds column by column, then cuts the columns into rollouts."""
    columns, proofs, finishes = _checked(table, limits)
    pieces = (_pieces(ends, values) for ends, values in columns)
    return tuple(Rollout(*row) for row in zip(*pieces, proofs.to_pylist(), finishes, strict=True))


def _checked(
    table: pa.Table, limits: Limits
) -> tuple[list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]], pa.Array, list[str]]:
    """Checks bounds column by column; returns offsets and values of the numbers, the proofs, the finish reasons."""
    if not 0 < table.num_rows <= limits.rollouts:
        raise malformed(f"has {table.num_rows} rollouts, not 1 to {limits.rollouts}")
    prompt_ends, prompts = _lists(table, "prompt_tokens", 1, limits.prompt_tokens)
    output_ends, outputs = _lists(table, "output_tokens", 1, limits.output_tokens)
    logprob_ends, logprobs = _lists(table, "logprobs", 1, limits.output_tokens)
    if not np.array_equal(output_ends, logprob_ends):
        raise malformed("does not have one logprob for each output token")
    if prompts.min() < 0 or outputs.min() < 0:
        raise malformed("has a negative token")
    if not (np.isfinite(logprobs).all() and logprobs.max() <= 0):
        raise malformed("has a logprob that is not finite or above 0")
    finishes = table.column("finish_reason").to_pylist()
    if not set(finishes) <= set(FINISH_CODES):
        raise malformed("has a finish reason other than stop or length")
    columns = [(prompt_ends, prompts), (output_ends, outputs), (output_ends, logprobs)]
    return columns, _proofs(table, limits), finishes


def _lists(table: pa.Table, name: str, least: int, most: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Returns offsets (rows + 1,) and values of a list column whose lists have ``least`` to ``most`` elements."""
    column, offsets, counts = _list_column(table, name)
    if counts.min() < least or counts.max() > most:
        raise malformed(f"has a rollout with {counts.min()} to {counts.max()} {name}, not {least} to {most}")
    return offsets, column.values.to_numpy(zero_copy_only=True)


def _list_column(table: pa.Table, name: str) -> tuple[pa.ListArray, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Returns a list column without nulls, its offsets (rows + 1,), and the length of each list (rows,)."""
    column = table.column(name).combine_chunks()
    if column.null_count or column.values.null_count:
        raise malformed(f"has nulls in {name}")
    offsets = column.offsets.to_numpy()
    return column, offsets, np.diff(offsets)


def _pieces(offsets: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    ends = offsets.tolist()
    return [values[start:end] for start, end in itertools.pairwise(ends)]


def _proofs(table: pa.Table, limits: Limits) -> pa.Array:
    column, _, counts = _list_column(table, "proofs")
    longest = pc.max(pc.binary_length(column.values)).as_py() or 0
    if counts.max() > limits.proofs or longest > limits.proof_bytes:
        raise malformed(f"has more than {limits.proofs} proofs for a rollout, or one over {limits.proof_bytes} bytes")
    return column
