"""The fields of a block that readers need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Block:
    """A block's place in the chain.

    ``parent`` is None if the block is known from a log only (older than finality); ``base_fee`` is in wei per gas.
    """

    number: int
    hash: bytes
    parent: bytes | None
    timestamp: int
    base_fee: int = 0


def block_of(header: dict[str, Any]) -> Block:
    """Returns a block from the RPC's header."""
    return Block(
        number=int(header["number"], 16),
        hash=bytes.fromhex(header["hash"][2:]),
        parent=bytes.fromhex(header["parentHash"][2:]),
        timestamp=int(header["timestamp"], 16),
        base_fee=int(header.get("baseFeePerGas") or "0x0", 16),
    )
