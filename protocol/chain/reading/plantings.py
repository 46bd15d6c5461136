"""Jobs in which traps are planted: derived from the chain, so that worker, trainer and setter agree by themselves.

A trap is planted in the first round of its run, among those that it names, in which its node is listed. Which job it is
follows from its salt; a job that another trap of the set has taken is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.chain.events import RoundOpened
from protocol.chain.reading.client import Chain
from protocol.chain.reading.lookup import events_of
from protocol.wire.assignments import jobs_of
from protocol.wire.traps import Trap


class Plantings:
    """Jobs of one run that are traps, round by round; what was looked up is remembered."""

    def __init__(self, chain: Chain, run: int, traps: Sequence[Trap]) -> None:
        self._chain, self._run, self._traps = chain, run, traps
        self._listed: dict[int, bytes | None] = {}

    def in_round(self, round: int) -> dict[int, Trap]:
        """Returns the jobs of an opened round that are traps, each with its trap."""
        if not any(trap.covers(round) for trap in self._traps):
            return {}
        self._look_up(range(min(trap.from_ for trap in self._traps if trap.covers(round)), round + 1))
        taken: dict[int, Trap] = {}
        for trap in self._traps:
            if trap.covers(round) and self._first_round(trap, round) == round:
                free = [job for job in self._jobs(round, trap.node) if job not in taken]
                if free:
                    taken[free[int.from_bytes(trap.salt, "big") % len(free)]] = trap
        return taken

    def assignments(self, round: int) -> bytes:
        """Returns the packed assignments of a round in which ``in_round`` found a trap."""
        return self._listed.get(round) or b""

    def forget(self) -> None:
        """Forgets everything that was looked up: a reorganisation may have changed it."""
        self._listed.clear()

    def _first_round(self, trap: Trap, newest: int) -> int | None:
        rounds = range(trap.from_, newest + 1)
        return next((round for round in rounds if self._jobs(round, trap.node)), None)

    def _jobs(self, round: int, node: int) -> tuple[int, ...]:
        listed = self._listed.get(round)
        return jobs_of(listed, node) if listed else ()

    def _look_up(self, rounds: range) -> None:
        """Reads the assignments of the run's rounds; appeals and other runs' rounds have none."""
        unknown = [round for round in rounds if round not in self._listed]
        for round, stored in zip(unknown, self._chain.latest().rounds(unknown) if unknown else (), strict=True):
            own = stored.run == self._run and stored.jobs > 0
            first_block = stored.open_block or self._chain.deployment.start_block
            opened = events_of(self._chain, "Rounds", RoundOpened, round, first_block) if own else []
            if stored.run:
                self._listed[round] = opened[0].assignments if opened else None
