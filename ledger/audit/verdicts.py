"""Checks of verdicts: the tally bit by bit, its quorum, and the jobs that checkpoints consumed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ledger.audit.audit_state import AuditCheck, AuditState, next_due
from ledger.book import known
from ledger.facts import Round, Run, Seat, Submission
from ledger.fold.committees import voters_of
from protocol.chain import events
from protocol.chain.structs import MOST_DRAWS
from protocol.wire.assignments import bitmap_of, jobs_in, unpack_leaves

TALLIES = AuditCheck("tallies", "every verdict is the majority of its revealed votes, bit by bit, with a quorum")
BEACONS = AuditCheck("beacons", "every accepted job was worked under the hash of its round's opening block")
CONSUMPTION = AuditCheck("consumption", "every job trained on was accepted, and none twice")


def majority(votes: Sequence[int], threshold: int) -> int:
    """Returns the bitmap of the jobs that at least ``threshold`` of the bitmaps ``votes`` hold, counted job by job."""
    jobs = jobs_in(_union(votes))
    return sum(1 << job for job in jobs if sum(vote >> job & 1 for vote in votes) >= threshold)


def _union(votes: Sequence[int]) -> int:
    union = 0
    for vote in votes:
        union |= vote
    return union


def _voters(audit: AuditState, round_: Round) -> tuple[list[Seat], int]:
    """The seats that revealed a verdict, and how many make a quorum."""
    return voters_of(audit.book, round_), (round_.committee + 1) // 2


@TALLIES.tries(events.RoundTallied)
def _verdict(audit: AuditState, log: events.Log, event: events.RoundTallied) -> None:
    round_ = known(audit.book, Round, event.round)
    voters, quorum = _voters(audit, round_)
    said = [(seat.accept & round_.submitted, seat.fraud & round_.submitted) for seat in voters]
    unavailable = majority([accept & fraud for accept, fraud in said], quorum)
    accepted = majority([accept & ~fraud for accept, fraud in said], quorum) | unavailable
    fraud = majority([fraud & ~accept for accept, fraud in said], quorum) | unavailable
    audit.findings.equal("tallies", "round", event.round, "state at the tally", round_.state, "voting")
    audit.findings.holds("tallies", "round", event.round, "quorum", len(voters) >= quorum)
    audit.findings.equal("tallies", "round", event.round, "accepted", hex(event.accepted), hex(accepted))
    audit.findings.equal("tallies", "round", event.round, "fraud", hex(event.fraud), hex(fraud))


@BEACONS.tries(events.RoundTallied)
def _canonical(audit: AuditState, log: events.Log, event: events.RoundTallied) -> None:
    round_ = known(audit.book, Round, event.round)
    for job in jobs_in(round_.submitted):
        submission = audit.book.find(Submission, event.round, job)
        if submission is None or not submitted_jobs(submission) & event.accepted & ~event.fraud:
            continue
        key = (event.round, submission.node)
        audit.findings.equal("beacons", "round/node", key, "beacon of accepted jobs", submission.beacon, round_.beacon)


def submitted_jobs(submission: Submission) -> int:
    """Returns the bitmap of the jobs a submission claims."""
    return bitmap_of(leaf.job for leaf in unpack_leaves(submission.leaves))


@TALLIES.tries(events.CommitteeRedrawn)
def _without_quorum(audit: AuditState, log: events.Log, event: events.CommitteeRedrawn) -> None:
    round_ = known(audit.book, Round, event.round)
    voters, quorum = _voters(audit, round_)
    audit.findings.holds("tallies", "round", event.round, "quorum missing", len(voters) < quorum)
    audit.findings.equal("tallies", "round", event.round, "state at the redraw", round_.state, "voting")
    audit.findings.equal("tallies", "round", event.round, "attempt", event.attempt, round_.attempt + 1)


@TALLIES.tries(events.RoundVoided)
def _no_verdict(audit: AuditState, log: events.Log, event: events.RoundVoided) -> None:
    """Tries that a void round had no submission, no draw in time, no quorum in any draw, or was ended by force."""
    round_ = known(audit.book, Round, event.round)
    voters, quorum = _voters(audit, round_)
    late = log.timestamp > round_.deadline
    void = {
        "open": late and not round_.submitted,
        "closed": late,
        "voting": round_.attempt == MOST_DRAWS - 1 and len(voters) < quorum,
    }.get(round_.state, False)
    ended = void or (round_.state in ("open", "closed", "voting") and audit.expired(log, round_))
    audit.findings.holds("tallies", "round", event.round, "void for a reason", ended)


@CONSUMPTION.tries(events.CheckpointPublished)
def _published(audit: AuditState, log: events.Log, event: events.CheckpointPublished) -> None:
    present = known(audit.book, Run, event.run).version
    audit.findings.holds("consumption", "run/version", (event.run, event.version), "newer", event.version > present)
    for part in event.consumed:
        audit.due_jobs.setdefault((part.round, event.run), deque()).append(part.jobs)


@CONSUMPTION.tries(events.JobsConsumed)
def _consumed(audit: AuditState, log: events.Log, event: events.JobsConsumed) -> None:
    round_ = known(audit.book, Round, event.round)
    named = next_due(audit.due_jobs, (event.round, event.run)) or 0
    findings, key = audit.findings, event.round
    findings.equal("consumption", "round", key, "jobs marked", hex(event.jobs), hex(named))
    findings.equal("consumption", "round", key, "run", event.run, round_.run)
    refused = event.jobs & ~(round_.accepted & ~round_.fraud)
    findings.equal("consumption", "round", key, "consumed, not accepted", hex(refused), "0x0")
    findings.equal("consumption", "round", key, "consumed twice", hex(event.jobs & round_.consumed), "0x0")
    judged = round_.state in ("tallied", "settled") and not round_.parent
    findings.holds("consumption", "round", key, "verdict stands", judged)


@CONSUMPTION.concludes
def _marked(audit: AuditState) -> None:
    for (round_, run), jobs in audit.due_jobs.items():
        audit.findings.equal("consumption", "round/run", (round_, run), "checkpoints without a mark", len(jobs), 0)


CHECKS = (TALLIES, BEACONS, CONSUMPTION)
