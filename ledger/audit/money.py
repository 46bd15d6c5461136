"""Checks of money: settlements, fees, credits, escrow, and every running amount that an event states."""

from __future__ import annotations

from ledger.audit.audit_state import AuditCheck, AuditState, next_due
from ledger.audit.bonds import AMOUNTS
from ledger.audit.verdicts import submitted_jobs
from ledger.book import known
from ledger.facts import Credit, Holding, Job, Node, Round, Run, Seat, Submission, Treasury
from protocol.chain import events
from protocol.wire.assignments import jobs_in, unpack_leaves

ESCROW = AuditCheck("escrow", "credits were locked in and paid out of runs and deposits exactly as announced")
SETTLEMENTS = AuditCheck(
    "settlements", "every submitted job is settled once, as its verdict says, at units times price"
)
FEES = AuditCheck("fees", "every juror earned its fee in proportion to its agreement with the verdict")
CREDITS = AuditCheck("credits", "credits were earned exactly where a settlement owed them, by the node's owner")

# Work and its pay


@SETTLEMENTS.tries(events.SubmissionSettled)
def _settlement(audit: AuditState, log: events.Log, event: events.SubmissionSettled) -> None:
    round_ = known(audit.book, Round, event.round)
    stated = event.accepted | event.fraud | event.void_jobs
    first = known(audit.book, Job, event.round, jobs_in(stated)[0]).first_job
    submission = known(audit.book, Submission, event.round, first)
    jobs = submitted_jobs(submission) & ~round_.appealed
    leaves = [
        leaf for leaf in unpack_leaves(submission.leaves) if jobs & round_.accepted & ~round_.fraud & 1 << leaf.job
    ]
    units = sum(min(leaf.units, round_.max_units) for leaf in leaves)
    findings, key = audit.findings, (event.round, first)
    for field, stated_value, due in (
        ("state", round_.state, "tallied"),
        ("challenge window over", log.timestamp >= round_.deadline, True),
        ("settled before", submission.settled, False),
        ("node", event.node, submission.node),
        ("batch", event.batch, submission.batch),
        ("accepted", event.accepted, jobs & round_.accepted),
        ("fraud", event.fraud, jobs & round_.fraud),
        ("void", event.void_jobs, jobs & ~(round_.accepted | round_.fraud)),
        ("units", event.units, units),
        ("paid", event.paid, units * round_.price_per_unit),
    ):
        findings.equal("settlements", "round/first job", key, field, stated_value, due)
    audit.owe(event.round, event.node, event.paid, fraudulent=(event.fraud & ~event.accepted).bit_count())


@FEES.tries(events.JurorSettled)
def _fee(audit: AuditState, log: events.Log, event: events.JurorSettled) -> None:
    """A juror's pay: by agreement with the verdict, or in full where its committee reached no quorum."""
    round_ = known(audit.book, Round, event.round)
    seat = known(audit.book, Seat, event.round, round_.attempt, event.juror)
    key = (event.round, round_.attempt, event.juror)
    audit.findings.equal("fees", "round/attempt/juror", key, "state", seat.state, "revealed")
    audit.findings.equal("fees", "round/attempt/juror", key, "paid before", seat.paid, 0)
    bits, paid = 0, round_.juror_fee
    if round_.state == "tallied":
        apart = (seat.accept ^ round_.accepted) | (seat.fraud ^ round_.fraud)
        bits = (round_.submitted & ~apart & ~(seat.accept & seat.fraud)).bit_count()
        paid = round_.juror_fee * bits // round_.submitted.bit_count()
    audit.findings.equal("fees", "round/attempt/juror", key, "bits", event.bits, bits)
    audit.findings.equal("fees", "round/attempt/juror", key, "paid", event.paid, paid)
    audit.owe(event.round, event.juror, event.paid)


@CREDITS.tries(events.CreditsEarned)
def _earning(audit: AuditState, log: events.Log, event: events.CreditsEarned) -> None:
    key = (event.round, event.node)
    owner = known(audit.book, Node, event.node).owner
    audit.findings.equal("credits", "round/node", key, "owner paid", event.owner, owner)
    audit.findings.equal("credits", "round/node", key, "run", event.run, known(audit.book, Round, event.round).run)
    owed = next_due(audit.due_credits, key) or 0
    audit.findings.equal("credits", "round/node", key, "amount", event.amount, owed)


@ESCROW.tries(events.RoundSettled, events.RoundVoided)
def _released(audit: AuditState, log: events.Log, event: events.RoundSettled | events.RoundVoided) -> None:
    round_ = known(audit.book, Round, event.round)
    audit.findings.equal("amounts", "round", event.round, "released", event.released, round_.reserved)


@SETTLEMENTS.tries(events.RoundSettled)
def _all_settled(audit: AuditState, log: events.Log, event: events.RoundSettled) -> None:
    round_ = known(audit.book, Round, event.round)
    audit.findings.equal("settlements", "round", event.round, "state", round_.state, "tallied")
    audit.findings.equal("appeals", "round", event.round, "pending at its end", round_.appeals, 0)
    for number in jobs_in(round_.submitted) if not round_.parent else ():
        job = known(audit.book, Job, event.round, number)
        # A job that was ever appealed is settled by its appeal, and none is pending.
        if not job.appeal:
            settled = known(audit.book, Submission, event.round, job.first_job).settled
            key = (event.round, number)
            audit.findings.holds("settlements", "round/job", key, "settled with its round", settled)


# Escrow and balances


@AMOUNTS.tries(events.RunFunded)
def _funded(audit: AuditState, log: events.Log, event: events.RunFunded) -> None:
    run = known(audit.book, Run, event.run)
    audit.findings.equal("amounts", "RunFunded", event.run, "escrow", event.escrow, run.escrow + event.amount)
    audit.findings.equal("escrow", "RunFunded", event.run, "requester", event.requester, run.requester)
    audit.findings.equal("escrow", "RunFunded", event.run, "run closed", run.closed, False)
    audit.due_locks[event.requester, event.run] += event.amount


@AMOUNTS.tries(events.RunRefunded)
def _refunded(audit: AuditState, log: events.Log, event: events.RunRefunded) -> None:
    run = known(audit.book, Run, event.run)
    audit.findings.equal("amounts", "RunRefunded", event.run, "escrow", event.escrow, run.escrow - event.amount)
    audit.findings.holds("amounts", "RunRefunded", event.run, "closed", run.closed)
    audit.findings.equal("escrow", "RunRefunded", event.run, "requester", event.requester, run.requester)
    audit.due_unlocks[event.requester, event.run] += event.amount


@ESCROW.tries(events.CreditsLocked)
def _locked(audit: AuditState, log: events.Log, event: events.CreditsLocked) -> None:
    due = audit.due_locks.pop((event.owner, event.run), 0)
    audit.findings.equal("escrow", "CreditsLocked", (event.owner, event.run), "amount", event.amount, due)


@ESCROW.tries(events.CreditsUnlocked)
def _unlocked(audit: AuditState, log: events.Log, event: events.CreditsUnlocked) -> None:
    due = audit.due_unlocks.pop((event.owner, event.run), 0)
    audit.findings.equal("escrow", "CreditsUnlocked", (event.owner, event.run), "amount", event.amount, due)


@AMOUNTS.concludes
def _balances_stand(audit: AuditState) -> None:
    """Tries that no balance, bond, escrow or reserve ever ends below zero."""
    book, findings = audit.book, audit.findings
    for kind, fields in (
        (Credit, ("balance",)),
        (Node, ("bond", "in_flight")),
        (Run, ("escrow", "reserved")),
        (Round, ("reserved",)),
        (Holding, ("tokens",)),
        (Treasury, ("balance",)),
    ):
        for fact in book.all(kind):
            for field in fields:
                key = getattr(fact, fact.KEY[0])
                findings.holds(
                    "amounts", kind.__name__.lower(), key, f"{field} not below zero", getattr(fact, field) >= 0
                )


@CREDITS.concludes
def _all_earned(audit: AuditState) -> None:
    for (round_, node), amounts in audit.due_credits.items():
        audit.findings.equal("credits", "round/node", (round_, node), "credits owed and not earned", sum(amounts), 0)


@ESCROW.concludes
def _all_moved(audit: AuditState) -> None:
    for dues in (audit.due_locks, audit.due_unlocks, audit.due_deposits):
        for key, amount in dues.items():
            audit.findings.equal("escrow", "owed", key, "announced and not carried out", amount, 0)


CHECKS = (AMOUNTS, ESCROW, SETTLEMENTS, FEES, CREDITS)
