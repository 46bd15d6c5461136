"""Specimens: rollouts generated outside any round, on which a verifier is calibrated.

A folder holds one artifact per job, `job-N.parquet`, in the format of a round's, and `index.json`, which describes
their origin. Seeds follow from a number instead of a beacon, so that the same requests can be made again. PURE.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Literal

from eth_utils import keccak
from pydantic import TypeAdapter, with_config

from protocol.wire.canonical import InHex, validating
from protocol.wire.seeds import job_seed

FORMAT: Literal["assize/specimens/1"] = "assize/specimens/1"
INDEX = "index.json"
Hash = Annotated[bytes, InHex("^[0-9a-f]{64}$", prefix="")]
"""32 bytes, as 64 hex digits in JSON."""
ROUNDS = "0x" + "00" * 20
"""Stands for the contract's address in seeds: specimens belong to no chain."""


@dataclass(frozen=True, slots=True)
class Batch:
    """``jobs`` whose rollouts were decoded ``size`` at a time."""

    size: int
    jobs: tuple[int, ...]


@with_config(extra="forbid")
@dataclass(frozen=True, slots=True)
class Specimens:
    """Index of a folder.

    maker       the engine, or the cheat
    model       name of the directory of weights, for people
    weights     SHA-256 of the weights that the rules name, which every artifact carries as its manifest root
    rules_hash  the rules they were made under; their thresholds do not matter
    seed        number from which requests follow
    machine     processor, libraries and threads, for people
    """

    maker: str
    model: str
    weights: Hash
    rules_hash: Hash
    seed: int
    machine: dict[str, str]
    batches: tuple[Batch, ...]
    format: Literal["assize/specimens/1"]

    @property
    def beacon(self) -> bytes:
        """The 32 bytes used instead of a block's hash."""
        return beacon_of(self.seed)

    def job_seed(self, job: int) -> bytes:
        """Returns the seed of one job."""
        return job_seed(0, ROUNDS, 0, self.beacon, job)


def beacon_of(seed: int) -> bytes:
    """Returns keccak256 of the format's name and ``seed`` (u64, big-endian)."""
    return keccak(FORMAT.encode() + seed.to_bytes(8, "big"))


def file_of(job: int) -> str:
    """Returns the name of a job's artifact."""
    return f"job-{job}.parquet"


def encode_index(specimens: Specimens) -> str:
    """Returns the index as JSON."""
    return json.dumps(_INDEX.dump_python(specimens, mode="json"), indent=1) + "\n"


def decode_index(text: str) -> Specimens:
    """Reads an index; raises ``Rejected`` for any other text."""
    with validating("invalid index of specimens"):
        return _INDEX.validate_json(text)


_INDEX = TypeAdapter(Specimens)
