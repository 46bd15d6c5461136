"""Checks of appeals: who may appeal, the cost, the final verdict, and who pays.

Everything that follows from an appeal's verdict happens in one transaction, in this order; the decision is last, and
only then are the events before it weighed together.

    [JobsTainted]  AppealedJobSettled  [NodeSlashed…]  [SlashesAwarded]  DepositPaidOut…  AppealDecided
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ledger.audit.audit_state import AuditCheck, AuditState, Conclusion
from ledger.book import Book, known
from ledger.facts import Appeal, Job, Round, Submission
from ledger.fold.committees import seats_of, verdict_in
from ledger.fold.treasury import admin_of
from protocol.chain import events
from protocol.chain.structs import RoundsTerms

APPEALS = AuditCheck(
    "appeals", "every appeal was admissible, its verdict is final, and what it cost is what the rules come to"
)


@APPEALS.tries(events.AppealOpened)
def _opened(audit: AuditState, log: events.Log, event: events.AppealOpened) -> None:
    round_ = known(audit.book, Round, event.round)
    job = known(audit.book, Job, event.round, event.job)
    penalties, seats = audit.terms.penalties, round_.appeal_seats
    deposit = penalties.appeal_bond + (seats + (seats - 1) // 2) * round_.juror_fee
    for field, stated, due in (
        ("state of its round", round_.state, "tallied"),
        ("within the challenge window", log.timestamp < round_.deadline, True),
        ("appeals offered", seats > 0, True),
        ("appealed before", bool(round_.appealed >> event.job & 1), False),
        ("number taken", audit.book.find(Round, event.appeal) is not None, False),
        ("against", event.against.name.lower(), verdict_in(round_.accepted, round_.fraud, event.job)),
        ("node", event.node, job.node),
        ("units", event.units, job.units),
        ("deposit", event.deposit, deposit),
        ("deadline", event.deadline, log.timestamp + round_.draw_seconds),
    ):
        audit.findings.equal("appeals", "AppealOpened", event.appeal, field, stated, due)
    audit.due_deposits[event.appeal] += event.deposit


@APPEALS.tries(events.DepositLocked)
def _deposit_locked(audit: AuditState, log: events.Log, event: events.DepositLocked) -> None:
    appeal = known(audit.book, Appeal, event.round)
    due = audit.due_deposits.pop(event.round, 0)
    audit.findings.equal("escrow", "DepositLocked", event.round, "amount", event.amount, due)
    audit.findings.equal("escrow", "DepositLocked", event.round, "owner", event.owner, appeal.appellant)
    audit.findings.equal("escrow", "DepositLocked", event.round, "run", event.run, appeal.run)
    audit.due_locks[event.owner, event.run] += event.amount


@APPEALS.tries(events.DepositPaidOut)
def _deposit_paid_out(audit: AuditState, log: events.Log, event: events.DepositPaidOut) -> None:
    appeal = known(audit.book, Appeal, event.round)
    audit.findings.equal("escrow", "DepositPaidOut", event.round, "run", event.run, appeal.run)
    audit.concluding(appeal.round).paid_out[event.to] += event.amount
    audit.due_unlocks[event.to, event.run] += event.amount


@APPEALS.tries(events.JobsTainted)
def _tainted(audit: AuditState, log: events.Log, event: events.JobsTainted) -> None:
    run = known(audit.book, Round, event.round).run
    audit.findings.equal("appeals", "JobsTainted", event.round, "run", event.run, run)
    audit.concluding(event.round).tainted |= event.jobs


def _final_verdict(audit: AuditState, appeal: Appeal) -> str:
    """Returns the verdict of the appeal's committee; void if it reached none."""
    tried = known(audit.book, Round, appeal.appeal)
    return verdict_in(tried.accepted, tried.fraud, appeal.job) if tried.state == "tallied" else "void"


@APPEALS.tries(events.AppealedJobSettled)
def _job_settled(audit: AuditState, log: events.Log, event: events.AppealedJobSettled) -> None:
    round_ = known(audit.book, Round, event.round)
    appeal = known(audit.book, Appeal, known(audit.book, Job, event.round, event.job).appeal)
    verdict, conclusion = _final_verdict(audit, appeal), audit.concluding(event.round)
    units = min(appeal.units, round_.max_units) if verdict == "accepted" else 0
    tainted = round_.consumed & 1 << event.job if verdict != "accepted" else 0
    for field, stated, due in (
        ("state of its appeal", appeal.state, "pending"),
        ("settled before", conclusion.settled, 0),
        ("verdict", event.verdict.name.lower(), verdict),
        ("node", event.node, appeal.node),
        ("units", event.units, units),
        ("paid", event.paid, units * round_.price_per_unit),
        ("tainted", hex(conclusion.tainted), hex(tainted)),
    ):
        audit.findings.equal("appeals", "round/job", (event.round, event.job), field, stated, due)
    conclusion.settled = appeal.appeal
    audit.owe(event.round, event.node, event.paid, fraudulent=int(verdict == "fraud"))


@APPEALS.tries(events.AppealedJobSettled)
def _canonical(audit: AuditState, log: events.Log, event: events.AppealedJobSettled) -> None:
    """A job accepted on appeal was worked under its round's beacon too."""
    if event.verdict.name != "ACCEPTED":
        return
    first = known(audit.book, Job, event.round, event.job).first_job
    beacon = known(audit.book, Submission, event.round, first).beacon
    due = known(audit.book, Round, event.round).beacon
    audit.findings.equal("beacons", "round/job", (event.round, event.job), "beacon", beacon, due)


@dataclass(frozen=True, slots=True)
class Costs:
    """Amounts that an appeal moves, in credits. See ``ledger.facts.Appeal``; ``left`` of its deposit is returned."""

    fees: int
    covered: int
    awarded: int
    forfeited: int
    left: int


def costs_of(penalties: RoundsTerms, deposit: int, fees: int, share: int, taken: int, end: str) -> Costs:
    """Returns what an appeal comes to by the rules of ``IRounds``.

    ``share`` is what the job left of its part of the reserve, ``taken`` what overturned jurors paid, ``end`` upheld,
    overturned or undecided. The bounty stays under half of what was taken, so a small committee
    cannot gain by overturning itself.
    """
    covered, awarded, forfeited = 0, 0, 0
    if end == "upheld":
        forfeited = penalties.appeal_bond
    else:
        if end == "overturned" and taken:
            awarded = min(fees, taken)
            awarded += min(penalties.appeal_bounty, taken - awarded, (taken - 1) // 2)
        covered = min(max(fees - awarded, 0), share)
    return Costs(fees, covered, awarded, forfeited, deposit - fees + covered - forfeited)


def _costs(audit: AuditState, appeal: Appeal, taken: int, verdict: str, end: str) -> Costs:
    round_ = known(audit.book, Round, appeal.round)
    paid = min(appeal.units, round_.max_units) if verdict == "accepted" else 0
    share = (round_.max_units - paid) * round_.price_per_unit
    fees = known(audit.book, Round, appeal.appeal).paid
    return costs_of(audit.terms.penalties, appeal.deposit, fees, share, taken, end)


def overturned_by(book: Book, appeal: Appeal) -> list[int]:
    """Returns the jurors that made the verdict appealed against, ascending; none where it was no majority's."""
    round_ = known(book, Round, appeal.round)
    sided = [
        seat.juror
        for seat in seats_of(book, round_.round, round_.attempt)
        if seat.state == "revealed" and verdict_in(seat.accept, seat.fraud, appeal.job) == appeal.against
    ]
    return sorted(sided) if 2 * len(sided) > round_.committee else []


@APPEALS.tries(events.AppealDecided)
def _decided(audit: AuditState, log: events.Log, event: events.AppealDecided) -> None:
    appeal = known(audit.book, Appeal, event.appeal)
    conclusion = audit.conclusions.pop(event.round, Conclusion())
    verdict = _final_verdict(audit, appeal)
    decided = known(audit.book, Round, event.appeal).state == "tallied"
    end = ("upheld" if verdict == appeal.against else "overturned") if decided else "undecided"
    overturned = overturned_by(audit.book, appeal) if end == "overturned" else []
    costs = _costs(audit, appeal, sum(amount for _, amount in conclusion.punished), verdict, end)
    for field, stated, due in (
        ("round", event.round, appeal.round),
        ("job", event.job, appeal.job),
        ("state before", appeal.state, "pending"),
        ("job settled", conclusion.settled, event.appeal),
        ("verdict", event.verdict.name.lower(), verdict),
        ("decided", event.decided, decided),
        ("fees", event.fees, costs.fees),
        ("covered", event.covered, costs.covered),
        ("awarded", event.awarded, costs.awarded),
        ("forfeited", event.forfeited, costs.forfeited),
    ):
        audit.findings.equal("appeals", "AppealDecided", event.appeal, field, stated, due)
    _paid_by(audit, event.appeal, conclusion, overturned)
    _paid_to(audit, appeal, conclusion, costs)


def _paid_by(audit: AuditState, number: int, conclusion: Conclusion, overturned: list[int]) -> None:
    punished = tuple(sorted(juror for juror, _ in conclusion.punished))
    audit.findings.equal("slashes", "appeal", number, "jurors penalised as overturned", punished, tuple(overturned))


def _paid_to(audit: AuditState, appeal: Appeal, conclusion: Conclusion, costs: Costs) -> None:
    due = Counter({appeal.appellant: costs.left})
    due[admin_of(audit.book).treasury] += costs.forfeited
    paid, number = conclusion.paid_out, appeal.appeal
    audit.findings.equal("escrow", "appeal", number, "deposit paid out", _shown(paid), _shown(due))
    awarded = Counter({appeal.appellant: costs.awarded})
    audit.findings.equal("treasury", "appeal", number, "awarded", _shown(conclusion.awarded), _shown(awarded))


def _shown(amounts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((owner, amount) for owner, amount in amounts.items() if amount))


@APPEALS.concludes
def _all_decided(audit: AuditState) -> None:
    for parent in audit.conclusions:
        audit.findings.equal("appeals", "round", parent, "appeal concluded", "without a decision", "decided")


CHECKS = (APPEALS,)
