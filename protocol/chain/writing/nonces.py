"""Finds the transaction that used a nonce on chain, since a missing receipt proves nothing."""

from __future__ import annotations

from protocol.chain.rpc import Rpc, RpcFault


def user_of_nonce(rpc: Rpc, address: str, nonce: int) -> str | None:
    """Returns the hash (0x-hex, lower case) of the mined transaction of ``address`` with this nonce.

    None proves nothing: there is no such transaction, or the endpoint cannot show it (no archive, inconsistent
    answers).
    """
    newest, back = int(rpc.call("eth_blockNumber"), 16), 1
    try:
        if _count(rpc, address, newest) <= nonce:
            return None
        # Backwards in growing steps: endpoints without an archive know the state of the newest blocks only.
        while (oldest := max(-1, newest - back)) >= 0 and _count(rpc, address, oldest) > nonce:
            newest, back = oldest, 2 * back
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
    """Counts the transactions of ``address`` mined up to this block."""
    return int(rpc.call("eth_getTransactionCount", address, hex(block)), 16)
