"""What is tried of money: settlements, fees, credits, escrow, and every running amount an event names."""

from __future__ import annotations

from ledger.audit.trial import Check, Trial, next_due
from ledger.audit.verdicts import submitted_jobs
from ledger.book import known
from ledger.facts import Credit, Holding, Job, Node, Round, Run, Seat, Submission, Treasury
from ledger.fold.credits import NOBODY
from protocol.chain.events import (
    CreditsEarned,
    CreditsLocked,
    CreditsUnlocked,
    Event,
    JurorSettled,
    Log,
    RoundSettled,
    RoundVoided,
    RunFunded,
    RunRefunded,
    SubmissionSettled,
    Transfer,
)
from protocol.wire.assignments import jobs_in, unpack_leaves

# Work and its pay


def _settlement(trial: Trial, log: Log, event: SubmissionSettled) -> None:
    round_ = known(trial.book, Round, event.round)
    stated = event.accepted | event.fraud | event.void_jobs
    first = known(trial.book, Job, event.round, jobs_in(stated)[0]).first_job
    submission = known(trial.book, Submission, event.round, first)
    jobs = submitted_jobs(submission) & ~round_.appealed
    leaves = [leaf for leaf in unpack_leaves(submission.leaves) if jobs & round_.accepted & 1 << leaf.job]
    units = sum(min(leaf.units, round_.max_units) for leaf in leaves)
    findings, key = trial.findings, (event.round, first)
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
    trial.owe(event.round, event.node, event.paid, fraudulent=event.fraud.bit_count())


def _fee(trial: Trial, log: Log, event: JurorSettled) -> None:
    """A juror's pay: by agreement with the verdict, or in full where its committee reached no quorum."""
    round_ = known(trial.book, Round, event.round)
    seat = known(trial.book, Seat, event.round, round_.attempt, event.juror)
    key = (event.round, round_.attempt, event.juror)
    trial.findings.equal("fees", "round/attempt/juror", key, "state", seat.state, "revealed")
    trial.findings.equal("fees", "round/attempt/juror", key, "paid before", seat.paid, 0)
    bits, paid = 0, round_.juror_fee
    if round_.state == "tallied":
        apart = (seat.accept ^ round_.accepted) | (seat.fraud ^ round_.fraud)
        bits = (round_.submitted & ~apart).bit_count()
        paid = round_.juror_fee * bits // round_.submitted.bit_count()
    trial.findings.equal("fees", "round/attempt/juror", key, "bits", event.bits, bits)
    trial.findings.equal("fees", "round/attempt/juror", key, "paid", event.paid, paid)
    trial.owe(event.round, event.juror, event.paid)


def _earning(trial: Trial, log: Log, event: CreditsEarned) -> None:
    key = (event.round, event.node)
    owner = known(trial.book, Node, event.node).owner
    trial.findings.equal("credits", "round/node", key, "owner paid", event.owner, owner)
    trial.findings.equal("credits", "round/node", key, "run", event.run, known(trial.book, Round, event.round).run)
    owed = next_due(trial.due_credits, key) or 0
    trial.findings.equal("credits", "round/node", key, "amount", event.amount, owed)


def _released(trial: Trial, log: Log, event: RoundSettled | RoundVoided) -> None:
    round_ = known(trial.book, Round, event.round)
    trial.findings.equal("amounts", "round", event.round, "released", event.released, round_.reserved)


def _all_settled(trial: Trial, log: Log, event: RoundSettled) -> None:
    round_ = known(trial.book, Round, event.round)
    trial.findings.equal("settlements", "round", event.round, "state", round_.state, "tallied")
    trial.findings.equal("appeals", "round", event.round, "pending at its end", round_.appeals, 0)
    for number in jobs_in(round_.submitted) if not round_.parent else ():
        job = known(trial.book, Job, event.round, number)
        # A job that was ever appealed is settled by its appeal, and none is pending.
        if not job.appeal:
            settled = known(trial.book, Submission, event.round, job.first_job).settled
            key = (event.round, number)
            trial.findings.holds("settlements", "round/job", key, "settled with its round", settled)


# Escrow and balances


def _funded(trial: Trial, log: Log, event: RunFunded) -> None:
    run = known(trial.book, Run, event.run)
    trial.findings.equal("amounts", "RunFunded", event.run, "escrow", event.escrow, run.escrow + event.amount)
    trial.findings.equal("escrow", "RunFunded", event.run, "requester", event.requester, run.requester)
    trial.findings.equal("escrow", "RunFunded", event.run, "run closed", run.closed, False)
    trial.due_locks[event.requester, event.run] += event.amount


def _refunded(trial: Trial, log: Log, event: RunRefunded) -> None:
    run = known(trial.book, Run, event.run)
    trial.findings.equal("amounts", "RunRefunded", event.run, "escrow", event.escrow, run.escrow - event.amount)
    trial.findings.holds("amounts", "RunRefunded", event.run, "closed", run.closed)
    trial.findings.equal("escrow", "RunRefunded", event.run, "requester", event.requester, run.requester)
    trial.due_unlocks[event.requester, event.run] += event.amount


def _locked(trial: Trial, log: Log, event: CreditsLocked) -> None:
    due = trial.due_locks.pop((event.owner, event.run), 0)
    trial.findings.equal("escrow", "CreditsLocked", (event.owner, event.run), "amount", event.amount, due)


def _unlocked(trial: Trial, log: Log, event: CreditsUnlocked) -> None:
    due = trial.due_unlocks.pop((event.owner, event.run), 0)
    trial.findings.equal("escrow", "CreditsUnlocked", (event.owner, event.run), "amount", event.amount, due)


def balances_stand(trial: Trial) -> None:
    """Tries that no balance, bond, escrow or reserve ever ends below zero."""
    book, findings = trial.book, trial.findings
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


def _flow(trial: Trial, log: Log, event: Transfer) -> None:
    deployment = trial.terms.deployment
    if {event.sender, event.to} & {deployment.registry, deployment.credits, NOBODY}:
        trial.flows[event.sender, event.to] += event.value


MONEY: dict[type[Event], tuple[Check, ...]] = {
    SubmissionSettled: (_settlement,),
    JurorSettled: (_fee,),
    CreditsEarned: (_earning,),
    CreditsLocked: (_locked,),
    CreditsUnlocked: (_unlocked,),
    RoundSettled: (_released, _all_settled),
    RoundVoided: (_released,),
    RunFunded: (_funded,),
    RunRefunded: (_refunded,),
    Transfer: (_flow,),
}
"""Type of event to what is tried of it."""
