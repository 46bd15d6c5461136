"""A worker's result for one job: its rollouts, their file, and the root of the rollouts.

File: the Parquet layout of ``protocol.wire.canonical_parquet``, one row per rollout, and in the footer, in this order,

    assize.artifact = "2" · assize.round, assize.job, assize.node (decimal) · assize.manifest_root, assize.canary (hex)

An artifact has one file: bytes that do not come out again as they went in are refused. The canary names the determinism
class that the rollouts were made in, and is zeros under rules without classes.

Rollouts root: independent of the file; what is signed binds the file as well (``protocol.wire.artifact_blob``). With P
prompt tokens, T output tokens and K proofs (integers big-endian, logprobs as their IEEE 754 bits),

    rollout = u32 index ‖ u32 P ‖ u32 T ‖ u32 K ‖ P × u32 ‖ T × u32 ‖ T × f32 ‖ K × (u32 length ‖ bytes) ‖ u8 finish
    leaf    = keccak(0x00 ‖ rollout)        node = keccak(0x01 ‖ left ‖ right)        an odd node rises unchanged
    root    = keccak(abi.encode("assize/artifact/2", chain id, Rounds, round, job, uint32 node, manifest root,
                                bytes32 canary, uint32 count, top))

finish is 0 for "stop" and 1 for "length". The root covers chain, contract, round, job, node and policy, so an artifact
cannot be claimed for another job or by another node. PURE.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from eth_abi import encode as abi_encode
from eth_hash.auto import keccak  # without eth_utils' conversions, which take a third of the time

from protocol.wire import canonical_parquet
from protocol.wire.canonical_parquet import BYTE_ARRAY, FLOAT, INT32, Column, ColumnKind, malformed

FinishReason = Literal["stop", "length"]
DOMAIN = "assize/artifact/2"
FORMAT = "2"
FINISH_CODES: dict[str, int] = {"stop": 0, "length": 1}
FINISHES = {finish.encode() for finish in FINISH_CODES}
PAIRS = tuple(f"assize.{name}" for name in ("artifact", "round", "job", "node", "manifest_root", "canary"))
"""Names of the footer's pairs, in their order."""


COLUMNS = (
    ColumnKind("prompt_tokens", INT32),
    ColumnKind("output_tokens", INT32),
    ColumnKind("logprobs", FLOAT),
    ColumnKind("proofs", BYTE_ARRAY),
    ColumnKind("finish_reason", BYTE_ARRAY, listed=False, text=True),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of an artifact; the one on the file is checked before any of it is parsed.

    ``proof_bytes`` has room for a polynomial, 258 bytes, and a hash, 32.
    """

    file_bytes: int = 64 << 20
    rollouts: int = 4096
    prompt_tokens: int = 65536
    output_tokens: int = 65536
    proofs: int = 4096
    proof_bytes: int = 290

    @property
    def most(self) -> dict[str, int]:
        """Values of a rollout in each list column."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "logprobs": self.output_tokens,
            "proofs": self.proofs,
        }


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
    """The rollouts of ``job`` of ``round`` by ``node``, from the policy with ``manifest_root`` (32 bytes).

    ``canary`` (32 bytes) is that of the determinism class they were made in, zeros under rules without classes.
    """

    round: int
    job: int
    node: int
    manifest_root: bytes
    rollouts: tuple[Rollout, ...]
    canary: bytes = bytes(32)


def encode(artifact: Artifact, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Returns the artifact's file; raises `Rejected` as `decode` would, so that faults show before commitment."""
    columns, pairs = _columns(artifact.rollouts), _pairs(artifact)
    _header(pairs)
    _check(columns, limits)
    data = canonical_parquet.write(COLUMNS, columns, pairs)
    _check_size(data, limits)
    return data


def decode(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Artifact:
    """Returns the artifact in ``data``.

    Arrays are read-only views. Logprobs are finite and at most 0, tokens not negative, completions not empty.

    Raises:
        Rejected: ``data`` is anything but what ``encode`` returns for an artifact, with reason SHAPE.
    """
    _check_size(data, limits)
    columns, pairs = canonical_parquet.read(data, COLUMNS, limits.rollouts, limits.most)
    header = _header(pairs)
    _check(columns, limits)
    artifact = Artifact(*header[:4], _rollouts(columns), header[4])
    if canonical_parquet.write(COLUMNS, _columns(artifact.rollouts), _pairs(artifact)) != data:
        raise malformed("is not written in the one way that its contents allow")
    return artifact


def rollouts_root(chain_id: int, rounds_address: str, artifact: Artifact) -> bytes:
    """Returns the 32-byte root of the rollouts, bound to chain, contract, job, node and policy as drawn above."""
    leaves = [keccak(b"\x00" + canonical_bytes(index, rollout)) for index, rollout in enumerate(artifact.rollouts)]
    types = ["string", "uint256", "address", "uint256", "uint8", "uint32", "bytes32", "bytes32", "uint32", "bytes32"]
    job = (artifact.round, artifact.job, artifact.node, artifact.manifest_root, artifact.canary)
    return keccak(abi_encode(types, (DOMAIN, chain_id, rounds_address, *job, len(leaves), merkle_root(leaves))))


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


def _columns(rollouts: Sequence[Rollout]) -> list[Column]:
    proofs = [rollout.proofs for rollout in rollouts]
    return [
        _listed([rollout.prompt_tokens for rollout in rollouts]),
        _listed([rollout.output_tokens for rollout in rollouts]),
        _listed([rollout.logprobs for rollout in rollouts]),
        Column(_lengths(proofs), list(itertools.chain.from_iterable(proofs))),
        Column(np.ones(len(rollouts), np.int64), [rollout.finish_reason.encode() for rollout in rollouts]),
    ]


def _listed(parts: Sequence[np.ndarray[Any, Any]]) -> Column:
    return Column(_lengths(parts), np.concatenate(parts) if parts else np.zeros(0))


def _lengths(parts: Sequence[Sized]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([len(part) for part in parts], np.int64)


def _rollouts(columns: Sequence[Column]) -> tuple[Rollout, ...]:
    """Cuts checked columns into rollouts."""
    *listed, finishes = columns
    pieces = (_pieces(column) for column in listed)
    return tuple(Rollout(*row) for row in zip(*pieces, (bytes(each).decode() for each in finishes.values), strict=True))


def _pieces(column: Column) -> list[Any]:
    ends = [0, *np.cumsum(column.counts).tolist()]
    return [column.values[start:end] for start, end in itertools.pairwise(ends)]


def _pairs(artifact: Artifact) -> list[tuple[str, str]]:
    """Returns the footer's pairs."""
    numbers = [str(number) for number in (artifact.round, artifact.job, artifact.node)]
    return list(zip(PAIRS, (FORMAT, *numbers, artifact.manifest_root.hex(), artifact.canary.hex()), strict=True))


def _header(pairs: Sequence[tuple[str, str]]) -> tuple[int, int, int, bytes, bytes]:
    """Returns round, job, node, manifest root and canary from the footer's pairs."""
    if tuple(name for name, _ in pairs) != PAIRS or pairs[0][1] != FORMAT:
        raise malformed(f"is not marked as an artifact of format {FORMAT}")
    _, round_, job, node, manifest_root, canary = (value for _, value in pairs)
    for digits in (manifest_root, canary):
        if not re.fullmatch(r"[0-9a-f]{64}", digits):
            raise malformed("names a manifest root or a canary that is not 64 hex digits")
    numbers = _number("round", round_, 256), _number("job", job, 8), _number("node", node, 32)
    return *numbers, bytes.fromhex(manifest_root), bytes.fromhex(canary)


def _number(name: str, text: str, bits: int) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]{0,77}", text) or int(text) >> bits:
        raise malformed(f"names a {name} that is not a number of {bits} bits")
    return int(text)


def _check_size(data: bytes, limits: Limits) -> None:
    if len(data) > limits.file_bytes:
        raise malformed(f"has {len(data)} bytes, more than the {limits.file_bytes} allowed")


def _check(columns: Sequence[Column], limits: Limits) -> None:
    """Checks bounds column by column."""
    prompts, outputs, logprobs, proofs, finishes = columns
    if len({len(column.counts) for column in columns}) > 1 or not 0 < len(finishes.counts) <= limits.rollouts:
        raise malformed(f"has columns of different lengths, or not 1 to {limits.rollouts} rollouts")
    for name, column, most in (
        ("prompt_tokens", prompts, limits.prompt_tokens),
        ("output_tokens", outputs, limits.output_tokens),
    ):
        least, longest = column.counts.min(), column.counts.max()
        if least < 1 or longest > most:
            raise malformed(f"has a rollout with {least} to {longest} {name}, not 1 to {most}")
    if not np.array_equal(outputs.counts, logprobs.counts):
        raise malformed("does not have one logprob for each output token")
    if min(np.min(prompts.values), np.min(outputs.values)) < 0:
        raise malformed("has a negative token")
    if not (np.isfinite(logprobs.values).all() and np.max(logprobs.values) <= 0):
        raise malformed("has a logprob that is not finite or above 0")
    if not {bytes(finish) for finish in finishes.values} <= FINISHES:
        raise malformed("has a finish reason other than stop or length")
    longest_proof = max((len(proof) for proof in proofs.values), default=0)
    if proofs.counts.max() > limits.proofs or longest_proof > limits.proof_bytes:
        raise malformed(f"has more than {limits.proofs} proofs for a rollout, or one over {limits.proof_bytes} bytes")
