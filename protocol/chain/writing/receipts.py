"""Receipts of mined transactions, with the decoded events of our contracts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocol.chain.block import Block
from protocol.chain.events import Log
from protocol.chain.reading.client import Chain
from protocol.chain.reading.decoding import log_of

MOST_PAUSE_SECONDS = 1.0
"""Longest pause between two requests for a receipt."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """A mined transaction: ``status`` (1 for success), fee in wei, and events of our contracts.

    The fee includes that for the transaction's data on another chain, where the receipt names one (``l1Fee``).
    """

    tx_hash: bytes
    block_number: int
    block_hash: bytes
    status: int
    gas_used: int
    fee: int
    logs: tuple[Log, ...]


def receipt_of(answer: dict[str, Any], chain: Chain) -> Receipt:
    """Returns a receipt from the RPC's answer, with its logs decoded."""
    gas_used = int(answer["gasUsed"], 16)
    block_number, block_hash = int(answer["blockNumber"], 16), bytes.fromhex(answer["blockHash"][2:])
    return Receipt(
        tx_hash=bytes.fromhex(answer["transactionHash"][2:]),
        block_number=block_number,
        block_hash=block_hash,
        status=int(answer["status"], 16),
        gas_used=gas_used,
        fee=gas_used * int(answer["effectiveGasPrice"], 16) + int(answer.get("l1Fee") or "0x0", 16),
        logs=_receipt_logs(answer["logs"], block_number, block_hash, chain),
    )


def pause_after(waited: float, least: float) -> float:
    """Returns the pause in seconds before a receipt is asked for again: an eighth of the wait so far. PURE.

    A wait is an eighth longer than it need be at most, and takes some forty requests where a block takes 12 s.
    """
    return max(least, min(waited / 8, MOST_PAUSE_SECONDS))


def _receipt_logs(raws: list[dict[str, Any]], block_number: int, block_hash: bytes, chain: Chain) -> tuple[Log, ...]:
    names = chain.deployment.contract_names()
    ours = [(raw, names[raw["address"].lower()]) for raw in raws if raw["address"].lower() in names]
    if not ours:
        return ()
    stamp = ours[0][0].get("blockTimestamp")
    timestamp = int(stamp, 16) if stamp else chain.block(block_number).timestamp
    block = Block(block_number, block_hash, None, timestamp)
    return tuple(log for raw, name in ours if (log := log_of(raw, name, block)))
