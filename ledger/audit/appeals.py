"""Checks of appeals: who may appeal, the cost, the final verdict, and who pays.

Everything that follows from an appeal's verdict happens in one transaction, in this order; the decision is last, and
only then are the events before it weighed together.

    [JobsTainted]  AppealedJobSettled  [NodeSlashed…]  [SlashesAwarded]  DepositPaidOut…  AppealDecided
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ledger.audit.audit_state import AuditCheck, AuditState, Conclusion
from ledger.audit.rounds import maximum_fees
from ledger.book import Book, known
from ledger.facts import Appeal, Job, Round, Seat, Submission
from ledger.fold.committees import verdict_in, voters_of
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
    seats = round_.appeal_seats
    deposit = audit.terms.penalties.appeal_bond + maximum_fees(seats, round_.juror_fee)
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


@dataclass(frozen=True, slots=True)
class AppealVerdict:
    """The verdict that a majority of an appeal's seats ``named``, if any, and the ``final`` one."""

    named: str | None
    final: str


def verdict_of(book: Book, appeal: Appeal) -> AppealVerdict:
    """Returns the verdict on appeal by the table of ``ISettlement.appeal``."""
    named = _named(book, appeal)
    if named is None:
        return AppealVerdict(None, "void" if appeal.against == "fraud" else appeal.against)
    if named != "unavailable":
        return AppealVerdict(named, named)
    consumed = known(book, Round, appeal.round).consumed >> appeal.job & 1
    return AppealVerdict(named, "unavailable" if appeal.against == "accepted" and not consumed else appeal.against)


def _named(book: Book, appeal: Appeal) -> str | None:
    trial = known(book, Round, appeal.appeal)
    if trial.state != "tallied":
        return None
    votes = Counter(_said(seat, appeal.job) for seat in voters_of(book, trial))
    named, seats = votes.most_common(1)[0]
    if 2 * seats > trial.committee:
        return named
    # Bytes shown to a part of the seats must not split a condemnation.
    return "unavailable" if 2 * (votes["fraud"] + votes["unavailable"]) > trial.committee else None


def _said(seat: Seat, job: int) -> str:
    return verdict_in(seat.accept, seat.fraud, job)


@APPEALS.tries(events.AppealedJobSettled)
def _job_settled(audit: AuditState, log: events.Log, event: events.AppealedJobSettled) -> None:
    round_ = known(audit.book, Round, event.round)
    appeal = known(audit.book, Appeal, known(audit.book, Job, event.round, event.job).appeal)
    verdict, conclusion = verdict_of(audit.book, appeal).final, audit.concluding(event.round)
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
    awarded: int
    forfeited: int
    left: int


def costs_of(penalties: RoundsTerms, deposit: int, fees: int, taken: int, against: str, named: str | None) -> Costs:
    """Returns what an appeal comes to by the rules of ``ISettlement.appeal``.

    ``taken`` is what contradicted jurors paid. The bounty stays under half of it, so a small committee cannot gain by
    overturning itself.
    """
    awarded = min(fees, taken)
    if named != against and taken:
        awarded += min(penalties.appeal_bounty, taken - awarded, (taken - 1) // 2)
    forfeited = penalties.appeal_bond if named == against != "unavailable" else 0
    return Costs(fees, awarded, forfeited, deposit - fees - forfeited)


def contradicted_by(book: Book, appeal: Appeal, named: str | None) -> list[int]:
    """Returns the jurors of the first committee whose vote the verdict ``named`` on appeal contradicts, ascending.

    Only accepted and fraud contradict each other.
    """
    opposite = {"accepted": "fraud", "fraud": "accepted"}.get(named or "")
    voters = voters_of(book, known(book, Round, appeal.round))
    return sorted(seat.juror for seat in voters if _said(seat, appeal.job) == opposite)


@APPEALS.tries(events.AppealDecided)
def _decided(audit: AuditState, log: events.Log, event: events.AppealDecided) -> None:
    appeal = known(audit.book, Appeal, event.appeal)
    conclusion = audit.conclusions.pop(event.round, Conclusion())
    verdict, fees = verdict_of(audit.book, appeal), known(audit.book, Round, appeal.appeal).paid
    taken = sum(amount for _, amount in conclusion.punished)
    costs = costs_of(audit.terms.penalties, appeal.deposit, fees, taken, appeal.against, verdict.named)
    for field, stated, due in (
        ("round", event.round, appeal.round),
        ("job", event.job, appeal.job),
        ("state before", appeal.state, "pending"),
        ("job settled", conclusion.settled, event.appeal),
        ("verdict", event.verdict.name.lower(), verdict.final),
        ("decided", event.decided, verdict.named is not None),
        ("fees", event.fees, costs.fees),
        ("awarded", event.awarded, costs.awarded),
        ("forfeited", event.forfeited, costs.forfeited),
    ):
        audit.findings.equal("appeals", "AppealDecided", event.appeal, field, stated, due)
    _paid_by(audit, event.appeal, conclusion, contradicted_by(audit.book, appeal, verdict.named))
    _paid_to(audit, appeal, conclusion, costs)


def _paid_by(audit: AuditState, number: int, conclusion: Conclusion, contradicted: list[int]) -> None:
    punished = tuple(sorted(juror for juror, _ in conclusion.punished))
    audit.findings.equal("slashes", "appeal", number, "jurors penalised as overturned", punished, tuple(contradicted))


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
