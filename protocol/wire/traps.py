"""Planted faults: the leaves of a requester's traps, their Merkle tree, and how many are needed. PURE.

    leaf = keccak256(keccak256(abi.encode(chainId, Traps, (node, from, to, kind, salt))))
    node = keccak256(the smaller child ‖ the larger child); a node without a neighbour moves up as it is

A trap is planted once, in a job of its node in one of its rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from eth_abi import encode
from eth_utils import keccak

from protocol.amounts import tokens
from protocol.errors import Misconfigured

LEAF_TYPES = ("uint256", "address", "(uint32,uint48,uint48,uint8,bytes32)")


class TrapKind(IntEnum):
    """Fault that a requester's own node plants; the list is closed, and an honest prefill misses none of it."""

    DECOY = 0
    OTHER_SEED = 1
    ONE_ANSWER = 2
    OTHER_PROMPTS = 3

    @property
    def sentence(self) -> str:
        """The fault in words."""
        return _SENTENCES[self]


_SENTENCES = {
    TrapKind.DECOY: "nothing is planted",
    TrapKind.OTHER_SEED: "tokens sampled with the noise of another job",
    TrapKind.ONE_ANSWER: "all samples of a prompt generated with the noise of the first",
    TrapKind.OTHER_PROMPTS: "prompts of another round",
}


@dataclass(frozen=True, slots=True)
class Trap:
    """One leaf: a fault of this kind in one job of the node, in a round from ``from_`` to ``to``."""

    node: int
    from_: int
    to: int
    kind: TrapKind
    salt: bytes

    def covers(self, round_: int) -> bool:
        """Returns whether the fault may be planted in this round; a decoy's never is."""
        return self.kind is not TrapKind.DECOY and self.from_ <= round_ <= self.to


def leaf_of(chain_id: int, traps: str, trap: Trap) -> bytes:
    """Returns the hash of one leaf; ``traps`` is the contract's address."""
    fields = (trap.node, trap.from_, trap.to, int(trap.kind), trap.salt)
    return keccak(keccak(encode(LEAF_TYPES, [chain_id, traps, fields])))


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Returns the Merkle root of at least one leaf."""
    level = list(leaves)
    while len(level) > 1:
        level = _parents(level)
    return level[0]


def proof_of(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Returns the hashes that lead from one leaf to the root."""
    proof, level = [], list(leaves)
    while len(level) > 1:
        if (neighbour := index ^ 1) < len(level):
            proof.append(level[neighbour])
        level, index = _parents(level), index // 2
    return proof


def _parents(level: list[bytes]) -> list[bytes]:
    pairs = [level[start : start + 2] for start in range(0, len(level), 2)]
    return [keccak(b"".join(sorted(pair))) if len(pair) == 2 else pair[0] for pair in pairs]


def rate_needed(check_cost: int, penalty: int) -> float:
    """Returns the least share of jobs that have to be traps, so that accepting unread costs more than it saves.

    A juror that does not look saves ``check_cost`` for each job and pays ``penalty`` for each trap it accepts.

    Raises:
        Misconfigured: no rate is enough, as one check costs more than a missed trap.
    """
    if check_cost >= penalty:
        raise Misconfigured(
            f"no rate of traps is enough: one check costs {tokens(check_cost)}, a missed trap only {tokens(penalty)}; "
            "a deployment with a higher overturn penalty is needed, or cheaper checks"
        )
    return check_cost / penalty


def traps_needed(jobs: int, check_cost: int, penalty: int) -> int:
    """Returns how many of this many jobs have to be traps; raises as ``rate_needed`` does."""
    rate_needed(check_cost, penalty)
    return jobs * check_cost // penalty + 1
