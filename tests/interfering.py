"""What happens between a process and its RPC: another program takes its nonce, or the RPC is behind the chain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eth_account import Account
from pydantic_core import to_json

from protocol.chain.reading.client import Chain
from protocol.chain.writing.calls import Call
from protocol.chain.writing.fees import GWEI
from protocol.node.wallet import Wallet
from tests.chaos.between import Answer, Asked, Forward, Interference
from tests.conftest import Anvil, until


def foreign(chain: Chain, wallet: Wallet, nonce: int) -> str:
    """A transaction that another program sends with our key."""
    fields = {
        "type": 2,
        "chainId": chain.chain_id,
        "nonce": nonce,
        "to": wallet.address,
        "value": 7,
        "data": b"",
        "gas": 21_000,
        "maxFeePerGas": 100 * GWEI,
        "maxPriorityFeePerGas": GWEI,
    }
    return "0x" + wallet.sign_transaction(fields).hex()


def overtaking(anvil: Anvil, chain: Chain, wallet: Wallet, call: Call, taken: list[str]) -> Interference:
    """Takes the nonce of the first transaction of ``wallet`` that is like ``call``; puts what did so into ``taken``."""

    def interfere(asked: Asked, forward: Forward) -> Answer | None:
        for each in asked.calls:
            if each["method"] == "eth_sendRawTransaction" and not taken and _is_like(call, each["params"][0], wallet):
                taken.append(_take_nonce(anvil, chain, wallet))
        return forward(asked)

    return interfere


def _take_nonce(anvil: Anvil, chain: Chain, wallet: Wallet) -> str:
    """The other program's transaction, mined."""
    nonce = anvil.mined_from(wallet.address)
    taken = anvil.rpc.call("eth_sendRawTransaction", foreign(chain, wallet, nonce))
    until(lambda: anvil.mined_from(wallet.address) > nonce, 10, "the other program's transaction")
    return str(taken)


def _is_like(call: Call, raw: str, wallet: Wallet) -> bool:
    """Whether a signed transaction calls the same function, and is of this key."""
    return call.data[:4].hex() in raw and Account.recover_transaction(raw) == wallet.address


def lagging(anvil: Anvil, call: Call, blocks: int, simulations: list[str]) -> Interference:
    """Answers each sender's first simulation like ``call`` from so many ``blocks`` before the first one.

    Puts the sender of every such simulation into ``simulations``, in their order.
    """
    behind: list[str] = []

    def interfere(asked: Asked, forward: Forward) -> Answer | None:
        who = next((each["params"][0]["from"] for each in asked.calls if _simulates(call, each)), None)
        if who is None:
            return forward(asked)
        simulations.append(who)
        if simulations.count(who) > 1:
            return forward(asked)
        if not behind:
            behind.append(hex(int(anvil.rpc.call("eth_blockNumber"), 16) - blocks))
        return forward(replace(asked, body=to_json([_asked_at(behind[0], each) for each in asked.calls])))

    return interfere


def _simulates(call: Call, each: Mapping[str, Any]) -> bool:
    return each["method"] == "eth_call" and each["params"][0].get("data", "").startswith("0x" + call.data[:4].hex())


def _asked_at(block: str, each: Mapping[str, Any]) -> dict[str, Any]:
    return {**each, "params": [block if one == "pending" else one for one in each["params"]]}
