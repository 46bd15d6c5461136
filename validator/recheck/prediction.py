"""Prediction of an appeal from the contracts' rules, and the decision whether to make it. PURE.

The prediction takes the trial to name the verdict found here: every seat votes for it, in one draw. Amounts are in wei
of credits; those of the trial follow ``contracts/src/rounds/Appealing.sol``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.amounts import tokens
from protocol.chain.structs import RoundsTerms, RunTerms, Verdict, most_fees
from protocol.wire.reasons import Reason
from protocol.wire.rules import Thresholds
from validator.judging.check import Check, TokenMeasurements

NEAR = 1.25
"""Factor within which a figure counts as near its bound: trial jurors may then decide either way."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Outcome and cost of an appeal.

    against    the verdict that stands
    named      the verdict that the trial names
    final      the job's verdict after the appeal
    deposit    amount that the appellant locks, and the most that it can lose
    fees       fees of the trial's jurors
    awarded    paid to the appellant by the contradicted jurors
    forfeited  part of the appeal bond that is lost
    """

    against: Verdict
    named: Verdict
    final: Verdict
    deposit: int
    fees: int
    awarded: int
    forfeited: int

    @property
    def profit(self) -> int:
        """The appellant's gain; below 0, its loss."""
        return self.awarded - self.fees - self.forfeited


def predict(
    against: Verdict, named: Verdict, votes: Sequence[Verdict], consumed: bool, run: RunTerms, rounds: RoundsTerms
) -> Prediction:
    """Returns the outcome if the trial's seats all vote ``named``; ``votes`` are the first committee's on the job."""
    fees = 0 if named is Verdict.UNAVAILABLE else run.appeal_seats * run.juror_fee
    contradicted = [vote for vote in votes if {vote, named} == {Verdict.ACCEPTED, Verdict.FRAUD}]
    taken = len(contradicted) * rounds.overturn_penalty
    awarded = min(fees, taken)
    if taken and named is not against:
        awarded += min(rounds.appeal_bounty, taken - awarded, (taken - 1) // 2)
    confirmed = named is against and named is not Verdict.UNAVAILABLE
    return Prediction(
        against=against,
        named=named,
        final=last_word(against, named, consumed),
        deposit=rounds.appeal_bond + most_fees(run.appeal_seats, run.juror_fee),
        fees=fees,
        awarded=awarded,
        forfeited=rounds.appeal_bond if confirmed else 0,
    )


def last_word(against: Verdict, named: Verdict, consumed: bool) -> Verdict:
    """Returns a job's verdict after a trial that named a verdict."""
    if named is not Verdict.UNAVAILABLE:
        return named
    return named if against is Verdict.ACCEPTED and not consumed else against


def objection(prediction: Prediction, doubt: str | None, spent: int, budget: int) -> str | None:
    """Returns why not to appeal, or None if an appeal is worth it.

    ``doubt`` is why the trial may decide otherwise; ``spent`` are the deposits of the last day, ``budget`` is the most
    that they may be.
    """
    if prediction.named is Verdict.UNAVAILABLE:
        return "an artifact that cannot be read here proves nothing against the verdict"
    if prediction.final is prediction.against:
        return "the verdict would stand"
    if doubt is not None:
        return doubt
    if prediction.profit < 0:
        return f"it would cost {tokens(-prediction.profit)}: too few jurors are contradicted"
    if spent + prediction.deposit > budget:
        left = tokens(budget - spent)
        return f"its deposit of {tokens(prediction.deposit)} exceeds what is left of the day's budget, {left}"
    return None


def doubt_of(
    checks: Sequence[Check], thresholds: Thresholds, measured: TokenMeasurements | None, reasons: Sequence[Reason]
) -> str | None:
    """Returns why a trial may decide otherwise than this machine, or None.

    ``reasons`` are those of the first committee's votes on the job.
    """
    if {Reason.SEQUENCE, Reason.STEERED} & set(reasons):
        return "votes rest on the node's record, which only jurors keep"
    if measured is None:
        return None
    for check in checks:
        for bound in check.bounds if check.applies(thresholds) else ():
            limit = thresholds.bounds[bound.name]
            values = bound.values(measured)
            if limit is not None and values.size and limit / NEAR < (largest := float(values.max())) < limit * NEAR:
                return f"{bound.name} is {largest:.3g}, near its bound {limit:g}"
    return None


def verdict_of(reason: Reason) -> Verdict:
    """Returns the verdict that a reason votes for."""
    if reason.unavailable:
        return Verdict.UNAVAILABLE
    if reason.fraud:
        return Verdict.FRAUD
    return Verdict.VOID if reason else Verdict.ACCEPTED


def is_chosen(secret: bytes, round_: int, beacon: bytes, job: int, share: float) -> bool:
    """Returns whether a job is among the ``share`` to check again, which nobody without the secret can tell."""
    place = round_.to_bytes(32, "big") + beacon + job.to_bytes(1, "big")
    drawn = int.from_bytes(hmac.digest(secret, place, hashlib.sha256)[:8], "big")
    return drawn < share * 2.0**64
