"""Who used a nonce: the chain itself is asked, since a missing receipt proves nothing."""

from __future__ import annotations

from protocol.chain.rpc import Rpc, RpcFault

REACH = 120
"""Blocks looked back: nodes without an archive answer for the state of about 128."""


def user_of_nonce(rpc: Rpc, address: str, nonce: int) -> str | None:
    """Hash (0x-hex, lower case) of the mined transaction of ``address`` with this nonce; "" where it is too old to see.

    None where no such transaction is mined, or answers do not fit together: that is no proof of anything.
    """
    newest = int(rpc.call("eth_blockNumber"), 16)
    oldest = max(0, newest - REACH)
    try:
        if _count(rpc, address, newest) <= nonce:
            return None
        if _count(rpc, address, oldest) > nonce:
            return ""
        while newest - oldest > 1:
            middle = (oldest + newest) // 2
            oldest, newest = (oldest, middle) if _count(rpc, address, middle) > nonce else (middle, newest)
        block = rpc.call("eth_getBlockByNumber", hex(newest), True)
    except RpcFault:
        return None
    for transaction in (block or {}).get("transactions", ()):
        if transaction["from"].lower() == address.lower() and int(transaction["nonce"], 16) == nonce:
            return str(transaction["hash"]).lower()
    return None


def _count(rpc: Rpc, address: str, block: int) -> int:
    """Transactions of ``address`` mined up to this block."""
    return int(rpc.call("eth_getTransactionCount", address, hex(block)), 16)
