"""What is tried of runs and of the admin: notice, rules never used before, consent to them, pauses."""

from __future__ import annotations

from ledger.audit.trial import Check, Trial
from ledger.book import known
from ledger.facts import Node, Run, RunTerms
from ledger.fold.runs import terms_at
from ledger.fold.treasury import admin_of
from protocol.chain.events import Event, Log, NodeJoined, Paused, RunClosed, RunOpened, TermsAnnounced, Unpaused


def _offered(trial: Trial, log: Log, event: RunOpened | TermsAnnounced) -> None:
    """What the market checked of terms at the opening or the announcement, as far as an auditor relies on it."""
    terms = event.terms
    fees, share = (terms.appeal_seats - 1) * terms.juror_fee, terms.max_units * terms.price_per_unit
    covered = not terms.appeal_seats or fees <= share
    larger = not terms.appeal_seats or terms.appeal_seats >= terms.committee + 2
    trial.findings.holds("rules", "run", event.run, "a job's share covers an appeal's fees", covered)
    trial.findings.holds("rules", "run", event.run, "an appeal's committee is larger", larger)


def _announced(trial: Trial, log: Log, event: TermsAnnounced) -> None:
    run = known(trial.book, Run, event.run)
    used = [known(trial.book, RunTerms, event.run, number).rules_hash for number in range(run.announcements + 1)]
    effective_at = log.timestamp + trial.terms.market.notice_seconds
    trial.findings.equal("rules", "TermsAnnounced", event.run, "effective at", event.effective_at, effective_at)
    trial.findings.equal("rules", "TermsAnnounced", event.run, "requester", event.requester, run.requester)
    trial.findings.equal("rules", "TermsAnnounced", event.run, "of a closed run", run.closed, False)
    trial.findings.holds("rules", "TermsAnnounced", event.run, "rules new", event.terms.rules_hash not in used)


def _closed(trial: Trial, log: Log, event: RunClosed) -> None:
    run = known(trial.book, Run, event.run)
    trial.findings.equal("rules", "RunClosed", event.run, "requester", event.requester, run.requester)
    trial.findings.equal("rules", "RunClosed", event.run, "closed before", run.closed, False)


def _joined(trial: Trial, log: Log, event: NodeJoined) -> None:
    key = (event.run, event.node)
    rules = terms_at(trial.book, event.run, log.timestamp).rules_hash
    trial.findings.equal("rules", "NodeJoined", key, "rules", event.rules_hash, rules)
    trial.findings.equal("rules", "NodeJoined", key, "role", known(trial.book, Node, event.node).role, "worker")
    trial.findings.equal("rules", "NodeJoined", key, "run closed", known(trial.book, Run, event.run).closed, False)


def _turned(trial: Trial, log: Log, event: Paused | Unpaused) -> None:
    before = admin_of(trial.book).paused
    trial.findings.equal("rules", type(event).__name__, event.pauser, "before", before, isinstance(event, Unpaused))


MARKET: dict[type[Event], tuple[Check, ...]] = {
    RunOpened: (_offered,),
    TermsAnnounced: (_offered, _announced),
    RunClosed: (_closed,),
    NodeJoined: (_joined,),
    Paused: (_turned,),
    Unpaused: (_turned,),
}
"""Type of event to what is tried of it."""
