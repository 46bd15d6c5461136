"""Checks of terms: notice, unused rules hashes, consent, strikes, deadlines and pauses."""

from __future__ import annotations

from ledger.audit.audit_state import AuditCheck, AuditState
from ledger.book import known
from ledger.facts import Checkpoint, Membership, Node, Round, Run, RunTerms, Seat
from ledger.facts.fact import NO_WORD
from ledger.fold.committees import seats_of
from ledger.fold.runs import membership_of, terms_at
from ledger.fold.treasury import admin_of
from protocol.chain import events

RULES = AuditCheck(
    "rules", "rounds, joins and deadlines follow the terms in effect, changed with notice; none opened paused"
)

STRIKES = AuditCheck(
    "strikes", "a seat that did not vote is a strike, one a round at most, and enough of them end the service in a run"
)


@RULES.tries(events.RunOpened, events.TermsAnnounced)
def _offered(audit: AuditState, log: events.Log, event: events.RunOpened | events.TermsAnnounced) -> None:
    """Tries the protocol's bounds on terms."""
    terms, market = event.terms, audit.terms.market
    larger = not terms.appeal_seats or terms.appeal_seats >= terms.committee + 2
    pay = terms.max_units * terms.price_per_unit
    for field, holds in (
        ("an appeal's committee is larger", larger),
        ("commit window above the minimum", terms.commit_seconds >= market.min_commit_seconds),
        ("reveal window above the minimum", terms.reveal_seconds >= market.min_reveal_seconds),
        ("juror fee above the minimum", terms.juror_fee >= market.min_juror_fee),
        ("a job's pay at most its fraud's slash", pay <= audit.terms.penalties.fraud_slash),
    ):
        audit.findings.holds("rules", "run", event.run, field, holds)


@RULES.tries(events.TermsAnnounced)
def _announced(audit: AuditState, log: events.Log, event: events.TermsAnnounced) -> None:
    run = known(audit.book, Run, event.run)
    used = [known(audit.book, RunTerms, event.run, number).rules_hash for number in range(run.announcements + 1)]
    effective_at = log.timestamp + audit.terms.market.notice_seconds
    audit.findings.equal("rules", "TermsAnnounced", event.run, "effective at", event.effective_at, effective_at)
    audit.findings.equal("rules", "TermsAnnounced", event.run, "requester", event.requester, run.requester)
    audit.findings.equal("rules", "TermsAnnounced", event.run, "of a closed run", run.closed, False)
    audit.findings.holds("rules", "TermsAnnounced", event.run, "rules new", event.terms.rules_hash not in used)


@RULES.tries(events.RunClosed)
def _closed(audit: AuditState, log: events.Log, event: events.RunClosed) -> None:
    run = known(audit.book, Run, event.run)
    audit.findings.equal("rules", "RunClosed", event.run, "requester", event.requester, run.requester)
    audit.findings.equal("rules", "RunClosed", event.run, "closed before", run.closed, False)


@RULES.tries(events.NodeJoined)
def _joined(audit: AuditState, log: events.Log, event: events.NodeJoined) -> None:
    key = (event.run, event.node)
    run, node = known(audit.book, Run, event.run), known(audit.book, Node, event.node)
    offered = [terms_at(audit.book, event.run, log.timestamp).rules_hash]
    if node.role == "validator":
        offered.append(known(audit.book, RunTerms, event.run, run.announcements).rules_hash)
        audit.findings.holds("rules", "NodeJoined", key, "in service", not node.retired_at)
        member = membership_of(audit.book, event.run, event.node)
        out = member.strikes >= audit.terms.market.max_strikes and not _past(audit, log, member)
        audit.findings.holds("rules", "NodeJoined", key, "not out for its strikes", not out)
    audit.findings.holds("rules", "NodeJoined", key, "rules in effect or announced", event.rules_hash in offered)
    audit.findings.equal("rules", "NodeJoined", key, "run closed", run.closed, False)


def _past(audit: AuditState, log: events.Log, member: Membership) -> bool:
    """Tells whether a validator's strikes no longer count."""
    return log.timestamp >= member.struck_at + audit.terms.registry.unbonding_delay


@STRIKES.tries(events.NodeStruck)
def _struck(audit: AuditState, log: events.Log, event: events.NodeStruck) -> None:
    """Tries the count, the seat, and that the last strike before this one ended the service."""
    member, round_ = membership_of(audit.book, event.run, event.node), known(audit.book, Round, event.round)
    key, most = (event.run, event.node), audit.terms.market.max_strikes
    counted = 0 if _past(audit, log, member) else member.strikes
    newer = event.round > member.struck_in
    audit.findings.holds("strikes", "NodeStruck", key, "for a round newer than the last that counted", newer)
    audit.findings.equal("strikes", "NodeStruck", key, "strikes", event.strikes, counted + 1)
    audit.findings.equal("strikes", "NodeStruck", key, "run", event.run, round_.run)
    audit.findings.holds(
        "strikes", "NodeStruck", key, "out at the last", counted < most or member.rules_hash == NO_WORD
    )
    seat = audit.book.find(Seat, event.round, round_.attempt, event.node)
    deserved = seat is not None and (seat.state != "revealed" or seat.accept & seat.fraud != 0)
    audit.findings.holds("strikes", "NodeStruck", key, "a seat that did not vote or could not read", deserved)


@STRIKES.tries(events.RoundTallied, events.CommitteeRedrawn)
def _all_struck(audit: AuditState, log: events.Log, event: events.RoundTallied | events.CommitteeRedrawn) -> None:
    round_ = known(audit.book, Round, event.round)
    for seat in seats_of(audit.book, event.round, round_.attempt):
        key, struck = (event.round, seat.juror), seat.struck == 1
        counted = membership_of(audit.book, round_.run, seat.juror).struck_in >= event.round
        deserved = seat.state != "revealed" and (struck or not counted)
        audit.findings.equal("strikes", "round/juror", key, "struck", struck, deserved)


@RULES.tries(events.Paused, events.Unpaused)
def _turned(audit: AuditState, log: events.Log, event: events.Paused | events.Unpaused) -> None:
    before = admin_of(audit.book).paused
    audit.findings.equal(
        "rules", type(event).__name__, event.pauser, "before", before, isinstance(event, events.Unpaused)
    )


@RULES.tries(events.RoundOpened)
def _allowed(audit: AuditState, log: events.Log, event: events.RoundOpened) -> None:
    run = known(audit.book, Run, event.run)
    deadline = log.timestamp + terms_at(audit.book, event.run, log.timestamp).work_seconds
    audit.findings.equal("rules", "RoundOpened", event.round, "opened while paused", admin_of(audit.book).paused, False)
    audit.findings.equal("rules", "RoundOpened", event.round, "opened on a closed run", run.closed, False)
    audit.findings.equal("rules", "RoundOpened", event.round, "deadline", event.deadline, deadline)
    version = audit.book.find(Checkpoint, event.run, event.policy_version)
    audit.findings.holds("rules", "RoundOpened", event.round, "policy version published", version is not None)


@RULES.tries(
    events.RoundClosed, events.CommitteeDrawn, events.CommitteeRedrawn, events.RevealStarted, events.RoundTallied
)
def _windows(
    audit: AuditState,
    log: events.Log,
    event: events.RoundClosed
    | events.CommitteeDrawn
    | events.CommitteeRedrawn
    | events.RevealStarted
    | events.RoundTallied,
) -> None:
    """Deadlines follow from the windows that were in effect when the round opened."""
    round_ = known(audit.book, Round, event.round)
    start = log.timestamp
    if isinstance(event, events.RevealStarted):
        # The first reveal past the deadline counts from that deadline, and prolongs nothing.
        start = min(start, round_.deadline)
    name = WINDOWS[type(event)]
    deadline = start + getattr(round_, name)
    audit.findings.equal("rules", type(event).__name__, event.round, "deadline", event.deadline, deadline)


WINDOWS: dict[type[events.Event], str] = {
    events.RoundClosed: "draw_seconds",
    events.CommitteeRedrawn: "draw_seconds",
    events.CommitteeDrawn: "commit_seconds",
    events.RevealStarted: "reveal_seconds",
    events.RoundTallied: "challenge_seconds",
}
"""Type of event to the window it begins."""


CHECKS = (RULES, STRIKES)
