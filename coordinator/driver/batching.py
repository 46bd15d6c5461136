"""Relays signed claims of nodes to the chain in batches."""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog
from sqlmodel import select

from coordinator.driver.schedule import BatchingDelays, batch_of, claimed_jobs
from coordinator.mirror.market import Market
from coordinator.store import Store
from coordinator.tables import ClaimRow, RoundRow
from protocol.chain.events import SubmissionRefused
from protocol.chain.reverts import Reverted
from protocol.chain.structs import Refusal, State, Submission
from protocol.chain.writing import calls
from protocol.chain.writing.sender import Sender

log = structlog.get_logger()

REFUSALS = {
    Refusal.MALFORMED: "it has no leaves, or they do not ascend by job",
    Refusal.NOT_ASSIGNED: "one of its jobs is assigned to another node, or not in the round",
    Refusal.ALREADY_SUBMITTED: "one of its jobs was submitted before",
    Refusal.BAD_SIGNATURE: "it is not signed by the node's key over these fields",
}
"""Reasons for which the contract leaves a claim out of its batch."""

PERMANENT = frozenset({"NothingTaken", "TooManyLeaves", "BatchCutOff"})
"""Reverts caused by the claims themselves. Any other may come from an RPC behind the mirror or on another fork."""

RETRY_SECONDS = 0.5
"""Pause before claims are sent again after a temporary refusal; they are late once the work phase has ended."""


class Batcher:
    """Sends pending claims. A claim that the contract refuses does not delay the others of its batch."""

    def __init__(self, store: Store, sender: Sender, delays: BatchingDelays) -> None:
        self._store = store
        self._sender = sender
        self._delays = delays
        self._read_at: int | None = None
        self._claims: list[ClaimRow] = []
        self._not_before: dict[int, float] = {}

    def advance(self, market: Market, now: float, chain_time: int) -> bool:
        """Sends the batches that are due. Returns True if anything was sent or any claim got its final state."""
        pending = self._pending()
        moved = False
        for round_id in sorted({claim.round for claim in pending}):
            claims = [claim for claim in pending if claim.round == round_id]
            moved |= self._round(market.rounds.get(round_id), claims, now, chain_time)
        return moved

    def _pending(self) -> list[ClaimRow]:
        """Returns the pending claims; reads them only if the database has changed since the last call."""
        state = self._store.state()
        if state != self._read_at:
            with self._store.reading() as session:
                self._claims = list(session.exec(select(ClaimRow).where(ClaimRow.state == "pending")))
                session.expunge_all()
            self._read_at = state
        return self._claims

    def _round(self, round_: RoundRow | None, claims: list[ClaimRow], now: float, chain_time: int) -> bool:
        if round_ is None:
            return False  # rolled back, and possibly mined again later
        forked = [claim for claim in claims if claim.beacon != round_.beacon]
        if forked:
            self._mark(forked, "refused", "the round has another beacon since the chain was reorganised")
            return True
        done = [claim for claim in claims if not claimed_jobs(claim) & ~round_.submitted]
        if done:
            # Already on chain: sent before a restart, or by the node itself.
            self._mark(done, "relayed", "")
            return True
        if round_.state != State.OPEN or chain_time > round_.deadline:
            self._mark(claims, "late", "the work phase had ended")
            return True
        if time.monotonic() < self._not_before.get(round_.id, 0.0):
            return False
        batch = batch_of(round_, claims, self._delays, now)
        return bool(batch) and self._send(round_, batch)

    def _send(self, round_: RoundRow, batch: Sequence[ClaimRow]) -> bool:
        """Sends a batch; after a permanent refusal sends its claims one by one, to learn which are at fault.

        Returns True if anything was sent or any claim got its final state.
        """
        refusal = self._submit(round_, batch)
        if refusal is None:
            return True
        if refusal.name not in PERMANENT:
            self._not_before[round_.id] = time.monotonic() + RETRY_SECONDS
            log.debug("batch_put_off", round=round_.id, error=str(refusal))
            return False
        if len(batch) > 1:
            sent = [self._send(round_, [claim]) for claim in batch]
            return any(sent)
        self._refuse(batch[0], _reason(refusal))
        return True

    def _submit(self, round_: RoundRow, batch: Sequence[ClaimRow]) -> Reverted | None:
        submissions = [Submission(c.node, c.beacon, c.leaves, c.uri, c.signature) for c in batch]
        call = calls.submit(self._sender.chain.deployment, round_.id, round_.assignments, submissions)
        try:
            receipt = self._sender.send(f"round-{round_.id}/submit", call)
        except Reverted as refusal:
            return refusal
        left_out = {
            each.event.index: each.event.reason for each in receipt.logs if isinstance(each.event, SubmissionRefused)
        }
        taken = [claim for index, claim in enumerate(batch) if index not in left_out]
        self._mark(taken, "relayed", "")
        for index, reason in left_out.items():
            self._refuse(batch[index], REFUSALS[reason])
        log.info("batch_relayed", round=round_.id, nodes=[claim.node for claim in taken])
        return None

    def _refuse(self, claim: ClaimRow, why: str) -> None:
        self._mark([claim], "refused", why)
        log.warning("claim_refused", round=claim.round, node=claim.node, error=why)

    def _mark(self, claims: Sequence[ClaimRow], state: str, why: str) -> None:
        with self._store.writing() as session:
            for claim in claims:
                session.merge(claim.model_copy(update={"state": state, "why": why}))


def _reason(refusal: Reverted) -> str:
    """Returns the reason for which a claim sent alone was refused."""
    if refusal.name == "NothingTaken":
        return REFUSALS[Refusal(refusal.arguments["reason"])]
    return str(refusal)
