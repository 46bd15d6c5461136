"""Rounds in memory, as their events tell them. PURE.

A reorganisation is handled by folding the other chain's events from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from protocol.chain.events import Log, RoundOpened
from protocol.chain.round_changes import Changes, SeatKey, SubmittedLeaf, advance, changed_round, opening
from protocol.chain.structs import State, Verdict, verdict_in
from protocol.wire.votes import Vote


@dataclass(slots=True)
class SeatState:
    """A juror's seat in one attempt; ``vote`` once it was revealed."""

    committed: bool = False
    revealed: bool = False
    vote: Vote | None = None


@dataclass(slots=True)
class RoundState:
    """A round, or the round that tries one of its jobs on appeal.

    Times are unix seconds; ``submitted``, ``accepted``, ``fraud``, ``consumed``, ``appealed``, ``concluded`` are
    bitmaps of jobs; a job both ``accepted`` and ``fraud`` is unavailable.

    Args:
        number: identifies the round; an appeal round has a number of its own.
        parent: the round appealed against; 0 for other rounds.
        jobs: jobs listed; 0 for appeal rounds.
        open_block, opened_at: number and time of the block that opened the round; an appeal round has the block 0.
        beacon: hash of that block, which is the parent's for an appeal round.
        deadline: end of the present phase.
        closed_at: time of the block in which work ended.
        revealing: committing has ended.
        holding: the round is void, and its jobs still count as in flight.
        appealed, concluded: jobs ever appealed, and those whose appeal has ended.
        appeals: number of appeals not yet decided.
    """

    number: int
    run: int
    parent: int
    state: State
    step: int
    policy_version: int
    jobs: int
    slot_count: int
    opened_at: int
    open_block: int
    deadline: int
    beacon: bytes
    assignments: bytes
    submitted: int = 0
    closed_at: int = 0
    attempt: int = 0
    revealing: bool = False
    holding: bool = False
    accepted: int = 0
    fraud: int = 0
    consumed: int = 0
    appealed: int = 0
    concluded: int = 0
    appeals: int = 0
    seats: dict[SeatKey, SeatState] = field(default_factory=dict)
    leaves: dict[int, SubmittedLeaf] = field(default_factory=dict)

    @property
    def jurors(self) -> tuple[int, ...]:
        """The jurors of the present attempt, in the order they were drawn."""
        return tuple(juror for attempt, juror in self.seats if attempt == self.attempt)

    def verdict(self, job: int) -> Verdict:
        """Returns the verdict on one job, as appeals have left it."""
        return verdict_in(self.accepted, self.fraud, job)

    @property
    def usable(self) -> int:
        """Bitmap of the jobs that may be trained on: accepted, not consumed, not under appeal."""
        return self.accepted & ~self.fraud & ~self.consumed & (~self.appealed | self.concluded)

    def apply(self, changes: Changes) -> None:
        """Takes the changes of one event in."""
        for name, value in changes.fields.items():
            setattr(self, name, value)
        for key, seat in changes.seats.items():
            self.seats[key] = replace(self.seats.get(key, SeatState()), **seat)
        self.leaves.update(changes.leaves)


def fold(rounds: dict[int, RoundState], log: Log) -> RoundState | None:
    """Takes one log in and returns the round that it begins or changes, or None; appeal rounds are left out."""
    event = log.event
    if isinstance(event, RoundOpened):
        rounds[event.round] = RoundState(event.round, **opening(log, event))
        return rounds[event.round]
    round_ = rounds.get(changed_round(event) or 0)
    if round_ is not None:
        round_.apply(advance(round_, log))
    return round_
