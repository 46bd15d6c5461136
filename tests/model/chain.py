"""The deployed contracts on anvil, called one transaction a block at timestamps that are given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from protocol.chain.abi import functions
from protocol.chain.deployment import Deployment
from protocol.chain.reverts import decode_revert
from protocol.chain.rpc import Rpc, RpcFault, RpcRequest
from protocol.chain.structs import pack_parts, pack_submissions
from tests.model.transaction import Refused, Transaction
from tests.model.views import Question

HISTORY = "0x0000F90827F1C53a10cb7A02335B175320002935"
"""The contract that keeps block hashes (EIP-2935)."""
HISTORY_WINDOW, OPCODE_WINDOW = 8191, 256
GAS = 20_000_000

PACKED: dict[str, Callable[[Any], bytes]] = {"submit": pack_submissions, "settle": pack_parts, "appeal": pack_parts}
"""How verbs of rounds take the batch that is their last argument."""


class Contracts:
    """One deployment. ``now`` and ``block`` are those of the newest block."""

    def __init__(self, rpc: Rpc, deployment: Deployment) -> None:
        self.rpc, self.deployment = rpc, deployment
        self._history, self.window = rpc.call("eth_getCode", HISTORY, "latest"), HISTORY_WINDOW
        self.now = self.block = 0
        self.look()

    def look(self) -> None:
        """Reads where the chain stands."""
        head = self.rpc.call("eth_getBlockByNumber", "latest", False)
        self.now, self.block = int(head["timestamp"], 16), int(head["number"], 16)

    def keep_history(self, kept: bool) -> None:
        """Makes it a chain with the contract that serves old block hashes, or one without."""
        self.rpc.call("anvil_setCode", HISTORY, self._history if kept else "0x")
        self.window = HISTORY_WINDOW if kept else OPCODE_WINDOW

    def mine(self, blocks: int) -> None:
        """Passes empty blocks in as few seconds as the chain allows."""
        self.rpc.call("anvil_mine", hex(blocks), "0x0")
        self.look()

    def transaction(self, sender: str, now: int) -> Transaction:
        """The next transaction, as the contracts will see it."""
        return Transaction(sender, now, self.block + 1, self.window, self.hash_of)

    def hash_of(self, block: int) -> bytes:
        """Hash of a block there is."""
        return bytes.fromhex(self.rpc.call("eth_getBlockByNumber", hex(block), False)["hash"][2:])

    def call(self, tx: Transaction, contract: str, verb: str, *arguments: Any) -> Refused | None:
        """Mines a block with this transaction alone; returns the error it reverted with."""
        if contract == "Rounds" and verb in PACKED:
            *arguments, parts = arguments
            arguments = (*arguments, PACKED[verb](parts))
        data = "0x" + functions(contract)[verb].encode(*arguments).hex()
        sent = {"from": tx.sender, "to": self.deployment.address_of(contract), "data": data, "gas": hex(GAS)}
        self.rpc.call("anvil_setNextBlockTimestamp", tx.now)
        receipt = self.rpc.call("eth_sendTransactionSync", sent)
        self.now, self.block = tx.now, int(receipt["blockNumber"], 16)
        assert self.block == tx.block, "a block of its own for each transaction"
        return None if receipt["status"] == "0x1" else self._revert(receipt["transactionHash"])

    def answers(self, questions: list[Question]) -> dict[Question, Any]:
        """What the contracts' views answer at the newest block."""
        raw = self.rpc.batch([RpcRequest("eth_call", (self._asked(question), "latest")) for question in questions])
        return {
            question: payload if isinstance(payload, RpcFault) else _answer(question[0], question[1], payload)
            for question, payload in zip(questions, raw, strict=True)
        }

    def _asked(self, question: Question) -> dict[str, str]:
        return {"to": self.deployment.address_of(question[0]), "data": _calldata(question)}

    def _revert(self, transaction: str) -> Refused:
        options = {"tracer": "callTracer", "tracerConfig": {"onlyTopCall": True}}
        traced = self.rpc.call("debug_traceTransaction", transaction, options)
        reverted = decode_revert(bytes.fromhex(traced.get("output", "0x")[2:]))
        return Refused(reverted.name or str(reverted), *reverted.arguments.values())


@functools.lru_cache(maxsize=4096)
def _calldata(question: Question) -> str:
    contract, verb, arguments = question
    return "0x" + functions(contract)[verb].encode(*arguments).hex()


@functools.lru_cache(maxsize=4096)
def _answer(contract: str, view: str, payload: str) -> Any:
    """Most answers are those of the step before."""
    return functions(contract)[view].decode_output(bytes.fromhex(payload[2:]))
