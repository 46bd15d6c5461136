"""Signed transactions until they are final: broadcast, watched, replaced, resent, with contiguous nonces."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from eth_utils.crypto import keccak
from prometheus_client import Counter

from protocol.amounts import WEI
from protocol.chain.reading.client import Chain
from protocol.chain.reverts import Reverted, decode_revert, reverted
from protocol.chain.rpc import RpcFault, RpcRequest
from protocol.chain.writing.calls import Call, pay_native
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.journal import BROADCAST, FAILED, FINAL, MINED, Attempt, Intent, Journal
from protocol.chain.writing.nonces import user_of_nonce
from protocol.chain.writing.receipts import Receipt, receipt_of
from protocol.chain.writing.simulation import fields_of, simulate
from protocol.errors import Rejected, Unavailable

SPENT = Counter("assize_gas_spent_coins", "Coin that mined transactions of this key paid for gas")


class Clock(Protocol):
    """A monotonic clock that can sleep, such as the ``time`` module."""

    def monotonic(self) -> float:
        """Returns seconds since an arbitrary moment."""

    def sleep(self, seconds: float, /) -> None:
        """Returns after this many seconds."""


class TransactionSigner(Protocol):
    """Signs transactions with one key, as the wallet does."""

    @property
    def address(self) -> str:
        """Checksummed address of the key."""

    def sign_transaction(self, transaction: dict[str, Any]) -> bytes:
        """Returns the raw signed transaction."""


class Pending:
    """The transactions of one key between its journal and the chain. Callers must synchronise threads."""

    def __init__(self, chain: Chain, signer: TransactionSigner, journal: Journal, fees: Fees, clock: Clock) -> None:
        self.chain, self.signer, self.journal, self.fees = chain, signer, journal, fees
        self.address = signer.address
        self._clock = clock
        self._pending_since: dict[bytes, float] = {}

    def reconcile(self) -> None:
        """Makes journal and chain agree: resends transactions that a reorganisation dropped, and pending ones.

        Raises:
            Unavailable: the RPC does not answer; nothing is lost.
        """
        self._look_back()
        self._press_all(self.journal.unfinished())
        self._fill_gaps()

    def missing(self) -> str:
        """Returns a sentence if the chain lacks final transactions, so that none can be mined; else an empty string."""
        final = self.journal.highest_final_nonce()
        if final is None or (used := self._mined_count()) > final:
            return ""
        return (
            f"the chain at {self.chain.rpc.url} has {used} transactions of {self.address}, of which {final + 1} were "
            "final: the RPC is far behind, or the chain dropped final blocks"
        )

    def _look_back(self) -> None:
        """Checks mined intents, which a reorganisation may drop until they are final."""
        mined = self.journal.mined()
        if not mined:
            return
        _, final = self.chain.head_and_final()
        for intent, receipt in zip(mined, self.receipts(mined), strict=True):
            if receipt is None:
                self.journal.mark(intent.key, BROADCAST)
            elif receipt.status != 1:  # in the block that replaced the one it was mined in
                with suppress(Rejected):
                    self.settle(intent, receipt)
            elif receipt.block_number <= final:
                self.journal.mark(intent.key, FINAL, block_number=receipt.block_number)

    def sign(self, key: str, call: Call, nonce: int, gas: int, max_fee: int, priority_fee: int) -> None:
        """Signs a transaction of an intent and records it in the journal."""
        transaction = {
            "type": 2,
            "chainId": self.chain.chain_id,
            "nonce": nonce,
            "value": call.value,
            "data": call.data,
            "gas": gas,
            "maxFeePerGas": max_fee,
            "maxPriorityFeePerGas": min(priority_fee, max_fee),
        }
        raw = self.signer.sign_transaction(transaction | ({"to": call.to} if call.to else {}))
        self.journal.sign(nonce, Attempt(keccak(raw), key, raw, gas, max_fee, priority_fee, time.time()))

    def broadcast(self, key: str) -> None:
        """Sends the newest transaction of an intent to the RPC; raises ``Unavailable`` if the RPC refuses it."""
        raw = self.journal.attempts(key)[-1].raw
        try:
            self.chain.rpc.call("eth_sendRawTransaction", "0x" + raw.hex())
        except RpcFault as fault:
            if not already_there(fault):
                raise Unavailable(f"the RPC refused the transaction: {fault.message}") from fault
        self.journal.mark(key, BROADCAST)

    def settle(self, intent: Intent, receipt: Receipt) -> Receipt:
        """Records that an intent is mined; raises ``Reverted`` if it reverted."""
        if intent.state not in (MINED, FINAL):
            SPENT.inc(receipt.fee / WEI)
        if receipt.status != 1:
            error = self._why_reverted(intent, receipt)
            self.journal.mark(intent.key, FAILED, failure=f"{intent.call.description} was mined but {error}")
            raise error
        if intent.state not in (MINED, FINAL):
            self.journal.mark(intent.key, MINED, block_number=receipt.block_number)
        return receipt

    def receipts(self, intents: Sequence[Intent]) -> list[Receipt | None]:
        """Returns, per intent, the receipt of the attempt that was mined, or None."""
        attempts = [attempt for intent in intents for attempt in self.journal.attempts(intent.key)]
        answers = self.chain.rpc.results(
            [RpcRequest("eth_getTransactionReceipt", ("0x" + attempt.tx_hash.hex(),)) for attempt in attempts]
        )
        found: dict[str, Receipt] = {}
        for attempt, answer in zip(attempts, answers, strict=True):
            if answer:
                found[attempt.key] = receipt_of(answer, self.chain)
        return [found.get(intent.key) for intent in intents]

    def _press_all(self, intents: Sequence[Intent]) -> None:
        """Broadcasts pending transactions again, oldest first, after a while with a higher bid.

        A failed intent is recorded in the journal, for the caller that waits for it, and does not stop the others.
        """
        waiting = []
        for intent, receipt in zip(intents, self.receipts(intents), strict=True):
            with suppress(Rejected):
                waiting += [intent] if receipt is None or not self.settle(intent, receipt) else []
        used = self._mined_count() if waiting else 0
        pressed = [intent for intent in waiting if (intent.nonce or 0) >= used or not self._lost_nonce(intent)]
        for intent in pressed:
            self._replace_if_stuck(intent)
        for intent in pressed:  # one by one: in a batch a node may accept later nonces first
            raw = self.journal.attempts(intent.key)[-1].raw
            (answer,) = self.chain.rpc.batch([RpcRequest("eth_sendRawTransaction", ("0x" + raw.hex(),))])
            if not isinstance(answer, RpcFault) or already_there(answer):
                self.journal.mark(intent.key, BROADCAST)

    def _mined_count(self) -> int:
        return int(self.chain.rpc.call("eth_getTransactionCount", self.address, "latest"), 16)

    def _lost_nonce(self, intent: Intent) -> bool:
        """Fails the intent if the chain shows a foreign transaction with its nonce."""
        assert intent.nonce is not None
        user = user_of_nonce(self.chain.rpc, self.address, intent.nonce)
        ours = {"0x" + attempt.tx_hash.hex() for attempt in self.journal.attempts(intent.key)}
        if user is None or user in ours:
            return False
        what = f"nonce {intent.nonce} was taken by another program with this key, in transaction {user}"
        self.journal.mark(intent.key, FAILED, failure=f"{intent.call.description} was not sent: {what}")
        return True

    def _replace_if_stuck(self, intent: Intent) -> None:
        assert intent.nonce is not None
        attempt, now = self.journal.attempts(intent.key)[-1], self._clock.monotonic()
        if now - self._pending_since.setdefault(attempt.tx_hash, now) <= self.fees.replace_seconds:
            return
        raised = self.fees.raised(attempt.max_fee, attempt.priority_fee)
        if raised is not None:
            self.sign(intent.key, intent.call, intent.nonce, attempt.gas, *raised)

    def _fill_gaps(self) -> None:
        """Fills nonces that no intent holds: another program took them in a block that a reorganisation dropped."""
        held = {intent.nonce for intent in self.journal.unfinished()}
        if not held:
            return
        for nonce in range(self._mined_count(), max(filter(None, held), default=0)):
            if nonce not in held and not self.journal.has_mined(nonce):
                filler, key = pay_native(self.address, 0), f"gap/{nonce}"
                simulation = simulate(self.chain, self.address, self.fees, filler)
                self.journal.plan(key, filler)
                self.sign(key, filler, nonce, simulation.gas, simulation.max_fee_per_gas, simulation.priority_fee)
                self.broadcast(key)

    def _why_reverted(self, intent: Intent, receipt: Receipt) -> Reverted:
        """Returns the cause of a revert by calling on the block before, which reproduces most of them."""
        try:
            self.chain.rpc.call("eth_call", fields_of(intent.call, self.address), hex(receipt.block_number - 1))
        except RpcFault as fault:
            return reverted(fault) or decode_revert(b"")
        return Reverted("", {}, "reverted: the chain moved between simulation and inclusion")


def already_there(fault: RpcFault) -> bool:
    """Returns true if the node has the transaction, or the chain has passed its nonce; the receipt decides which."""
    message = fault.message.lower()
    return any(sign in message for sign in ("already known", "already imported", "nonce too low"))
