"""Rollouts made outside of any round, so that a verifier can be measured on them.

A folder holds one artifact a job, `job-N.parquet`, in the format of a round's, and `index.json`, which says what made
them. Seeds follow from a number in place of a beacon: whoever makes specimens again makes the same requests. PURE.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from eth_utils import keccak

from protocol.errors import Rejected
from protocol.wire.seeds import job_seed

FORMAT = "assize/specimens/1"
INDEX = "index.json"
ROUNDS = "0x" + "00" * 20
"""Address of no contract: seeds of specimens are those of no chain."""


@dataclass(frozen=True, slots=True)
class Batch:
    """``jobs`` whose rollouts were decoded ``size`` at a time."""

    size: int
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Specimens:
    """What a folder holds.

    maker       the engine, or how the maker cheated
    model       name of the directory of weights, for people
    weights     SHA-256 of the weights that the rules mean, which every artifact carries as its manifest root
    rules_hash  the rules they were made under; their thresholds do not matter
    seed        number that requests follow from
    machine     processor, libraries and threads, for people
    """

    maker: str
    model: str
    weights: bytes
    rules_hash: bytes
    seed: int
    machine: dict[str, str]
    batches: tuple[Batch, ...]

    @property
    def beacon(self) -> bytes:
        """What stands in the place of a block's hash."""
        return beacon_of(self.seed)

    def job_seed(self, job: int) -> bytes:
        """The seed of one job."""
        return job_seed(0, ROUNDS, 0, self.beacon, job)


def beacon_of(seed: int) -> bytes:
    """Returns keccak256 of the format's name and ``seed`` (u64, big-endian)."""
    return keccak(FORMAT.encode() + seed.to_bytes(8, "big"))


def file_of(job: int) -> str:
    """Returns the name of a job's artifact."""
    return f"job-{job}.parquet"


def encode_index(specimens: Specimens) -> str:
    """Returns the index as JSON."""
    fields = asdict(specimens) | {"weights": specimens.weights.hex(), "rules_hash": specimens.rules_hash.hex()}
    return json.dumps({"format": FORMAT, **fields}, indent=1) + "\n"


def decode_index(text: str) -> Specimens:
    """Reads an index. Raises ``Rejected`` where it is none."""
    try:
        fields = json.loads(text)
        if fields.pop("format") != FORMAT:
            raise Rejected(f"the index is not of format {FORMAT}")
        batches = tuple(Batch(int(each["size"]), tuple(map(int, each["jobs"]))) for each in fields.pop("batches"))
        weights, rules = (bytes.fromhex(fields.pop(name)) for name in ("weights", "rules_hash"))
        return Specimens(**fields, weights=weights, rules_hash=rules, batches=batches)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Rejected("the index of specimens does not have the fields of its format") from error
