"""Simulates a call on the node before it is signed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocol.amounts import coin
from protocol.chain.block import block_of
from protocol.chain.reading.client import Chain
from protocol.chain.reverts import reverted
from protocol.chain.rpc import RpcFault, RpcRequest
from protocol.chain.writing.calls import Call
from protocol.chain.writing.fees import Fees, tip_of
from protocol.errors import Misconfigured, Unavailable

GAS_MARGIN_PERCENT = 25
"""Margin on the estimate, since state may change between estimate and inclusion."""

SUGGESTED_TIP = RpcRequest("eth_maxPriorityFeePerGas")
"""Asks a node for the tip that its chain takes now; not every node knows the method."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulated call.

    Args:
        description: the call in words.
        gas: gas limit.
        max_fee_per_gas: bid in wei per gas.
        priority_fee: part of it for the block's producer.
        returned: return data.
        mined: number of the sender's mined transactions.
    """

    description: str
    gas: int
    max_fee_per_gas: int
    priority_fee: int
    returned: bytes
    mined: int

    @property
    def max_cost(self) -> int:
        """Most wei that the transaction can cost."""
        return self.gas * self.max_fee_per_gas


def simulate(chain: Chain, address: str, fees: Fees, call: Call, pays_gas: bool = True) -> Simulation:
    """Runs the call on the pending state, sent by ``address``, which must be able to pay for gas if it ``pays_gas``.

    Raises:
        Reverted: the contract refuses it.
        Misconfigured: the address cannot pay for it.
        Unavailable: no RPC, or gas costs more than the cap.
    """
    asked = fields_of(call, address)
    answers = chain.rpc.batch(
        [
            RpcRequest("eth_call", (asked, "pending")),
            RpcRequest("eth_estimateGas", (asked, "pending")),
            RpcRequest("eth_getBlockByNumber", ("latest", False)),
            RpcRequest("eth_getBalance", (address, "pending")),
            RpcRequest("eth_getTransactionCount", (address, "latest")),
            SUGGESTED_TIP,
        ]
    )
    *answers, suggested = answers
    for answer in answers:
        if isinstance(answer, RpcFault):
            raise reverted(answer) or answer
    returned, gas, header, balance, mined = answers
    if not header:
        raise Unavailable(f"the RPC at {chain.rpc.url} does not know its newest block")
    limit = max(int(gas, 16) * (100 + GAS_MARGIN_PERCENT) // 100, call.least_gas)
    tip = tip_of(suggested)
    bid = fees.bid(block_of(header).base_fee, tip)
    need, have = call.value + limit * bid * pays_gas, int(balance, 16)
    if have < need:
        raise Misconfigured(f"{address} has {coin(have)} for gas and may need {coin(need)}: send it some")
    return Simulation(call.description, limit, bid, min(tip, bid), bytes.fromhex(returned[2:]), int(mined, 16))


def present_bid(chain: Chain, fees: Fees) -> int:
    """Returns what a transaction bids now, in wei per gas; raises ``Unavailable`` if that exceeds the cap."""
    (suggested,) = chain.rpc.batch([SUGGESTED_TIP])
    return fees.bid(chain.head().base_fee, tip_of(suggested))


def fields_of(call: Call, address: str) -> dict[str, Any]:
    """Returns the call in the form that ``eth_call`` takes."""
    fields = {"from": address, "data": "0x" + call.data.hex(), "value": hex(call.value)}
    return fields | ({"to": call.to} if call.to else {})
