"""A chain full of token transfers: a hundred in each block, made by a contract that does nothing else."""

from __future__ import annotations

import itertools
import time

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from protocol.chain.rpc import Rpc

SPRAYER = "0x5500000000000000000000000000000000000055"
PER_BLOCK = 100
HOLDERS = 2_000
SUPPLY = 10**24
GAS = 12_000_000

CODE = (
    "0x"
    "63a9059cbb60e01b5f52"  # memory begins with the selector of transfer(address,uint256)
    "6001602452"  # its second argument, the amount, is 1
    "602035"  # how many are left: the call's second word
    "5b8060403501600452"  # 0x12: its first argument is the third word and how many are left
    "5f5f60445f5f5f355af1"  # calls the token, which is the first word
    "15603257"  # goes to 0x32 where that failed
    "6001900380601257"  # one less is left; again from 0x12 until none is
    "00"
    "5b5f5ffd"  # 0x32: reverts
)


class Sprayer:
    """Fills an anvil that mines each transaction as it comes."""

    def __init__(self, rpc: Rpc, token: str) -> None:
        self._rpc = rpc
        self._token = token
        self._sender = rpc.call("eth_accounts")[0]
        self._firsts = itertools.cycle(range(0x1000, 0x1000 + HOLDERS, PER_BLOCK))
        rpc.call("anvil_setCode", SPRAYER, CODE)
        drip = keccak(text="drip(address,uint256)")[:4] + encode(["address", "uint256"], [SPRAYER, SUPPLY])
        self._send(token, drip)

    def mine(self, blocks: int) -> None:
        """Adds ``blocks`` blocks of ``PER_BLOCK`` transfers."""
        for _ in range(blocks):
            words = encode(["address", "uint256", "uint256"], [self._token, PER_BLOCK, next(self._firsts)])
            self._send(SPRAYER, words)

    def _send(self, to: str, data: bytes) -> None:
        fields = {"from": self._sender, "to": to, "data": "0x" + data.hex(), "gas": hex(GAS)}
        sent = self._rpc.call("eth_sendTransaction", fields)
        while (receipt := self._rpc.call("eth_getTransactionReceipt", sent)) is None:
            time.sleep(0.001)
        if receipt["status"] != "0x1":
            raise RuntimeError("a transaction of the bench was reverted")
