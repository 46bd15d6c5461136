"""Seeds that follow from the chain alone, so that no party can choose a prompt or the best of n draws.

    beacon (hash of the opening block) ──> job seed ──> prompt seed of each group
                                                  └───> noise key of each rollout (``protocol.wire.sampling``)

No worker identity enters, so a job is the same work for every worker.
"""

from __future__ import annotations

from eth_abi import encode
from eth_utils import keccak


def job_seed(chain_id: int, rounds: str, round_: int, beacon: bytes, job: int) -> bytes:
    """Returns the 32-byte seed of one job.

    keccak256(abi.encode("assize/job/1", chainId, Rounds, roundId, beacon, job)); ``rounds`` is the contract's address.
    """
    types = ["string", "uint256", "address", "uint256", "bytes32", "uint256"]
    return keccak(encode(types, ["assize/job/1", chain_id, rounds, round_, beacon, job]))


def prompt_seed(job_seed: bytes, group: int) -> bytes:
    """Returns the 32-byte seed of the prompt shared by one group of a job.

    keccak256("assize/prompt/1" ‖ job seed ‖ uint32 group, big-endian).
    """
    return keccak(b"assize/prompt/1" + job_seed + group.to_bytes(4, "big"))
