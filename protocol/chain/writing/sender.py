"""Transactions that are mined once or reported failed, whatever crashes in between.

One sender owns the nonces of one key. For each intent it simulates on the pending state, signs, writes the signed bytes
to the journal, broadcasts and waits. After a crash the same bytes are broadcast again: a transaction of the same hash
and nonce cannot take effect twice. Stuck transactions are replaced at a higher fee, transactions that a reorganisation
dropped are sent again until they are final, and a nonce that no intent holds any more is filled, since later ones wait
for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import structlog
from eth_utils.crypto import keccak
from prometheus_client import Gauge

from protocol.chain.reading.client import Chain
from protocol.chain.writing.account import Account
from protocol.chain.writing.calls import Call
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.journal import FAILED, Intent, Journal
from protocol.chain.writing.key_lock import lock_key
from protocol.chain.writing.pending import Clock, Pending, TransactionSigner
from protocol.chain.writing.progress import progress_of
from protocol.chain.writing.receipts import Receipt, pause_after
from protocol.chain.writing.simulation import Simulation, simulate
from protocol.errors import Rejected, Unavailable

OUTAGE_SECONDS = 5.0
"""An RPC endpoint that stays silent this long while a receipt is awaited counts as unavailable."""

PENDING = Gauge("assize_sender_pending_intents", "Intents whose transactions are signed and not mined")
OLDEST = Gauge(
    "assize_sender_oldest_pending_timestamp_seconds", "When the oldest pending intent was signed first; 0 without any"
)
SHOWN_SECONDS = 1.0
"""Shortest time between two looks at the journal for these while nothing is known to have changed."""

log = structlog.get_logger()


class IntentFailed(Rejected):
    """The intent under this key failed for good: its transaction reverted, or another program took its nonce."""


def key_of(name: str, call: Call, failures: int = 0) -> str:
    """Returns the journal key of the attempt at ``call`` under ``name`` that follows so many failed ones."""
    key = f"{name}/{keccak(call.to.encode() + call.data).hex()[:16]}"
    return f"{key}/{failures}" if failures else key


class Sender(Account):
    """Sends the transactions of one key, in one process at a time. Safe to share between threads.

    Args:
        chain: the deployment to send to.
        signer: the key to send with.
        journal_path: the SQLite journal.
        fees: the bidding rules; None takes the defaults.
        poll_seconds: shortest pause between requests for a receipt; see ``pause_after``.
        wait_seconds: longest wait for a receipt before ``Unavailable``; the intent stays in the journal.
        clock: the source of time.
        resumes: whether what an earlier process left unfinished is sent again at once.

    Raises:
        Misconfigured: another process sends for this key, or the journal cannot be written.
    """

    signing_seconds = 3600

    left: tuple[Intent, ...]
    """The intents that an earlier process left unfinished."""

    def __init__(
        self,
        chain: Chain,
        signer: TransactionSigner,
        journal_path: Path,
        fees: Fees | None = None,
        poll_seconds: float = 0.025,
        wait_seconds: float = 120.0,
        clock: Clock = time,
        resumes: bool = True,
    ) -> None:
        super().__init__(chain, signer.address, fees)
        self.signer = signer
        self._poll_seconds = poll_seconds
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._tended = clock.monotonic()
        self._shown = -SHOWN_SECONDS
        self._lock = lock_key(self.identity)
        self._guard = threading.RLock()
        try:
            self._journal = Journal(Path(journal_path), self.identity)
            self._pending = Pending(chain, signer, self._journal, self.fees, clock)
            self.left = tuple(self._journal.unfinished())
            if resumes:
                self.reconcile()
        except BaseException:
            self._lock.close()
            raise

    def send(self, name: str, call: Call) -> Receipt:
        """Makes ``call`` happen once under ``name`` and returns its receipt; repeating it returns the same receipt.

        An earlier attempt that failed for good is retried under a new key. Another call under the same name is another
        intent: after a reorganisation another round may have the same number.

        Raises:
            Reverted: the contract refuses the call (nothing was sent), or it was mined and reverted.
            Unavailable: no RPC, fees above the cap, or not mined in time; calling again continues where it stopped.
        """
        while True:
            try:
                return self.send_once(self._unfailed_key(name, call), call)
            except IntentFailed as failure:
                log.warning("sent_anew", call=call.description, why=str(failure))

    def send_once(self, key: str, call: Call) -> Receipt:
        """Makes ``call`` happen at most once: the key stands for this call alone, and a failure is final.

        Raises:
            Rejected: the key was used for another call.
            IntentFailed: an earlier attempt under this key failed, or another program took its nonce.
            Reverted, Unavailable: see ``send``.
        """
        return self.send_many([(key, call)])[0]

    def send_many(self, intents: Sequence[tuple[str, Call]]) -> list[Receipt]:
        """Broadcasts all, then waits for all, each as in ``send_once``. A refused intent stops those after it."""
        for key, call in intents:
            self._begin(key, call)
        try:
            return self._wait([key for key, _ in intents])
        finally:
            with self._guard:  # a loop that now works for an hour looks at nothing meanwhile
                self._show(anew=True)

    def simulate(self, call: Call) -> Simulation:
        """Simulates the call on the pending state; raises as ``simulation.simulate`` does."""
        return simulate(self.chain, self.address, self.fees, call)

    def reconcile(self) -> None:
        """Makes journal and chain agree; raises ``Unavailable`` if the RPC does not answer, and nothing is lost."""
        with self._guard:
            self._tended = self._clock.monotonic()
            self._pending.reconcile()
            self._show(anew=True)

    def tend(self) -> None:
        """Reconciles every few seconds while any intent is pending or not final.

        A daemon calls this in every tick, so that its transactions are watched until they are final.
        """
        with self._guard:
            self._show()
            due = self._clock.monotonic() - self._tended > self.fees.resend_seconds
            if due and self._journal.watched():
                self.reconcile()

    def unfinished(self) -> list[Intent]:
        """Returns the intents signed or broadcast and not mined."""
        with self._guard:
            return self._journal.unfinished()

    def newest_block(self) -> int:
        """Returns the newest block in which one of the intents was mined, which decisions must not look behind."""
        with self._guard:
            return self._journal.newest_block()

    def progress(self, key: str) -> str | None:
        """Returns a clause that says how far the intent of this key came, or None if nothing was signed for it."""
        with self._guard:
            intent = self._journal.intent(key)
            if intent is None or intent.nonce is None:
                return None
            return progress_of(self.chain, intent, self._journal.attempts(key))

    def close(self) -> None:
        """Closes the journal and releases the lock on the key; what is pending is another process's to watch."""
        PENDING.set(0)
        OLDEST.set(0)
        self._journal.close()
        self._lock.close()

    # Before the broadcast

    def _unfailed_key(self, name: str, call: Call) -> str:
        keys = (key_of(name, call, failures) for failures in count())
        with self._guard:
            return next(key for key in keys if not (known := self._journal.intent(key)) or known.state != FAILED)

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
        self._pending.sign(key, call, nonce, simulation.gas, simulation.max_fee_per_gas, simulation.priority_fee)
        self._pending.broadcast(key)

    def _next_nonce(self, mined: int) -> int:
        """Returns the nonce after our newest, or the first that the chain has not seen.

        The chain may show fewer than ours if an endpoint lags, or a reorganisation dropped some, which are sent again.
        """
        newest = self._journal.highest_nonce()
        return mined if newest is None else max(mined, newest + 1)

    def _show(self, anew: bool = False) -> None:
        """Shows to who watches what is pending; one who cannot be told misses it."""
        now = self._clock.monotonic()
        if now - self._shown < SHOWN_SECONDS and not anew:
            return
        self._shown = now
        with suppress(Unavailable):
            count, oldest = self._journal.waiting()
            PENDING.set(count)
            OLDEST.set(oldest)

    # After the broadcast

    def _wait(self, keys: Sequence[str]) -> list[Receipt]:
        """Returns all receipts. Short RPC failures are retried; a longer outage ends the wait."""
        started = heard = self._clock.monotonic()
        found: dict[str, Receipt] = {}
        missing = ""
        while True:
            try:
                with self._guard:
                    self._show()
                    found |= self._settle_all([key for key in keys if key not in found])
                heard = self._clock.monotonic()
                if all(key in found for key in keys):
                    return [found[key] for key in keys]
                if heard - self._tended > self.fees.resend_seconds:
                    self.reconcile()
                    missing = self._pending.missing()
            except Unavailable:
                if self._clock.monotonic() - heard > OUTAGE_SECONDS:
                    raise
            if missing:
                raise Unavailable(missing)
            if self._clock.monotonic() - started > self._wait_seconds:
                raise Unavailable(self._why_pending(next(key for key in keys if key not in found)))
            self._clock.sleep(pause_after(self._clock.monotonic() - started, self._poll_seconds))

    def _why_pending(self, key: str) -> str:
        intent = self._journal.intent(key)
        assert intent is not None
        bid, base_fee = self._journal.attempts(key)[-1].max_fee, self.chain.head().base_fee
        why = f"; underpriced: it bids {bid} wei, gas costs {base_fee}, the cap is {self.fees.cap}" * (bid < base_fee)
        return f"{intent.call.description} is not mined after {self._wait_seconds:.0f} s; it stays pending{why}"

    def _settle_all(self, keys: Sequence[str]) -> dict[str, Receipt]:
        """Returns the receipts that exist by key; raises if an intent has failed."""
        intents = [intent for key in keys if (intent := self._journal.intent(key)) is not None]
        for intent in intents:
            if intent.state == FAILED:
                raise IntentFailed(str(intent.failure))
        found = zip(intents, self._pending.receipts(intents), strict=True)
        return {intent.key: self._pending.settle(intent, receipt) for intent, receipt in found if receipt is not None}
