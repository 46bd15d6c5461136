"""What a juror has to do for a round now. PURE: the round as folded, the clock and the journal's answer come in."""

from __future__ import annotations

from enum import Enum

from validator.rounds import FollowedRound


class Duty(Enum):
    """At most one step at a time."""

    NOTHING = "nothing"
    PREPARE = "prepare"
    COMMIT = "commit"
    REVEAL = "reveal"
    DRAW = "draw"
    TALLY = "tally"


def duty(followed: FollowedRound, node: int, certain: bool, now: float) -> Duty:
    """Returns what ``node`` has to do.

    ``certain``: every eligible validator gets a seat, so judging may begin before the draw. ``now`` is the chain's time
    in unix seconds.
    """
    if followed.over:
        return Duty.NOTHING
    if node not in followed.jurors:
        return Duty.PREPARE if certain and not followed.jurors else Duty.NOTHING
    if node in followed.revealed:
        return Duty.NOTHING
    if node not in followed.committed:
        return Duty.COMMIT if not followed.revealing and now <= followed.deadline else Duty.NOTHING
    if followed.revealing:
        return Duty.REVEAL if now <= followed.deadline else Duty.NOTHING
    ends = followed.deadline + followed.terms.reveal_seconds  # counted from the commit deadline, however late the first
    return Duty.REVEAL if followed.deadline < now <= ends else Duty.NOTHING


def overdue(followed: FollowedRound, now: float) -> Duty:
    """Returns the step that anyone may take now and that the round waits for, whoever should have taken it."""
    if followed.over or followed.submitted is None:
        return Duty.NOTHING
    if not followed.jurors:
        return Duty.DRAW
    if followed.revealing:
        voted = followed.revealed >= followed.committed or now > followed.deadline
    else:
        voted = now > followed.deadline + (followed.terms.reveal_seconds if followed.committed else 0)
    return Duty.TALLY if voted else Duty.NOTHING


def must_decide(followed: FollowedRound, now: float, reserve_seconds: float) -> bool:
    """Whether the commit deadline is so near that what is not judged by now cannot be waited for."""
    return bool(followed.jurors) and now > followed.deadline - reserve_seconds
