"""Planted faults: set by requesters before their rounds, opened against fraud only, paid from their deposits."""

from __future__ import annotations

from ledger.audit.audit_state import AuditCheck, AuditSources, AuditState
from ledger.book import known
from ledger.facts import Job, Node, OpenedTrap, Round, Run, Seat, TrapSet
from ledger.fold.committees import seats_of
from ledger.fold.runs import terms_at
from ledger.fold.treasury import admin_of
from protocol.chain import events
from protocol.chain.structs import Verdict, verdict_in
from protocol.wire.assignments import assignee_of
from protocol.wire.traps import TrapKind

TRAPS = AuditCheck(
    "traps",
    "planted faults were announced before their rounds by requesters, judged fraud, and paid for by their setters",
)


@TRAPS.tries(events.TrapsSet)
def _setting(audit: AuditState, log: events.Log, event: events.TrapsSet) -> None:
    """Tries that a run's requester sets traps for rounds that are not open."""
    newest = sum(1 for _ in audit.book.all(Round))
    appeals = terms_at(audit.book, event.run, log.timestamp).appeal_seats > 0
    for field, stated, due in (
        ("number", event.set, 1 + sum(1 for _ in audit.book.all(TrapSet))),
        ("setter", event.setter, known(audit.book, Run, event.run).requester),
        ("of a run with appeals", appeals, True),
        ("set before its rounds", event.first > newest, True),
        ("set before its deadline", event.open_by > log.timestamp, True),
    ):
        audit.findings.equal("traps", "set", event.set, field, stated, due)


@TRAPS.tries(events.TrapOpened)
def _opening(audit: AuditState, log: events.Log, event: events.TrapOpened) -> None:
    """Tries that the job is fraud, and that those who found it are paid."""
    made, round_ = known(audit.book, TrapSet, event.set), known(audit.book, Round, event.round)
    _leaf(audit, log, made, event.leaf)
    bit, job = 1 << event.job, known(audit.book, Job, event.round, event.job)
    earlier = {(each.round, each.job) for each in audit.book.all(OpenedTrap) if each.round}
    seats = seats_of(audit.book, event.round, round_.attempt)
    finders = tuple(seat.juror for seat in seats if _found(seat, event.job))
    verdict = verdict_in(round_.accepted, round_.fraud, event.job)
    for field, stated, due in (
        ("run", round_.run, made.run),
        ("round named", event.round >= made.first, True),
        ("state", round_.state, "tallied"),
        ("verdict", verdict.name.lower(), "fraud"),
        ("appeal pending", _pending(audit, job), False),
        ("node", event.node, assignee_of(round_.assignments, event.job)),
        ("kind", event.kind is TrapKind.DECOY, False),
        ("trained on", bool(round_.consumed & bit), False),
        ("opened before", (event.round, event.job) in earlier, False),
        ("finders", event.finders, finders),
        ("bounty", event.bounty, made.bounty),
    ):
        audit.findings.equal("traps", "set/leaf", (event.set, "0x" + event.leaf.hex()), field, stated, due)
    each = event.bounty // len(finders) if finders else 0
    for finder in finders:
        audit.due_bounties[known(audit.book, Node, finder).owner] += each
    audit.due_bounties[admin_of(audit.book).treasury] += event.bounty - each * len(finders)


def _pending(audit: AuditState, job: Job) -> bool:
    return job.appeal != 0 and known(audit.book, Round, job.appeal).state not in ("settled", "void")


def _found(seat: Seat, job: int) -> bool:
    return seat.state == "revealed" and verdict_in(seat.accept, seat.fraud, job) is Verdict.FRAUD


@TRAPS.tries(events.DecoyOpened)
def _decoy(audit: AuditState, log: events.Log, event: events.DecoyOpened) -> None:
    """Tries that a decoy's share goes back to its setter."""
    made = known(audit.book, TrapSet, event.set)
    _leaf(audit, log, made, event.leaf)
    key = (event.set, "0x" + event.leaf.hex())
    audit.findings.equal("traps", "set/leaf", key, "setter", event.setter, made.setter)
    audit.findings.equal("traps", "set/leaf", key, "returned", event.amount, made.bounty)
    audit.due_bounties[made.setter] += made.bounty


def _leaf(audit: AuditState, log: events.Log, made: TrapSet, leaf: bytes) -> None:
    key = (made.set, "0x" + leaf.hex())
    spent = any(each.set == made.set and each.leaf == leaf for each in audit.book.all(OpenedTrap))
    audit.findings.equal("traps", "set/leaf", key, "leaf opened before", spent, False)
    audit.findings.holds("traps", "set/leaf", key, "paid for", made.opened < made.leaves)
    audit.findings.holds("traps", "set/leaf", key, "opened in time", log.timestamp <= made.open_by)


@TRAPS.tries(events.TrapsForfeited)
def _forfeit(audit: AuditState, log: events.Log, event: events.TrapsForfeited) -> None:
    """Tries that what was not opened in time goes to the treasury."""
    made = known(audit.book, TrapSet, event.set)
    audit.findings.holds("traps", "set", event.set, "forfeited after its deadline", log.timestamp > made.open_by)
    audit.findings.equal("traps", "set", event.set, "leaves forfeited", event.leaves, made.leaves - made.opened)
    audit.findings.equal("traps", "set", event.set, "amount forfeited", event.amount, made.balance)
    audit.findings.equal("traps", "set", event.set, "receiver", event.treasury, admin_of(audit.book).treasury)
    audit.due_bounties[event.treasury] += made.balance


@TRAPS.compares
def _views(audit: AuditState, sources: AuditSources) -> None:
    """Compares every set with the contract's own."""
    sets = list(audit.book.all(TrapSet))
    audit.findings.equal("traps", "Traps", "", "sets", sources.reader.view("Traps", "setCount"), len(sets))
    views = sources.reader.views("Traps", "setOf", [(made.set,) for made in sets]) if sets else []
    for made, view in zip(sets, views, strict=True):
        for field in ("setter", "run", "first", "open_by", "leaves", "opened", "bounty", "root"):
            audit.findings.equal("traps", "set", made.set, field, getattr(view, field), getattr(made, field))


CHECKS = (TRAPS,)
