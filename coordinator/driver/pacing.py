"""Number of rounds to keep in flight, and reasons to open none. PURE.

Rounds are opened ahead of the trainer. A rollout of version v can be used iff n - v <= async level when version n + 1
is made. With at most async level + 1 rounds in flight, each made by the newest version at its opening, none goes stale
while the trainer takes them in order, and workers always have a next round:

    async level 2      trainer makes n+1 from    round of version n-2
                       in flight meanwhile       rounds of versions n-1 and n
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.tables import RoundRow
from protocol.chain.structs import State

STARVED_SECONDS = 10.0
"""Time without a version after which a trainer with judged rounds gets more of them."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """A run's newest ``version``, free ``escrow``, and the escrow that one round needs (``need``), in credit wei."""

    run: int
    version: int
    closed: bool
    opened: int
    escrow: int
    need: int


@dataclass(frozen=True, slots=True)
class PacingLimits:
    """The run's async level, and the number of rounds and the version at which to stop; None for no limit."""

    async_level: int
    max_rounds: int | None
    last_version: int | None


def in_flight(rounds: Iterable[RoundRow], version: int, async_level: int) -> int:
    """Counts the rounds that the trainer may still use.

    A round is no longer in flight once it is void or stale, once it is judged without an accepted job, or once the
    trainer has consumed from it or from a later round.
    """
    rounds = list(rounds)
    consumed_up_to = max((each.id for each in rounds if each.consumed), default=-1)
    return sum(_in_flight(each, consumed_up_to, version, async_level) for each in rounds)


def _in_flight(each: RoundRow, consumed_up_to: int, version: int, async_level: int) -> bool:
    if each.state == State.VOID or version - each.policy_version > async_level:
        return False
    if each.state < State.TALLIED:
        return True
    return bool(each.accepted & ~each.fraud) and each.id > consumed_up_to


def rounds_ahead(
    run: RunProgress, pacing: PacingLimits, idle_seconds: float = 0.0, patience: float = STARVED_SECONDS
) -> int:
    """Returns the number of rounds that may be in flight.

    It is one more than the async level, and near the last version at most one more than the versions left. Beyond the
    ``patience`` it is twice as many, and then one more each time that the wait has doubled: where few groups are of
    use, training goes on, and a trainer that is down costs few rounds.

    Args:
        run: progress of the run.
        pacing: limits.
        idle_seconds: since all rounds are judged and the trainer has consumed nothing.
        patience: seconds that a trainer with enough groups may take for a step.
    """
    most = pacing.async_level + 1
    if idle_seconds > patience:
        return 2 * most + int(math.log2(idle_seconds / patience))
    return most if pacing.last_version is None else min(most, pacing.last_version - run.version + 1)


def starvation(idle_seconds: float, in_flight: int, patience: float = STARVED_SECONDS) -> str:
    """Returns the reason for which judged rounds wait for their trainer, or an empty string if they do not."""
    if idle_seconds <= patience or not in_flight:
        return ""
    return (
        f"the trainer has made no version of {in_flight} judged rounds: it takes long, is down, or needs more groups "
        "with unlike rewards; see its log"
    )


def all_judged(rounds: Iterable[RoundRow]) -> bool:
    """True if every round has its verdict, so that no worker or validator is busy."""
    return all(each.state >= State.TALLIED for each in rounds)


def end_reason(run: RunProgress, pacing: PacingLimits) -> str | None:
    """Returns the reason for which no more rounds are opened, or None."""
    if run.closed:
        return f"run {run.run} is closed"
    if pacing.last_version is not None and run.version >= pacing.last_version:
        return f"done: version {run.version} is published"
    if pacing.max_rounds is not None and run.opened >= pacing.max_rounds:
        return f"done: {run.opened} rounds were opened"
    return None


def funding_shortfall(run: RunProgress) -> str | None:
    """Returns the amount missing for one more round and the remedy, or None if the escrow covers it."""
    if run.escrow >= run.need:
        return None
    return (
        f"run unfunded: a round reserves {run.need} and the escrow holds {run.escrow}; "
        f"fund it with `assize run fund {run.run} {run.need - run.escrow}` or more"
    )
