"""A juror's next step in a round. PURE: round and clock are arguments."""

from __future__ import annotations

from enum import Enum

from protocol.chain.structs import State
from validator.rounds import FollowedRound


class Step(Enum):
    """Steps of a juror in a round, one at a time."""

    NOTHING = "nothing"
    PREPARE = "prepare"
    COMMIT = "commit"
    REVEAL = "reveal"
    DRAW = "draw"
    TALLY = "tally"


def next_step(followed: FollowedRound, node: int, certain: bool, now: float) -> Step:
    """Returns the next step of ``node``.

    ``certain`` means that every eligible validator gets a seat, so that judging may begin before the draw. ``now`` is
    the chain's time in unix seconds.
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
    ends = (
        followed.deadline + followed.terms.reveal_seconds
    )  # counted from the commit deadline, even if the first reveal is late
    return Step.REVEAL if followed.deadline < now <= ends else Step.NOTHING


def owes_vote(followed: FollowedRound, node: int, now: float) -> bool:
    """Returns whether ``node`` has a seat whose vote can still be committed, or is committed and can be revealed."""
    if followed.over or node not in followed.jurors or node in followed.revealed:
        return False
    if node not in followed.committed:
        return not followed.revealing and now <= followed.deadline
    return now <= followed.deadline + (0 if followed.revealing else followed.terms.reveal_seconds)


def overdue_step(followed: FollowedRound, now: float) -> Step:
    """Returns the step that the round waits for and that anyone may take now."""
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
    """Returns whether the commit deadline is too near to wait for further judgements."""
    return bool(followed.jurors) and now > followed.deadline - reserve_seconds
