"""Whether another round is opened now, and if not, why not. PURE.

Rounds are opened ahead of the trainer. A rollout of version v can be used iff n - v <= async level when version n + 1
is made, so with at most async level + 1 rounds in flight, each made by the newest version at its opening, none goes
stale while the trainer takes them in order, and workers always have a next round:

    async level 2      trainer makes n+1 from    round of version n-2
                       in flight meanwhile       rounds of versions n-1 and n
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protocol.chain.structs import State


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """Of one round: where it stands, the version it was made with, bitmaps of its accepted and consumed jobs."""

    round: int
    state: State
    policy_version: int
    accepted: int
    consumed: int


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Of the run: its newest ``version``, free ``escrow`` and the escrow one round needs (``need``), in credit wei."""

    run: int
    version: int
    closed: bool
    opened: int
    escrow: int
    need: int


@dataclass(frozen=True, slots=True)
class PacingLimits:
    """How far the coordinator goes: the run's async level, and where to stop (None for never)."""

    async_level: int
    max_rounds: int | None
    last_version: int | None


def in_flight(rounds: Iterable[RoundProgress], version: int, async_level: int) -> int:
    """Counts the rounds the trainer may still use or is about to.

    A round is no longer in flight when it was voided, went stale, or its verdict is in and nothing of it was accepted,
    or the trainer consumed from it or from a later one.
    """
    rounds = list(rounds)
    consumed_up_to = max((each.round for each in rounds if each.consumed), default=-1)
    return sum(_in_flight(each, consumed_up_to, version, async_level) for each in rounds)


def _in_flight(each: RoundProgress, consumed_up_to: int, version: int, async_level: int) -> bool:
    if each.state is State.VOID or version - each.policy_version > async_level:
        return False
    if each.state < State.TALLIED:
        return True
    return bool(each.accepted) and each.round > consumed_up_to


def rounds_ahead(run: RunProgress, pacing: PacingLimits, starved: bool = False) -> int:
    """Returns how many rounds may be in flight: one more than the async level; near the last version one for each
    version left, and the extra one a step may wait for. Twice as many where the trainer is ``starved``: every round in
    flight is judged, it has made nothing of them for a while, and more samples may be what it lacks.
    """
    most = (pacing.async_level + 1) * (2 if starved else 1)
    return most if pacing.last_version is None or starved else min(most, pacing.last_version - run.version + 1)


def all_judged(rounds: Iterable[RoundProgress]) -> bool:
    """Whether nobody is working: each round has its verdict."""
    return all(each.state >= State.TALLIED for each in rounds)


def end_reason(run: RunProgress, pacing: PacingLimits) -> str | None:
    """Returns why no round is opened any more, or None."""
    if run.closed:
        return f"run {run.run} is closed"
    if pacing.last_version is not None and run.version >= pacing.last_version:
        return f"done: version {run.version} is published"
    if pacing.max_rounds is not None and run.opened >= pacing.max_rounds:
        return f"done: {run.opened} rounds were opened"
    return None


def funding_shortfall(run: RunProgress) -> str | None:
    """Returns what is missing for one more round, and how to mend it, or None where the escrow covers it."""
    if run.escrow >= run.need:
        return None
    return (
        f"run unfunded: a round reserves {run.need} and the escrow holds {run.escrow}; "
        f"fund it with `assize run fund {run.run} {run.need - run.escrow}` or more"
    )
