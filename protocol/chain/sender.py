"""Transactions that are mined once or reported failed, whatever crashes in between.

One sender owns the nonces of one key. For each intent: simulate on the pending state, sign, write the signed bytes to
the journal, broadcast, wait. After a crash the same bytes are broadcast again: a transaction of the same hash and nonce
cannot take effect twice. Fees are EIP-1559 under a cap; what stays pending is replaced at a higher fee within that cap.
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
from protocol.chain.calls import Call
from protocol.chain.client import Chain
from protocol.chain.journal import FAILED, MINED, Attempt, Intent, Journal
from protocol.chain.key_lock import hold_key
from protocol.chain.receipts import Receipt, receipt_of
from protocol.chain.reverts import Reverted, decode_revert, reverted
from protocol.chain.rpc import Request, RpcFault
from protocol.errors import Misconfigured, Rejected, Unavailable

GAS_MARGIN_PERCENT = 25
"""Added to the estimate: state may move between estimate and inclusion."""

BUMP_PERCENT = 15
"""Added to both fees of a replacement; nodes ask for 10 at least."""

REORG_DEPTH = 64
"""Blocks within which a mined transaction may be undone, and is watched for at start."""

GWEI = 10**9


@dataclass(frozen=True, slots=True)
class Fees:
    """How a sender bids, in wei per gas and seconds.

    Args:
        cap: never bid more than this.
        priority: tip to the block's producer.
        resend_seconds: broadcast the same bytes again after this long without being mined.
        replace_seconds: sign a replacement at higher fees after this long.
    """

    cap: int = 200 * GWEI
    priority: int = GWEI
    resend_seconds: float = 3.0
    replace_seconds: float = 45.0


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
    ) -> None:
        self.chain = chain
        self.signer = signer
        self.fees = fees or Fees()
        self._poll_seconds = poll_seconds
        self._wait_seconds = wait_seconds
        self._lock = hold_key(Path(journal_path), signer.address)
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
        bid = self._bid(block_of(header).base_fee)
        self._afford(call.value + limit * bid, int(balance, 16))
        return Simulation(call.description, limit, bid, bytes.fromhex(returned[2:]), int(mined, 16))

    def _afford(self, need: int, have: int) -> None:
        if have < need:
            raise Misconfigured(
                f"{self.address} has {have} wei of the chain's coin and may need {need} for gas: send it some"
            )

    def reconcile(self) -> None:
        """Makes journal and chain agree: what was signed is broadcast again, what a reorganisation undid as well."""
        with self._guard:
            undone_from = max(0, self.chain.head().number - REORG_DEPTH)
            for intent in self._journal.mined_from(undone_from):
                if self._receipt(intent.key) is None:
                    self._journal.mark_broadcast(intent.key)
            self._press_all(self._journal.unfinished())

    def unfinished(self) -> list[Intent]:
        """Intents signed or broadcast and not mined."""
        with self._guard:
            return self._journal.unfinished()

    def close(self) -> None:
        """Closes the journal and lets another process send for this key."""
        self._journal.close()
        os.close(self._lock)

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
        self._sign(
            key,
            call,
            self._next_nonce(simulation.mined),
            simulation.gas,
            simulation.max_fee_per_gas,
            self.fees.priority,
        )
        self._broadcast(key)

    def _next_nonce(self, mined: int) -> int:
        """Contiguous: one after the newest in flight, else the first the chain has not seen."""
        in_flight = self._journal.highest_nonce()
        return mined if in_flight is None else max(mined, in_flight + 1)

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

    def _bid(self, base_fee: int) -> int:
        """Twice the base fee and the tip: enough for six full blocks in a row, within the cap."""
        if base_fee + self.fees.priority > self.fees.cap:
            raise Unavailable(
                f"underpriced: gas costs {base_fee + self.fees.priority} wei now, the cap is {self.fees.cap}; "
                "wait, or raise the cap"
            )
        return min(2 * base_fee + self.fees.priority, self.fees.cap)

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
                raise Unavailable(f"the RPC does not take the transaction: {fault.message}") from fault
        self._journal.mark_broadcast(key)

    def _wait(self, key: str) -> Receipt:
        started = resent = time.monotonic()
        while True:
            with self._guard:
                intent = self._journal.intent(key)
                assert intent is not None
                receipt = self._settle(intent)
            if receipt is not None:
                return receipt
            now = time.monotonic()
            if now - started > self._wait_seconds:
                raise Unavailable(
                    f"{intent.call.description} is not mined after {self._wait_seconds:.0f} s; it stays pending"
                )
            if now - resent > self.fees.resend_seconds:
                resent = now
                with self._guard:
                    self._press_all(self._journal.unfinished())
            time.sleep(self._poll_seconds)

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
        if intent.state != MINED:
            self._journal.mark_mined(intent.key, receipt.block_number)
        return receipt

    def _receipt(self, key: str) -> Receipt | None:
        attempts = self._journal.attempts(key)
        answers = self.chain.rpc.batch(
            [Request("eth_getTransactionReceipt", ("0x" + a.tx_hash.hex(),)) for a in attempts]
        )
        for answer in answers:
            if isinstance(answer, RpcFault):
                raise answer
            if answer:
                return receipt_of(answer, self.chain)
        return None

    def _press_all(self, intents: Sequence[Intent]) -> None:
        """Gets what is pending moving, oldest first, since a nonce waits for those before it.

        One intent's failure is in the journal for whoever asks for that intent, and must not stop the others.
        """
        for intent in intents:
            try:
                if self._settle(intent) is None and not self._lost_nonce(intent):
                    self._press(intent)
            except Rejected:
                continue

    def _press(self, intent: Intent) -> None:
        """The same bytes again, or after a while a higher bid."""
        attempt = self._journal.attempts(intent.key)[-1]
        if time.time() - attempt.signed_at > self.fees.replace_seconds:
            self._replace(intent, attempt)
        self._broadcast(intent.key)

    def _lost_nonce(self, intent: Intent) -> bool:
        """Fails the intent where the chain has used its nonce for something else."""
        mined = int(self.chain.rpc.call("eth_getTransactionCount", self.address, "latest"), 16)
        if intent.nonce is None or mined <= intent.nonce or self._receipt(intent.key) is not None:
            return False
        what = f"nonce {intent.nonce} was taken by another program with this key"
        self._journal.mark_failed(intent.key, f"{intent.call.description} was not sent: {what}")
        return True

    def _replace(self, intent: Intent, attempt: Attempt) -> None:
        assert intent.nonce is not None
        max_fee = attempt.max_fee * (100 + BUMP_PERCENT) // 100 + 1
        if max_fee <= self.fees.cap:
            priority = attempt.priority_fee * (100 + BUMP_PERCENT) // 100 + 1
            self._sign(intent.key, intent.call, intent.nonce, attempt.gas, max_fee, priority)

    def _why_reverted(self, intent: Intent, receipt: Receipt) -> Reverted:
        """The same call on the block before says why, in most cases."""
        try:
            self.chain.rpc.call("eth_call", self._fields(intent.call), hex(receipt.block_number - 1))
        except RpcFault as fault:
            return reverted(fault) or decode_revert(b"")
        return Reverted("", {}, "reverted: the chain moved between simulation and inclusion")


def _identity(chain: Chain, address: str) -> str:
    """Whose journal it is: a chain started anew under the same id must not inherit the old one's."""
    return f"{address} on chain {chain.chain_id} from 0x{chain.deployment.start_hash.hex()[:16]}"


def _already_there(fault: RpcFault) -> bool:
    """The node holds this transaction, or the chain has gone past its nonce: a receipt, or its lack, will tell."""
    message = fault.message.lower()
    return any(sign in message for sign in ("already known", "already imported", "nonce too low"))
