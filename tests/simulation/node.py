"""RPC endpoints of a simulated chain, with all that goes wrong at them, beneath the real client."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx
from eth_account import Account
from eth_account.typed_transactions import TypedTransaction
from eth_utils.crypto import keccak
from hexbytes import HexBytes

from protocol.chain.abi import functions
from protocol.chain.deployment import REFERENCES, Deployment
from tests.simulation.faults import Faults, Killed
from tests.simulation.world import GWEI, Block, Payment, World

CHAIN_ID = 31337
LAGS = (0, 0, 1, 2, 5, 70, 150)
WIDEST_RANGE = 40
COIN = 10**24
GAS = 21_000
REFUSED, REVERTING = 13, 7
"""Payments of so many wei, modulo 17: refused when simulated; accepted, and reverted when mined."""


class Refusal(Exception):
    """An answer that is a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: str | None = None) -> None:
        super().__init__(message)
        self.body = {"code": code, "message": message} | ({"data": data} if data else {})


@dataclass(slots=True)
class Endpoint(httpx.BaseTransport):
    """One endpoint: a balancer before two nodes, each of which sees the chain late, or from a fork that died."""

    world: World
    deployment: Deployment
    faults: Faults
    lies: bool = False
    """Whether it cuts logs short now and then without a word."""
    heads: list[Block] | None = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answers, or fails as real ones do."""
        self._disturb("rpc refused", httpx.ConnectError("connection refused"))
        if self.faults.strikes("killed at a request"):
            raise Killed
        if self.faults.strikes("rpc slow down"):
            return httpx.Response(429, text="slow down")
        if self.faults.strikes("rpc garbage"):
            return httpx.Response(502, text="<html>bad gateway</html>")
        answer = self._answers(json.loads(request.content))
        self._disturb("rpc answer lost", httpx.ReadTimeout("timed out"))
        if self.faults.strikes("killed at a request"):
            raise Killed
        return httpx.Response(200, json=answer)

    def look(self) -> None:
        """Time passes: its nodes may learn of the newest block."""
        heads = self.heads or [self.world.head] * 2
        self.heads = [self._next_head(head) for head in heads]

    def _next_head(self, head: Block) -> Block:
        if self.faults.healed:
            return self.world.head
        if not self.world.is_canonical(head, self.world.head) and self.faults.strikes("endpoint on a dead fork"):
            return head
        if self.faults.strikes("endpoint lags"):
            lag = self.faults.chance.choice(LAGS)
            return self.world.blocks[self.world.head.line[max(0, self.world.head.number - lag)]]
        return self.world.head

    def _disturb(self, kind: str, error: Exception) -> None:
        if self.faults.strikes(kind):
            raise error

    def _answers(self, body: Any) -> Any:
        heads = self.heads or [self.world.head]
        head = self.world.head if self.faults.healed else self.faults.chance.choice(heads)
        if isinstance(body, dict):
            return self._answer(head, body, self.faults.strikes("rpc internal error"))
        failing = self.faults.chance.randrange(len(body)) if self.faults.strikes("rpc internal error") else None
        answers = [self._answer(head, each, place == failing) for place, each in enumerate(body)]
        if len(answers) > 1 and self.faults.strikes("rpc batch cut short"):
            answers.pop(self.faults.chance.randrange(len(answers)))
        self.faults.chance.shuffle(answers)
        return answers

    def _answer(self, head: Block, body: dict[str, Any], fails: bool) -> dict[str, Any]:
        frame = {"jsonrpc": "2.0", "id": body["id"]}
        try:
            if fails:
                raise Refusal(-32603, "internal error")
            return frame | {"result": getattr(self, body["method"])(head, *body["params"])}
        except Refusal as refusal:
            return frame | {"error": refusal.body}

    # Methods, by their names in JSON-RPC

    def eth_chainId(self, head: Block) -> str:
        return hex(CHAIN_ID)

    def eth_blockNumber(self, head: Block) -> str:
        return hex(head.number)

    def eth_getCode(self, head: Block, address: str, tag: str) -> str:
        return "0x01"

    def eth_getBlockByNumber(self, head: Block, tag: str, full: bool) -> dict[str, Any] | None:
        block = self._at(head, tag)
        return None if block is None else self._header(block, full)

    def eth_getLogs(self, head: Block, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        if "blockHash" in wanted:
            block = self.world.blocks[bytes.fromhex(wanted["blockHash"][2:])]
            if not self.world.is_canonical(block, head) and block.number >= head.number:
                raise Refusal(-32000, "unknown block")
            found = self._logs(block)
        else:
            first, last = int(wanted["fromBlock"], 16), int(wanted["toBlock"], 16)
            if last - first >= WIDEST_RANGE or self.faults.strikes("range too wide"):
                raise Refusal(-32005, "query returned more than 10000 results")
            blocks = (self.world.blocks[each] for each in head.line[first : last + 1])
            found = [log for block in blocks for log in self._logs(block)]
        if self.lies and found and self.faults.strikes("logs cut short"):
            found.pop()
        return found

    def eth_maxPriorityFeePerGas(self, head: Block) -> str:
        return hex(GWEI)

    def eth_getBalance(self, head: Block, address: str, tag: str) -> str:
        return hex(COIN)

    def eth_getTransactionCount(self, head: Block, address: str, tag: str) -> str:
        block = self._at(head, tag)
        if block is None:
            raise Refusal(-32000, "unknown block")
        return hex(block.nonces.get(address.lower(), 0))

    def eth_estimateGas(self, head: Block, fields: dict[str, Any], tag: str) -> str:
        self.eth_call(head, fields, tag)
        return hex(GAS)

    def eth_call(self, head: Block, fields: dict[str, Any], tag: str) -> str:
        if "from" not in fields:
            return self._reference(fields)
        if int(fields["value"], 16) % 17 == REFUSED:
            raise Refusal(3, "execution reverted", "0x")
        return "0x"

    def eth_sendRawTransaction(self, head: Block, raw: str) -> str:
        signed = HexBytes(raw)
        fields = TypedTransaction.from_bytes(signed).as_dict()
        payment = Payment(
            hash=keccak(signed),
            sender=Account.recover_transaction(signed).lower(),
            nonce=int(fields["nonce"]),
            value=int(fields["value"]),
            max_fee=int(fields["maxFeePerGas"]),
            priority_fee=int(fields["maxPriorityFeePerGas"]),
            reverts=int(fields["value"]) % 17 == REVERTING,
        )
        refusal = self.world.accept(payment)
        if refusal is not None:
            raise Refusal(-32000, refusal)
        return "0x" + payment.hash.hex()

    def eth_getTransactionReceipt(self, head: Block, wanted: str) -> dict[str, Any] | None:
        for place in self.world.mined_in.get(bytes.fromhex(wanted[2:]), ()):
            block = self.world.blocks[place]
            if self.world.is_canonical(block, head):
                (payment,) = (each for each in block.payments if "0x" + each.hash.hex() == wanted)
                return {
                    "transactionHash": wanted,
                    "blockNumber": hex(block.number),
                    "blockHash": "0x" + block.hash.hex(),
                    "status": "0x0" if payment.reverts else "0x1",
                    "gasUsed": hex(GAS),
                    "effectiveGasPrice": hex(block.base_fee),
                    "logs": [],
                }
        return None

    def _at(self, head: Block, tag: str) -> Block | None:
        number = {"latest": head.number, "pending": head.number}.get(tag)
        number = int(tag, 16) if number is None else number
        return self.world.blocks[head.line[number]] if number <= head.number else None

    def _header(self, block: Block, full: bool) -> dict[str, Any]:
        header: dict[str, Any] = {
            "number": hex(block.number),
            "hash": "0x" + block.hash.hex(),
            "parentHash": "0x" + block.parent.hex(),
            "timestamp": hex(block.timestamp),
            "baseFeePerGas": hex(block.base_fee),
        }
        if full:
            header["transactions"] = [
                {"hash": "0x" + each.hash.hex(), "from": each.sender, "nonce": hex(each.nonce)}
                for each in block.payments
            ]
        return header

    def _logs(self, block: Block) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for digest, logs, _ in block.transactions():
            for log in logs:
                found.append(
                    {
                        "address": log.address,
                        "topics": list(log.topics),
                        "data": log.data,
                        "blockNumber": hex(block.number),
                        "blockHash": "0x" + block.hash.hex(),
                        "transactionHash": "0x" + digest.hex(),
                        "logIndex": hex(len(found)),
                    }
                )
        return found

    def _reference(self, fields: dict[str, Any]) -> str:
        for name, getter, other in REFERENCES:
            ours = fields["to"].lower() == self.deployment.address_of(name).lower()
            if ours and getter in functions(name) and fields["data"] == "0x" + functions(name)[getter].selector.hex():
                return "0x" + self.deployment.address_of(other)[2:].lower().rjust(64, "0")
        raise Refusal(-32000, "no such function")
