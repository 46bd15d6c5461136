"""Transactions that are mined once or reported failed, whatever crashes in between.

One sender owns the nonces of one key. For each intent: simulate on the pending state, sign, write the signed bytes to
the journal, broadcast, wait. After a crash the same bytes are broadcast again: a transaction of the same hash and nonce
cannot take effect twice. What stays pending is replaced at a higher fee; what a reorganisation undoes is sent again,
until it is final; a nonce that nothing of ours holds any more is filled, since those after it wait for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from eth_utils.crypto import keccak

from protocol.chain.block import block_of
from protocol.chain.calls import Call, pay_native
from protocol.chain.client import Chain
from protocol.chain.fees import Fees
from protocol.chain.journal import FAILED, FINAL, MINED, Attempt, Intent, Journal
from protocol.chain.key_lock import hold_key
from protocol.chain.nonces import user_of_nonce
from protocol.chain.receipts import Receipt, receipt_of
from protocol.chain.reverts import Reverted, decode_revert, reverted
from protocol.chain.rpc import Request, RpcFault
from protocol.errors import Misconfigured, Rejected, Unavailable

GAS_MARGIN_PERCENT = 25
"""Added to the estimate: state may move between estimate and inclusion."""


class Clock(Protocol):
    """Seconds that only go forward, and a way to let some pass. The ``time`` module is one."""

    def monotonic(self) -> float:
        """Seconds since some moment."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Returns when so many have passed."""
        ...


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a call would do now: the call in words, the gas limit it would get, its bid in wei per gas, what it returns,
    and how many transactions of the sender are mined."""

    description: str
    gas: int
    max_fee_per_gas: int
    returned: bytes
    mined: int

    @property
    def max_cost(self) -> int:
        """Wei the transaction can cost at most."""
        return self.gas * self.max_fee_per_gas


class TransactionSigner(Protocol):
    """Whoever holds the key. The wallet implements it."""

    @property
    def address(self) -> str:
        """Checksummed address of the key."""
        ...

    def sign_transaction(self, transaction: dict[str, Any]) -> bytes:
        """The raw signed transaction, ready to broadcast."""
        ...


class Sender:
    """Sends the transactions of one key, in one process at a time. Safe to share between threads.

    Args:
        chain: where to.
        signer: whose.
        journal_path: the sqlite journal; a lock file for the key lies beside it.
        fees: how to bid.
        poll_seconds: pause between looks for a receipt.
        wait_seconds: after this long without a receipt ``Unavailable`` is raised; the intent stays in the journal.
        clock: what time goes by.

    Raises:
        Misconfigured: another process sends for this key, or the journal cannot be written.
    """

    def __init__(
        self,
        chain: Chain,
        signer: TransactionSigner,
        journal_path: Path,
        fees: Fees | None = None,
        poll_seconds: float = 0.025,
        wait_seconds: float = 120.0,
        clock: Clock = time,
    ) -> None:
        self.chain = chain
        self.signer = signer
        self.fees = fees or Fees()
        self._poll_seconds = poll_seconds
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._pending_since: dict[bytes, float] = {}
        self._tended = clock.monotonic()
        self._lock = hold_key(_identity(chain, signer.address))
        self._guard = threading.RLock()
        try:
            self._journal = Journal(Path(journal_path), _identity(chain, signer.address))
            self.reconcile()
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def address(self) -> str:
        """Whose transactions these are."""
        return self.signer.address

    def send(self, key: str, call: Call) -> Receipt:
        """Makes ``call`` happen once, and returns its receipt; the same key again returns the same receipt.

        Raises:
            Reverted: the contract refuses it (nothing was sent), or it was mined and reverted.
            Rejected: the key was used for another call, or its nonce was taken by another program.
            Unavailable: no RPC, fees above the cap, or not mined in time; calling again goes on where it stopped.
        """
        return self.send_many([(key, call)])[0]

    def send_many(self, intents: Sequence[tuple[str, Call]]) -> list[Receipt]:
        """Broadcasts all, then waits for all; each as in ``send``. An intent refused stops those after it."""
        for key, call in intents:
            self._begin(key, call)
        return [self._wait(key) for key, _ in intents]

    def simulate(self, call: Call) -> Simulation:
        """What the call would do on the pending state; sends nothing.

        Raises:
            Reverted: the contract refuses it.
        """
        fields = self._fields(call)
        answers = self.chain.rpc.batch(
            [
                Request("eth_call", (fields, "pending")),
                Request("eth_estimateGas", (fields, "pending")),
                Request("eth_getBlockByNumber", ("latest", False)),
                Request("eth_getBalance", (self.address, "pending")),
                Request("eth_getTransactionCount", (self.address, "latest")),
            ]
        )
        for answer in answers:
            if isinstance(answer, RpcFault):
                raise reverted(answer) or answer
        returned, gas, header, balance, mined = answers
        limit = max(int(gas, 16) * (100 + GAS_MARGIN_PERCENT) // 100, call.least_gas)
        bid = self.fees.bid(block_of(header).base_fee)
        self._afford(call.value + limit * bid, int(balance, 16))
        return Simulation(call.description, limit, bid, bytes.fromhex(returned[2:]), int(mined, 16))

    def _afford(self, need: int, have: int) -> None:
        if have < need:
            raise Misconfigured(
                f"{self.address} has {have} wei of the chain's coin and may need {need} for gas: send it some"
            )

    def reconcile(self) -> None:
        """Makes journal and chain agree: what a reorganisation undid is sent again, and what is pending is pressed.

        Raises:
            Unavailable: the RPC does not answer; nothing is lost.
        """
        with self._guard:
            self._tended = self._clock.monotonic()
            self._look_back()
            self._press_all(self._journal.unfinished())
            self._fill_gaps()

    def tend(self) -> None:
        """``reconcile``, where anything is pending or may yet be undone, and some seconds have passed since the last.

        A daemon calls this in every tick: what it has sent is watched until it is final.
        """
        with self._guard:
            due = self._clock.monotonic() - self._tended > self.fees.resend_seconds
            if due and self._journal.watched():
                self.reconcile()

    def unfinished(self) -> list[Intent]:
        """Intents signed or broadcast and not mined."""
        with self._guard:
            return self._journal.unfinished()

    def close(self) -> None:
        """Closes the journal and lets another process send for this key."""
        self._journal.close()
        os.close(self._lock)

    def _look_back(self) -> None:
        """What is mined may be undone until it is final, however long nobody looked."""
        mined = self._journal.mined()
        if not mined:
            return
        _, final = self.chain.head_and_final()
        for intent, receipt in zip(mined, self._receipts(mined), strict=True):
            if receipt is None:
                self._journal.mark_broadcast(intent.key)
            elif receipt.block_number <= final:
                self._journal.mark_final(intent.key, receipt.block_number)

    # Before the chain hears of it

    def _begin(self, key: str, call: Call) -> None:
        with self._guard:
            intent = self._journal.intent(key)
            if intent is not None and intent.call.data + intent.call.to.encode() != call.data + call.to.encode():
                raise Rejected(f"the journal has {key!r} as {intent.call.description}, not as {call.description}")
            if intent is None or intent.nonce is None:
                self._start(key, call)

    def _start(self, key: str, call: Call) -> None:
        self._journal.plan(key, call)
        try:
            simulation = self.simulate(call)
        except Exception:
            self._journal.drop(key)
            raise
        nonce = self._next_nonce(simulation.mined)
        self._sign(key, call, nonce, simulation.gas, simulation.max_fee_per_gas, self.fees.priority)
        self._broadcast(key)

    def _next_nonce(self, mined: int) -> int:
        """Contiguous: one after the newest of ours, or the first the chain has not seen.

        The chain may show fewer than ours: an endpoint lags, or a reorganisation undid some, which are sent again.
        """
        newest = self._journal.highest_nonce()
        return mined if newest is None else max(mined, newest + 1)

    def _sign(self, key: str, call: Call, nonce: int, gas: int, max_fee: int, priority_fee: int) -> None:
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
        self._journal.sign(nonce, Attempt(keccak(raw), key, raw, gas, max_fee, priority_fee, time.time()))

    def _fields(self, call: Call) -> dict[str, Any]:
        fields = {"from": self.address, "data": "0x" + call.data.hex(), "value": hex(call.value)}
        return fields | ({"to": call.to} if call.to else {})

    # After

    def _broadcast(self, key: str) -> None:
        raw = self._journal.attempts(key)[-1].raw
        try:
            self.chain.rpc.call("eth_sendRawTransaction", "0x" + raw.hex())
        except RpcFault as fault:
            if not _already_there(fault):
                raise _NotTaken(f"the RPC does not take the transaction: {fault.message}") from fault
        self._journal.mark_broadcast(key)

    def _wait(self, key: str) -> Receipt:
        started = self._clock.monotonic()
        while True:
            with self._guard:
                intent = self._journal.intent(key)
                assert intent is not None
                receipt = self._settle(intent)
            if receipt is not None:
                return receipt
            now = self._clock.monotonic()
            if now - started > self._wait_seconds:
                raise Unavailable(self._why_pending(intent))
            if now - self._tended > self.fees.resend_seconds:
                self.reconcile()
            self._clock.sleep(self._poll_seconds)

    def _why_pending(self, intent: Intent) -> str:
        bid, base_fee = self._journal.attempts(intent.key)[-1].max_fee, self.chain.head().base_fee
        why = f"; underpriced: it bids {bid} wei, gas costs {base_fee}, the cap is {self.fees.cap}" * (bid < base_fee)
        return f"{intent.call.description} is not mined after {self._wait_seconds:.0f} s; it stays pending{why}"

    def _settle(self, intent: Intent) -> Receipt | None:
        """The receipt, if there is one; raises where the intent has failed."""
        if intent.state == FAILED:
            raise Rejected(str(intent.failure))
        receipt = self._receipt(intent.key)
        if receipt is None:
            return None
        if receipt.status != 1:
            error = self._why_reverted(intent, receipt)
            self._journal.mark_failed(intent.key, f"{intent.call.description} was mined but {error}")
            raise error
        if intent.state not in (MINED, FINAL):
            self._journal.mark_mined(intent.key, receipt.block_number)
        return receipt

    def _receipt(self, key: str) -> Receipt | None:
        intent = self._journal.intent(key)
        return None if intent is None else self._receipts([intent])[0]

    def _receipts(self, intents: Sequence[Intent]) -> list[Receipt | None]:
        """Of each intent, that of whichever of its transactions was mined."""
        attempts = [attempt for intent in intents for attempt in self._journal.attempts(intent.key)]
        answers = self.chain.rpc.batch(
            [Request("eth_getTransactionReceipt", ("0x" + attempt.tx_hash.hex(),)) for attempt in attempts]
        )
        found: dict[str, Receipt] = {}
        for attempt, answer in zip(attempts, answers, strict=True):
            if isinstance(answer, RpcFault):
                raise answer
            if answer:
                found[attempt.key] = receipt_of(answer, self.chain)
        return [found.get(intent.key) for intent in intents]

    def _press_all(self, intents: Sequence[Intent]) -> None:
        """Gets what is pending moving, oldest first, since a nonce waits for those before it.

        One intent's failure is in the journal for whoever asks for that intent, and must not stop the others.
        """
        for intent in intents:
            try:
                if self._settle(intent) is None and not self._lost_nonce(intent):
                    self._press(intent)
            except (Rejected, _NotTaken):
                continue

    def _press(self, intent: Intent) -> None:
        """The same bytes again, or after a while a higher bid."""
        attempt = self._journal.attempts(intent.key)[-1]
        since = self._pending_since.setdefault(attempt.tx_hash, self._clock.monotonic())
        if self._clock.monotonic() - since > self.fees.replace_seconds:
            self._replace(intent, attempt)
        self._broadcast(intent.key)

    def _lost_nonce(self, intent: Intent) -> bool:
        """Fails the intent where the chain shows a transaction that is not ours with its nonce."""
        assert intent.nonce is not None
        user = user_of_nonce(self.chain.rpc, self.address, intent.nonce)
        ours = {"0x" + attempt.tx_hash.hex() for attempt in self._journal.attempts(intent.key)}
        if user is None or user in ours or self._receipt(intent.key) is not None:
            return False
        what = f"nonce {intent.nonce} was taken by another program with this key, in transaction {user}"
        self._journal.mark_failed(intent.key, f"{intent.call.description} was not sent: {what}")
        return True

    def _replace(self, intent: Intent, attempt: Attempt) -> None:
        assert intent.nonce is not None
        raised = self.fees.raised(attempt.max_fee, attempt.priority_fee)
        if raised is not None:
            self._sign(intent.key, intent.call, intent.nonce, attempt.gas, *raised)

    def _fill_gaps(self) -> None:
        """Uses nonces that nothing of ours holds: one another program took, in a block that was undone."""
        held = {intent.nonce for intent in self._journal.unfinished()}
        if not held:
            return
        mined = int(self.chain.rpc.call("eth_getTransactionCount", self.address, "latest"), 16)
        for nonce in range(mined, max(filter(None, held), default=0)):
            if nonce not in held and not self._journal.has_mined(nonce):
                filler, key = pay_native(self.address, 0), f"gap/{nonce}"
                simulation = self.simulate(filler)
                self._journal.plan(key, filler)
                self._sign(key, filler, nonce, simulation.gas, simulation.max_fee_per_gas, self.fees.priority)
                self._broadcast(key)

    def _why_reverted(self, intent: Intent, receipt: Receipt) -> Reverted:
        """The same call on the block before says why, in most cases."""
        try:
            self.chain.rpc.call("eth_call", self._fields(intent.call), hex(receipt.block_number - 1))
        except RpcFault as fault:
            return reverted(fault) or decode_revert(b"")
        return Reverted("", {}, "reverted: the chain moved between simulation and inclusion")


class _NotTaken(Unavailable):
    """An RPC refuses a transaction for what it is, not for how things stand."""


def _identity(chain: Chain, address: str) -> str:
    """Whose journal it is: a chain started anew under the same id must not inherit the old one's."""
    return f"{address} on chain {chain.chain_id} from 0x{chain.deployment.start_hash.hex()[:16]}"


def _already_there(fault: RpcFault) -> bool:
    """The node holds this transaction, or the chain has gone past its nonce: a receipt, or its lack, will tell."""
    message = fault.message.lower()
    return any(sign in message for sign in ("already known", "already imported", "nonce too low"))
