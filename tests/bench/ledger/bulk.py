"""Many transactions to a block, sent for anybody: a chain grows by thousands of real calls a second."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.chain.events import Log
from protocol.chain.reading.client import Chain
from protocol.chain.rpc import RpcRequest
from protocol.chain.writing.calls import Call
from protocol.chain.writing.receipts import receipt_of

PER_BLOCK = 200
GAS = 3_000_000
OPTIONS = (
    *("--auto-impersonate", "--disable-pool-balance-checks", "--block-base-fee-per-gas", "0"),
    *("--gas-limit", str(10**12)),
    "--prune-history",  # blocks and logs stay; of states the newest alone: to keep one is to copy all of it
)
"""Of an anvil that takes transactions of whoever is named as their sender, who pays no gas."""

Sent = tuple[str, Call]
"""Who sends what."""


class Bulk:
    """Sends without waiting for each transaction."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._rpc = chain.rpc

    def mine(self, transactions: Sequence[Sent]) -> list[Log]:
        """Mines all of them in their order, and returns what they emitted."""
        self._rpc.call("evm_setAutomine", False)
        found: list[Log] = []
        for start in range(0, len(transactions), PER_BLOCK):
            found += self._block(transactions[start : start + PER_BLOCK])
        self._rpc.call("evm_setAutomine", True)
        return found

    def pass_time(self, seconds: int) -> None:
        """Moves the chain's clock."""
        self._rpc.call("evm_increaseTime", hex(seconds))
        self._rpc.call("evm_mine")

    def _block(self, transactions: Sequence[Sent]) -> list[Log]:
        requests, nonces = [], self._nonces({sender for sender, _ in transactions})
        for sender, call in transactions:
            requests.append(_request(sender, nonces[sender], call))
            nonces[sender] += 1
        for answer in self._rpc.batch(requests):
            if isinstance(answer, Exception):
                raise answer
        self._rpc.call("evm_mine")
        receipts = [receipt_of(answer, self._chain) for answer in self._rpc.call("eth_getBlockReceipts", "latest")]
        failed = [number for number, receipt in enumerate(receipts) if receipt.status != 1]
        if failed or len(receipts) != len(transactions):
            raise RuntimeError(f"{len(receipts)} of {len(transactions)} were mined; reverted: {failed[:5]}")
        return [log for receipt in receipts for log in receipt.logs]

    def _nonces(self, senders: set[str]) -> dict[str, int]:
        """The next nonce of each: anvil takes the requests of a batch in any order."""
        asked = list(senders)
        answers = self._rpc.batch([RpcRequest("eth_getTransactionCount", (sender, "latest")) for sender in asked])
        return {sender: int(answer, 16) for sender, answer in zip(asked, answers, strict=True)}


def _request(sender: str, nonce: int, call: Call) -> RpcRequest:
    free = {"gas": hex(GAS), "gasPrice": "0x0", "nonce": hex(nonce)}
    return RpcRequest("eth_sendTransaction", ({"from": sender, "to": call.to, "data": "0x" + call.data.hex(), **free},))
