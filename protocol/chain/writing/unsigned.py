"""Transactions for a signer elsewhere: a Safe, or a machine that is offline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocol.chain.writing.calls import Call
from protocol.chain.writing.plans import Plan


@dataclass(frozen=True, slots=True)
class UnsignedTransaction:
    """A plan's first call as a transaction, and the calls after it, which need the state that it leaves.

    Args:
        call: receiver, calldata and value.
        sender: address that must sign it.
        nonce: number of the sender's transactions so far, mined or pending.
        gas: gas limit.
        max_fee: bid in wei per gas.
        priority_fee: tip in wei per gas.
        chain_id: EIP-155 chain id.
        then: the calls that follow.
    """

    call: Call
    sender: str
    nonce: int
    gas: int
    max_fee: int
    priority_fee: int
    chain_id: int
    then: tuple[Call, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the transaction under the names that signers use; amounts of wei are strings."""
        return {
            "to": self.call.to,
            "data": "0x" + self.call.data.hex(),
            "value": str(self.call.value),
            "nonce": self.nonce,
            "gas": self.gas,
            "maxFeePerGas": str(self.max_fee),
            "maxPriorityFeePerGas": str(self.priority_fee),
            "chainId": self.chain_id,
            "from": self.sender,
            "description": self.call.description,
        } | ({"then": [call.description for call in self.then]} if self.then else {})


def unsigned(plan: Plan[Any]) -> UnsignedTransaction:
    """Simulates a plan's first call and returns it as a transaction; raises as ``Plan.dry_run`` does."""
    run, account = plan.dry_run(), plan.sender
    nonce = int(account.chain.rpc.call("eth_getTransactionCount", account.address, "pending"), 16)
    bid, tip = run.simulation.max_fee_per_gas, run.simulation.priority_fee
    return UnsignedTransaction(
        run.first, account.address, nonce, run.simulation.gas, bid, tip, account.chain.chain_id, run.then
    )
