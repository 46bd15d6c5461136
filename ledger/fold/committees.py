"""The events of committees: draws, votes, verdicts, fees. An appeal's committee is one like any other."""

from __future__ import annotations

from dataclasses import replace

from ledger.book import Book, add, known
from ledger.facts import Committee, Job, Node, Round, Seat, Service
from ledger.fold.rounds import awaiting_draw
from ledger.fold.runs import membership_of
from protocol.chain import events, structs
from protocol.wire.assignments import bitmap_of, jobs_in
from protocol.wire.votes import Vote


def _drawn(book: Book, log: events.Log, event: events.CommitteeDrawn) -> None:
    round_ = known(book, Round, event.round)
    book.put(replace(round_, state="voting", deadline=event.deadline))
    jurors = b"".join(juror.to_bytes(4, "big") for juror in event.jurors)
    book.put(Committee(event.round, event.attempt, event.seed_block, event.seed, jurors))
    for place, juror in enumerate(event.jurors):
        book.put(Seat(event.round, event.attempt, juror, place))
        add(book, known(book, Service, juror), seats=1, silent=1)


def seats_of(book: Book, round_: int, attempt: int) -> list[Seat]:
    """Returns a committee's seats in the order drawn; empty where none was."""
    committee = book.find(Committee, round_, attempt)
    jurors = (int.from_bytes(word, "big") for word in _words(committee.jurors)) if committee else ()
    return [known(book, Seat, round_, attempt, juror) for juror in jurors]


def voters_of(book: Book, round_: Round) -> list[Seat]:
    """Returns the seats of the present attempt that revealed a vote and did not abstain, in the order drawn."""
    return [seat for seat in seats_of(book, round_.round, round_.attempt) if seat.state == "revealed"]


def _words(packed: bytes) -> list[bytes]:
    return [packed[start : start + 4] for start in range(0, len(packed), 4)]


def _committed(book: Book, log: events.Log, event: events.VoteCommitted) -> None:
    seat = known(book, Seat, event.round, event.attempt, event.juror)
    book.put(replace(seat, state="committed", commitment=event.commitment))


def _reveal_started(book: Book, log: events.Log, event: events.RevealStarted) -> None:
    book.put(replace(known(book, Round, event.round), deadline=event.deadline))


def _revealed(book: Book, log: events.Log, event: events.VoteRevealed) -> None:
    seat = known(book, Seat, event.round, event.attempt, event.juror)
    vote = Vote(event.accept, event.fraud, event.reasons, event.evidence_root)
    book.put(
        replace(
            seat,
            state="abstained" if vote.abstains else "revealed",
            accept=event.accept,
            fraud=event.fraud,
            reasons=event.reasons,
            evidence_root=event.evidence_root,
            salt=event.salt,
        )
    )
    voted = "abstained" if vote.abstains else "revealed"
    add(book, known(book, Service, event.juror), silent=-1, **{voted: 1})


def _tallied(book: Book, log: events.Log, event: events.RoundTallied) -> None:
    round_ = known(book, Round, event.round)
    book.put(replace(round_, state="tallied", deadline=event.deadline, accepted=event.accepted, fraud=event.fraud))
    # A job's appeal is settled by its own event.
    for job in jobs_in(round_.submitted) if not round_.parent else ():
        verdict = verdict_in(event.accepted, event.fraud, job)
        book.put(replace(known(book, Job, event.round, job), verdict=verdict))


def verdict_in(accepted: int, fraud: int, job: int) -> str:
    """Returns what two bitmaps say of one job: accepted, fraud, unavailable or void."""
    return structs.verdict_in(accepted, fraud, job).name.lower()


def _redrawn(book: Book, log: events.Log, event: events.CommitteeRedrawn) -> None:
    round_ = known(book, Round, event.round)
    idle = [seat.juror for seat in seats_of(book, round_.round, round_.attempt) if seat.state != "revealed"]
    eligible = round_.eligible & ~bitmap_of(known(book, Node, juror).slot for juror in idle)
    # Those that did not vote are not drawn again while enough others remain for the committees still needed.
    if eligible.bit_count() < round_.committee + round_.appeal_seats:
        eligible = round_.eligible
    round_ = replace(round_, attempt=event.attempt, eligible=eligible)
    book.put(awaiting_draw(round_, log, event.deadline))


def _struck(book: Book, log: events.Log, event: events.NodeStruck) -> None:
    round_ = known(book, Round, event.round)
    add(book, known(book, Seat, event.round, round_.attempt, event.node), struck=1)
    add(book, known(book, Service, event.node), struck=1)
    member = membership_of(book, event.run, event.node)
    began = log.timestamp if event.strikes == 1 else member.struck_at
    book.put(replace(member, strikes=event.strikes, struck_at=began, struck_in=event.round))


def _juror_settled(book: Book, log: events.Log, event: events.JurorSettled) -> None:
    round_ = known(book, Round, event.round)
    seat = known(book, Seat, event.round, round_.attempt, event.juror)
    book.put(replace(seat, bits=event.bits, paid=event.paid))
    add(book, known(book, Service, event.juror), agreed=event.bits, paid=event.paid)


COMMITTEES = {
    events.CommitteeDrawn: _drawn,
    events.VoteCommitted: _committed,
    events.RevealStarted: _reveal_started,
    events.VoteRevealed: _revealed,
    events.RoundTallied: _tallied,
    events.CommitteeRedrawn: _redrawn,
    events.NodeStruck: _struck,
    events.JurorSettled: _juror_settled,
}
"""Event type to the function that folds it."""
