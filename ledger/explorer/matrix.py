"""Matrix of a round: its jobs by its jurors, each cell a vote with the reason that was given. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ledger.facts import Job, Round, Seat
from protocol.chain.structs import verdict_in
from protocol.errors import Rejected
from protocol.wire.assignments import jobs_in, nodes_of
from protocol.wire.reasons import Reason
from protocol.wire.votes import Vote, reasons_of

JOBS_SHOWN, CELLS_SHOWN = 64, 480
"""Most rows and cells of a page: a round of 256 jobs with 15 jurors has eight pages."""
UNREADABLE = "unreadable"
MARKS = {
    "accepted": "A",
    "fraud": "F",
    "unavailable": "U",
    "void": "V",
    "abstained": "–",
    "committed": "●",
    "drawn": "·",
}
"""Vote on a job, or state of a seat without one, to the mark of its cell."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Vote of one juror on one job, or the state of a seat without a vote; ``reason`` is empty then."""

    vote: str
    mark: str
    reason: str


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One job of the round; ``job`` is None if it was not submitted, and it has no cells then."""

    number: int
    node: int
    job: Job | None
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class GivenReason:
    """One reason that a juror gave: its name, its sentence, and the number of votes with it."""

    name: str
    sentence: str
    votes: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """Jobs from ``first`` on, of ``total``, by the seats of the last attempt; reasons are those of all jobs."""

    first: int
    total: int
    seats: tuple[Seat, ...]
    rows: tuple[MatrixRow, ...]
    reasons: tuple[GivenReason, ...]


def matrix(round_: Round, jobs: Sequence[Job], seats: Sequence[Seat], first: int = 0) -> Matrix:
    """Returns the matrix of a round or of the trial of an appeal, which has the number of the job tried."""
    last = tuple(sorted((seat for seat in seats if seat.attempt == round_.attempt), key=lambda seat: seat.place))
    votes = {seat.juror: _reasons(seat, round_.submitted) for seat in last}
    submitted = {job.job: job for job in jobs}
    numbers, holders = _numbers(round_), nodes_of(round_.assignments) if round_.assignments else []
    rows = []
    for number in numbers[first : first + min(JOBS_SHOWN, CELLS_SHOWN // max(1, len(last)))]:
        tried = bool(round_.submitted >> number & 1)
        cells = tuple(_cell(seat, votes[seat.juror], number) for seat in last) if tried else ()
        holder = holders[number] if number < len(holders) else 0
        rows.append(MatrixRow(number, holder, submitted.get(number), cells))
    return Matrix(first, len(numbers), last, tuple(rows), _given(votes.values()))


def _numbers(round_: Round) -> list[int]:
    return list(jobs_in(round_.submitted)) if round_.parent else list(range(round_.jobs))


def _reasons(seat: Seat, submitted: int) -> dict[int, str]:
    """Returns the name of the reason for each job that a seat voted on."""
    if seat.state != "revealed":
        return {}
    try:
        given = reasons_of(Vote(seat.accept, seat.fraud, seat.reasons, seat.evidence_root), submitted)
    except Rejected:
        return dict.fromkeys(jobs_in(submitted), UNREADABLE)
    return {job: reason.name.lower() for job, reason in given.items()}


def _cell(seat: Seat, reasons: dict[int, str], job: int) -> Cell:
    if job not in reasons:
        return Cell(seat.state, MARKS.get(seat.state, "?"), "")
    vote = verdict_in(seat.accept, seat.fraud, job).name.lower()
    return Cell(vote, MARKS[vote], reasons[job])


def _given(votes: Iterable[dict[int, str]]) -> tuple[GivenReason, ...]:
    counts: dict[str, int] = {}
    for reasons in votes:
        for name in reasons.values():
            counts[name] = counts.get(name, 0) + 1
    return tuple(GivenReason(name, _sentence(name), count) for name, count in sorted(counts.items()))


def _sentence(name: str) -> str:
    if name == UNREADABLE:
        return "the reasons of this vote do not match its bitmaps, or have a code without a meaning"
    found = Reason.__members__.get(name.upper())
    return "a check outside the protocol's own table" if found is None else found.sentence
