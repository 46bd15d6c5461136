"""A chain to measure gas on: any account sends without its key and without coins, and gas is what comes back."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from deploy.localnet.processes import free_port
from deploy.localnet.services import anvil_binary
from protocol.chain.abi import checksummed
from protocol.chain.rpc import Rpc, RpcFault, RpcRequest
from protocol.chain.writing.calls import Call
from protocol.errors import Rejected, Unavailable

GAS_LIMIT = 30_000_000
"""Of one transaction."""
BLOCK_GAS_LIMIT = 10_000 * GAS_LIMIT

BATCH = 128
START_SECONDS = 30.0


class GasChain:
    """anvil with every account unlocked. ``send`` answers what a transaction cost: calldata and base included."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.rpc = Rpc(url, timeout_seconds=120.0)
        self.chain_id = int(self._once_up(), 16)
        self.rpc.call("anvil_autoImpersonateAccount", True)

    def send(self, sender: str, call: Call) -> int:
        """Mines one call; returns its gas."""
        return self.send_all([(sender, call)])[0]

    def send_all(self, sent: Sequence[tuple[str, Call]]) -> list[int]:
        """Mines each call as a transaction of its own; returns the gas of each.

        Raises:
            Rejected: the chain refused one, or it reverted.
        """
        gas: list[int] = []
        for start in range(0, len(sent), BATCH):
            part = sent[start : start + BATCH]
            nonces = self._nonces([sender for sender, _ in part])
            hashes = self._answers(
                [
                    RpcRequest("eth_sendTransaction", (_transaction(*one, nonce),))
                    for one, nonce in zip(part, nonces, strict=True)
                ]
            )
            for (_, call), receipt in zip(part, self._receipts(hashes), strict=True):
                if int(receipt["status"], 16) != 1:
                    raise Rejected(f"{call.description} reverted")
                gas.append(int(receipt["gasUsed"], 16))
        return gas

    def pass_seconds(self, seconds: int) -> None:
        """Lets time pass."""
        self.rpc.call("evm_increaseTime", seconds)
        self.rpc.call("evm_mine")

    def _nonces(self, senders: Sequence[str]) -> list[int]:
        """The nonce of each transaction: anvil takes a batch's calls at once, and would give one sender's the same."""
        known = self._answers([RpcRequest("eth_getTransactionCount", (sender, "latest")) for sender in senders])
        return [int(nonce, 16) + senders[:place].count(senders[place]) for place, nonce in enumerate(known)]

    def _answers(self, requests: Sequence[RpcRequest]) -> list[Any]:
        answers = self.rpc.batch(requests)
        for answer in answers:
            if isinstance(answer, RpcFault):
                raise Rejected(f"{answer} {'0x' + answer.data.hex() if answer.data else ''}")
        return answers

    def _receipts(self, hashes: Sequence[Any]) -> list[Any]:
        give_up = time.monotonic() + START_SECONDS
        while True:
            receipts = self._answers([RpcRequest("eth_getTransactionReceipt", (each,)) for each in hashes])
            if all(receipts):
                return receipts
            if time.monotonic() > give_up:
                raise Unavailable(f"{receipts.count(None)} of {len(hashes)} transactions are not mined")
            time.sleep(0.01)

    def _once_up(self) -> str:
        give_up = time.monotonic() + START_SECONDS
        while True:
            try:
                return str(self.rpc.call("eth_chainId"))
            except Unavailable:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.05)


@contextmanager
def gas_chain() -> Iterator[GasChain]:
    """Starts anvil on a free port and ends it afterwards."""
    port = free_port()
    # Blocks that never fill keep the base fee at nothing.
    fees = ("--base-fee", "0", "--gas-price", "0", "--gas-limit", str(BLOCK_GAS_LIMIT), "--disable-min-priority-fee")
    options = ("--port", str(port), "--silent", "--order", "fifo", "--hardfork", "prague", *fees)
    with TemporaryDirectory() as states:  # anvil keeps a file for each block, and leaves them when it ends
        argv = (anvil_binary(), *options, "--cache-path", states)
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield GasChain(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait(10)


def _transaction(sender: str, call: Call, nonce: int) -> dict[str, str]:
    return {
        "from": sender,
        "to": call.to,
        "data": "0x" + call.data.hex(),
        "nonce": hex(nonce),
        "gas": hex(GAS_LIMIT),
        "gasPrice": "0x0",
    }


def fresh_address() -> str:
    """An address of nobody."""
    return checksummed("0x" + secrets.token_hex(20))
