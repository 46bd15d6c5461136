"""Checks of phases: each event comes in a phase that allows it, and no phase ends early."""

from __future__ import annotations

from ledger.audit.audit_state import AuditCheck, AuditState
from ledger.book import known
from ledger.facts import Round, Seat
from ledger.fold.committees import seats_of
from protocol.chain import events

PHASES = AuditCheck("phases", "every event came in the phase that allows it, and no phase ended before it might")

SEED_WINDOWS = (8191, 256)
"""Blocks whose hashes a chain serves: by its history contract, and by the opcode where that is missing or young."""


@PHASES.tries(events.Submitted)
def _submitted(audit: AuditState, log: events.Log, event: events.Submitted) -> None:
    _by_deadline(audit, log, event, known(audit.book, Round, event.round))


@PHASES.tries(events.RoundClosed)
def _closed(audit: AuditState, log: events.Log, event: events.RoundClosed) -> None:
    round_ = known(audit.book, Round, event.round)
    whole = round_.submitted.bit_count() == round_.jobs
    _in_state(audit, event, round_, "open")
    audit.findings.holds(
        "phases", "RoundClosed", event.round, "whole or past its deadline", whole or log.timestamp > round_.deadline
    )


@PHASES.tries(events.CommitteeDrawn)
def _drawn(audit: AuditState, log: events.Log, event: events.CommitteeDrawn) -> None:
    round_ = known(audit.book, Round, event.round)
    _in_state(audit, event, round_, "closed")
    _by_deadline(audit, log, event, round_)
    passed = log.block_number - 1 - round_.close_block
    newest = [log.block_number - 1 - passed % window for window in SEED_WINDOWS]
    held = passed >= 0 and event.seed_block in newest
    audit.findings.holds("phases", "CommitteeDrawn", event.round, "seed block the newest of its window", held)


@PHASES.tries(events.VoteCommitted)
def _committed(audit: AuditState, log: events.Log, event: events.VoteCommitted) -> None:
    round_ = known(audit.book, Round, event.round)
    _in_state(audit, event, round_, "voting")
    _by_deadline(audit, log, event, round_)
    revealing = (event.round, round_.attempt) in audit.revealing
    audit.findings.equal("phases", "VoteCommitted", event.round, "votes revealed already", revealing, False)


@PHASES.tries(events.RevealStarted)
def _reveal_started(audit: AuditState, log: events.Log, event: events.RevealStarted) -> None:
    round_ = known(audit.book, Round, event.round)
    key = (event.round, round_.attempt)
    seats = _states(audit, round_)
    due = set(seats) == {"committed"} or log.timestamp > round_.deadline
    _in_state(audit, event, round_, "voting")
    audit.findings.equal("phases", "RevealStarted", event.round, "started before", key in audit.revealing, False)
    audit.findings.holds("phases", "RevealStarted", event.round, "all committed or past the deadline", due)
    audit.revealing.add(key)


@PHASES.tries(events.VoteRevealed)
def _revealed(audit: AuditState, log: events.Log, event: events.VoteRevealed) -> None:
    round_ = known(audit.book, Round, event.round)
    _in_state(audit, event, round_, "voting")
    _by_deadline(audit, log, event, round_)
    started = (event.round, round_.attempt) in audit.revealing
    audit.findings.equal("phases", "VoteRevealed", event.round, "committing over", started, True)


@PHASES.tries(events.JurorSettled)
def _juror_settled(audit: AuditState, log: events.Log, event: events.JurorSettled) -> None:
    round_ = known(audit.book, Round, event.round)
    audit.settled.setdefault((event.round, round_.attempt), set()).add(event.juror)


@PHASES.tries(events.RoundTallied, events.CommitteeRedrawn)
def _over(
    audit: AuditState, log: events.Log, event: events.RoundTallied | events.CommitteeRedrawn | events.RoundVoided
) -> None:
    """Tries that the time to commit and reveal has ended."""
    round_ = known(audit.book, Round, event.round)
    states, deadline = _states(audit, round_), round_.deadline
    voted = any(state != "drawn" for state in states)
    if (event.round, round_.attempt) in audit.revealing:
        over = "committed" not in states or log.timestamp > deadline
    else:
        over = log.timestamp > deadline + (round_.reveal_seconds if voted else 0)
    audit.findings.holds("phases", type(event).__name__, event.round, "voting over", over)


@PHASES.tries(events.RoundTallied)
def _counted(audit: AuditState, log: events.Log, event: events.RoundTallied) -> None:
    """Votes are counted before anybody is paid."""
    round_ = known(audit.book, Round, event.round)
    paid = audit.settled.pop((event.round, round_.attempt), set())
    audit.findings.equal("fees", "RoundTallied", event.round, "jurors paid before the verdict", tuple(sorted(paid)), ())


@PHASES.tries(events.CommitteeRedrawn, events.RoundSettled)
def _paid_in_full(audit: AuditState, log: events.Log, event: events.RoundSettled | events.CommitteeRedrawn) -> None:
    """Tries that every juror who revealed a verdict was paid, if only zero."""
    round_ = known(audit.book, Round, event.round)
    _equal_jurors(audit, event, round_, _revealed_by(audit, round_))


@PHASES.tries(events.RoundVoided)
def _void(audit: AuditState, log: events.Log, event: events.RoundVoided) -> None:
    """A committee without a quorum is paid; one that never voted, or whose round is ended by force, is not."""
    round_ = known(audit.book, Round, event.round)
    if round_.state != "voting":
        return _equal_jurors(audit, event, round_, ())
    if audit.expired(log, round_) and not audit.settled.get((event.round, round_.attempt)):
        return None
    _over(audit, log, event)
    return _equal_jurors(audit, event, round_, _revealed_by(audit, round_))


def _states(audit: AuditState, round_: Round) -> list[str]:
    return [seat.state for seat in _seats(audit, round_)]


def _revealed_by(audit: AuditState, round_: Round) -> tuple[int, ...]:
    return tuple(sorted(seat.juror for seat in _seats(audit, round_) if seat.state == "revealed"))


def _seats(audit: AuditState, round_: Round) -> list[Seat]:
    return seats_of(audit.book, round_.round, round_.attempt)


def _equal_jurors(
    audit: AuditState,
    event: events.RoundSettled | events.CommitteeRedrawn | events.RoundVoided,
    round_: Round,
    due: tuple[int, ...],
) -> None:
    paid = tuple(sorted(audit.settled.pop((event.round, round_.attempt), set())))
    audit.findings.equal("fees", type(event).__name__, event.round, "jurors paid", paid, due)


def _in_state(audit: AuditState, event: events.Event, round_: Round, due: str) -> None:
    audit.findings.equal("phases", type(event).__name__, round_.round, "state before", round_.state, due)


def _by_deadline(audit: AuditState, log: events.Log, event: events.Event, round_: Round) -> None:
    in_time = log.timestamp <= round_.deadline
    audit.findings.holds("phases", type(event).__name__, round_.round, "by the deadline", in_time)


CHECKS = (PHASES,)
