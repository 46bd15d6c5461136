"""The transaction that a round is due for, and the claims to send as one batch. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from coordinator.tables import ClaimRow, RoundRow, SeatRow, SubmittedRow
from protocol.chain.structs import State
from protocol.wire.assignments import LEAF_BYTES, MAX_LEAVES_PER_BATCH, unpack_leaves


class Verb(StrEnum):
    """Steps of a round; ``SETTLE`` concerns one batch, the others the round."""

    CLOSE = "close"
    DRAW = "draw"
    TALLY = "tally"
    SETTLE = "settle"
    FREE = "free"
    FINISH = "finish"
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True)
class DueStep:
    """One transaction that is due."""

    verb: Verb
    round: int
    attempt: int = 0
    batch: int = 0

    @property
    def key(self) -> str:
        """The sender's idempotency key, the same however often the step is sent."""
        return f"round-{self.round}/{self.verb}/{self.attempt}/{self.batch}"


def step_of(
    round_: RoundRow, jurors: Sequence[SeatRow], submitted: Iterable[SubmittedRow], longest_seconds: int, now: int
) -> DueStep | None:
    """Returns the step due for the round at ``now`` (unix seconds, the chain's clock), or None while it waits.

    A round without a verdict can be expired ``longest_seconds`` after its opening.
    """
    due = _step_of(round_, jurors, submitted, now)
    if due is None and round_.state < State.TALLIED and now > round_.opened_at + longest_seconds:
        return DueStep(Verb.EXPIRE, round_.id)
    return due


def _step_of(
    round_: RoundRow, jurors: Sequence[SeatRow], submitted: Iterable[SubmittedRow], now: int
) -> DueStep | None:
    match State(round_.state):
        case State.OPEN if now > round_.deadline:  # a submission that completes the round closes it
            return DueStep(Verb.CLOSE, round_.id)
        case State.CLOSED:
            return DueStep(Verb.DRAW, round_.id, round_.attempt)
        case State.VOTING if _voted(round_, jurors, now):
            return DueStep(Verb.TALLY, round_.id, round_.attempt)
        case State.TALLIED if now >= round_.deadline:
            batches = sorted(row.batch for row in submitted if not row.settled)
            if batches:
                return DueStep(Verb.SETTLE, round_.id, batch=batches[0])
            return None if round_.appeals else DueStep(Verb.FINISH, round_.id)
        case State.VOID:
            return DueStep(Verb.FREE, round_.id)
    return None


def _voted(round_: RoundRow, jurors: Sequence[SeatRow], now: int) -> bool:
    """Returns whether no seat may commit or reveal any more, or every commitment is revealed.

    The contract tallies a round with its last reveal, but not an appeal.
    """
    committed = [seat for seat in jurors if seat.committed]
    if round_.revealing:
        return all(seat.revealed for seat in committed) or now > round_.deadline
    return now > round_.deadline + (round_.reveal_seconds if committed else 0)


@dataclass(frozen=True, slots=True)
class BatchingDelays:
    """Longest wait of a claim for others of its round, and the time before the work deadline at which the wait ends."""

    wait_seconds: float
    margin_seconds: float


def batch_of(round_: RoundRow, claims: Sequence[ClaimRow], delays: BatchingDelays, now: float) -> tuple[ClaimRow, ...]:
    """Returns the claims to send as one batch now, oldest first; empty while it is better to wait for more.

    A round proceeds once it is complete, so one transaction for all its nodes costs no time. Incomplete rounds wait as
    ``delays`` allow. Claims for jobs that are already on chain are left out.
    """
    taken, chosen, leaves = round_.submitted, [], 0
    for claim in sorted(claims, key=lambda claim: claim.received_at):
        jobs = claimed_jobs(claim)
        if jobs & taken or leaves + len(claim.leaves) // LEAF_BYTES > MAX_LEAVES_PER_BATCH:
            continue
        taken |= jobs
        leaves += jobs.bit_count()
        chosen.append(claim)
    if not chosen:
        return ()
    complete = taken == (1 << round_.jobs) - 1 or leaves == MAX_LEAVES_PER_BATCH
    waited = now - chosen[0].received_at >= delays.wait_seconds
    late = now > round_.deadline - delays.margin_seconds
    return tuple(chosen) if complete or waited or late else ()


def claimed_jobs(claim: ClaimRow) -> int:
    """Returns the bitmap of the jobs of a claim."""
    return sum(1 << leaf.job for leaf in unpack_leaves(claim.leaves))
