"""What was signed, until it is final: broadcast, watched, replaced, sent again, and its nonces kept without a gap."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from eth_utils.crypto import keccak

from protocol.chain.reading.client import Chain
from protocol.chain.reverts import Reverted, decode_revert, reverted
from protocol.chain.rpc import RpcFault, RpcRequest
from protocol.chain.writing.calls import Call, pay_native
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.journal import FINAL, MINED, Attempt, Intent, Journal
from protocol.chain.writing.nonces import user_of_nonce
from protocol.chain.writing.receipts import Receipt, receipt_of
from protocol.chain.writing.simulation import fields_of, simulate
from protocol.errors import Rejected, Unavailable


class Clock(Protocol):
    """Seconds that only go forward, and a way to let some pass. The ``time`` module is one."""

    def monotonic(self) -> float:
        """Seconds since some moment."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Returns when so many have passed."""
        ...


class TransactionSigner(Protocol):
    """Whoever holds the key. The wallet implements it."""

    @property
    def address(self) -> str:
        """Checksummed address of the key."""
        ...

    def sign_transaction(self, transaction: dict[str, Any]) -> bytes:
        """The raw signed transaction, ready to broadcast."""
        ...


class Pending:
    """The transactions of one key between its journal and the chain. Its caller keeps threads apart."""

    def __init__(self, chain: Chain, signer: TransactionSigner, journal: Journal, fees: Fees, clock: Clock) -> None:
        self.chain, self.signer, self.journal, self.fees = chain, signer, journal, fees
        self.address = signer.address
        self._clock = clock
        self._pending_since: dict[bytes, float] = {}

    def reconcile(self) -> None:
        """Makes journal and chain agree: what a reorganisation undid is sent again, and what is pending is pressed.

        Raises:
            Unavailable: the RPC does not answer; nothing is lost.
        """
        self._look_back()
        self._press_all(self.journal.unfinished())
        self._fill_gaps()

    def missing(self) -> str:
        """In a sentence, that the chain lacks what was final, so that nothing can be mined; empty where it does not."""
        final = self.journal.highest_final_nonce()
        if final is None or (used := self._mined_count()) > final:
            return ""
        return (
            f"the chain at {self.chain.rpc.url} has {used} transactions of {self.address}, of which {final + 1} were "
            "final: that RPC is far behind, or the chain went back on finality"
        )

    def _look_back(self) -> None:
        """What is mined may be undone until it is final, however long nobody looked."""
        mined = self.journal.mined()
        if not mined:
            return
        _, final = self.chain.head_and_final()
        for intent, receipt in zip(mined, self.receipts(mined), strict=True):
            if receipt is None:
                self.journal.mark_broadcast(intent.key)
            elif receipt.status != 1:  # in the block that took the place of the one it was mined in
                with suppress(Rejected):
                    self.settle(intent, receipt)
            elif receipt.block_number <= final:
                self.journal.mark_final(intent.key, receipt.block_number)

    def sign(self, key: str, call: Call, nonce: int, gas: int, max_fee: int, priority_fee: int) -> None:
        """Signs a transaction of an intent, and has it in the journal before anybody sees it."""
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
        """Hands the newest transaction of an intent to the RPC; ``Unavailable`` where it does not take it."""
        raw = self.journal.attempts(key)[-1].raw
        try:
            self.chain.rpc.call("eth_sendRawTransaction", "0x" + raw.hex())
        except RpcFault as fault:
            if not _already_there(fault):
                raise Unavailable(f"the RPC does not take the transaction: {fault.message}") from fault
        self.journal.mark_broadcast(key)

    def settle(self, intent: Intent, receipt: Receipt) -> Receipt:
        """Notes that an intent is mined; raises where it reverted."""
        if receipt.status != 1:
            error = self._why_reverted(intent, receipt)
            self.journal.mark_failed(intent.key, f"{intent.call.description} was mined but {error}")
            raise error
        if intent.state not in (MINED, FINAL):
            self.journal.mark_mined(intent.key, receipt.block_number)
        return receipt

    def receipts(self, intents: Sequence[Intent]) -> list[Receipt | None]:
        """Of each intent, that of whichever of its transactions was mined."""
        attempts = [attempt for intent in intents for attempt in self.journal.attempts(intent.key)]
        answers = self.chain.rpc.batch(
            [RpcRequest("eth_getTransactionReceipt", ("0x" + attempt.tx_hash.hex(),)) for attempt in attempts]
        )
        found: dict[str, Receipt] = {}
        for attempt, answer in zip(attempts, answers, strict=True):
            if isinstance(answer, RpcFault):
                raise answer
            if answer:
                found[attempt.key] = receipt_of(answer, self.chain)
        return [found.get(intent.key) for intent in intents]

    def _press_all(self, intents: Sequence[Intent]) -> None:
        """Gets what is pending moving, oldest first: the same bytes again, or after a while a higher bid.

        One intent's failure is in the journal for whoever asks for that intent, and must not stop the others.
        """
        waiting = []
        for intent, receipt in zip(intents, self.receipts(intents), strict=True):
            with suppress(Rejected):
                waiting += [intent] if receipt is None or not self.settle(intent, receipt) else []
        used = self._mined_count() if waiting else 0
        pressed = [intent for intent in waiting if (intent.nonce or 0) >= used or not self._lost_nonce(intent)]
        for intent in pressed:
            self._replace_if_stuck(intent)
        for intent in pressed:  # one by one: of many at once a node may take the later nonces first
            raw = self.journal.attempts(intent.key)[-1].raw
            (answer,) = self.chain.rpc.batch([RpcRequest("eth_sendRawTransaction", ("0x" + raw.hex(),))])
            if not isinstance(answer, RpcFault) or _already_there(answer):
                self.journal.mark_broadcast(intent.key)

    def _mined_count(self) -> int:
        return int(self.chain.rpc.call("eth_getTransactionCount", self.address, "latest"), 16)

    def _lost_nonce(self, intent: Intent) -> bool:
        """Fails the intent where the chain shows a transaction that is not ours with its nonce."""
        assert intent.nonce is not None
        user = user_of_nonce(self.chain.rpc, self.address, intent.nonce)
        ours = {"0x" + attempt.tx_hash.hex() for attempt in self.journal.attempts(intent.key)}
        if user is None or user in ours:
            return False
        what = f"nonce {intent.nonce} was taken by another program with this key, in transaction {user}"
        self.journal.mark_failed(intent.key, f"{intent.call.description} was not sent: {what}")
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
        """Uses nonces that nothing of ours holds: one another program took, in a block that was undone."""
        held = {intent.nonce for intent in self.journal.unfinished()}
        if not held:
            return
        for nonce in range(self._mined_count(), max(filter(None, held), default=0)):
            if nonce not in held and not self.journal.has_mined(nonce):
                filler, key = pay_native(self.address, 0), f"gap/{nonce}"
                simulation = simulate(self.chain, self.address, self.fees, filler)
                self.journal.plan(key, filler)
                self.sign(key, filler, nonce, simulation.gas, simulation.max_fee_per_gas, self.fees.priority)
                self.broadcast(key)

    def _why_reverted(self, intent: Intent, receipt: Receipt) -> Reverted:
        """The same call on the block before says why, in most cases."""
        try:
            self.chain.rpc.call("eth_call", fields_of(intent.call, self.address), hex(receipt.block_number - 1))
        except RpcFault as fault:
            return reverted(fault) or decode_revert(b"")
        return Reverted("", {}, "reverted: the chain moved between simulation and inclusion")


def _already_there(fault: RpcFault) -> bool:
    """The node holds this transaction, or the chain has gone past its nonce: a receipt, or its lack, will tell."""
    message = fault.message.lower()
    return any(sign in message for sign in ("already known", "already imported", "nonce too low"))
