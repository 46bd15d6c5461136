"""What a juror has to do for a round now. PURE: the round as folded, the clock and the journal's answer come in."""

from __future__ import annotations

from enum import Enum

from protocol.chain.structs import State
from validator.rounds import FollowedRound


class Step(Enum):
    """At most one step at a time."""

    NOTHING = "nothing"
    PREPARE = "prepare"
    COMMIT = "commit"
    REVEAL = "reveal"
    DRAW = "draw"
    TALLY = "tally"


def next_step(followed: FollowedRound, node: int, certain: bool, now: float) -> Step:
    """Returns what ``node`` has to do.

    ``certain``: every eligible validator gets a seat, so judging may begin before the draw. ``now`` is the chain's time
    in unix seconds.
    """
    if followed.over:
        return Step.NOTHING
    if node not in followed.jurors:
        return Step.PREPARE if certain and not followed.jurors else Step.NOTHING
    if node in followed.revealed:
        return Step.NOTHING
    if node not in followed.committed:
        return Step.COMMIT if not followed.revealing and now <= followed.deadline else Step.NOTHING
    if followed.revealing:
        return Step.REVEAL if now <= followed.deadline else Step.NOTHING
    ends = followed.deadline + followed.terms.reveal_seconds  # counted from the commit deadline, however late the first
    return Step.REVEAL if followed.deadline < now <= ends else Step.NOTHING


def overdue_step(followed: FollowedRound, now: float) -> Step:
    """Returns the step that anyone may take now and that the round waits for, whoever should have taken it."""
    if followed.over or followed.state is State.OPEN:
        return Step.NOTHING
    if not followed.jurors:
        return Step.DRAW
    if followed.revealing:
        voted = followed.revealed >= followed.committed or now > followed.deadline
    else:
        voted = now > followed.deadline + (followed.terms.reveal_seconds if followed.committed else 0)
    return Step.TALLY if voted else Step.NOTHING


def must_decide(followed: FollowedRound, now: float, reserve_seconds: float) -> bool:
    """Whether the commit deadline is so near that what is not judged by now cannot be waited for."""
    return bool(followed.jurors) and now > followed.deadline - reserve_seconds
