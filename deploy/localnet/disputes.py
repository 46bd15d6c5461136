"""Fraud verdicts, appeals against them and their outcomes, folded from the chain."""

from __future__ import annotations

from protocol.chain.events import (
    AppealDecided,
    AppealedJobSettled,
    AppealOpened,
    Event,
    NodeSlashed,
    RoundSettled,
    RoundTallied,
    SlashesAwarded,
    Submitted,
)
from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import Rollback, Tail
from protocol.chain.structs import Cause
from protocol.wire.assignments import jobs_in, unpack_leaves

Job = tuple[int, int]
"""(round, job)."""


class Disputes:
    """In-memory fold of the chain's events. Amounts are in wei."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self._restart()

    def _restart(self) -> None:
        self.tail = Tail(self.chain)
        self.workers: dict[Job, int] = {}
        self.rounds: set[int] = set()
        self.fraud: set[Job] = set()
        self.appeals: dict[Job, AppealOpened] = {}
        self.decisions: dict[Job, AppealDecided] = {}
        self.settled: dict[Job, AppealedJobSettled] = {}
        self.ended: set[int] = set()
        self.slashes: list[NodeSlashed] = []
        self.awarded = 0

    def refresh(self) -> None:
        """Folds new events."""
        while blocks := self.tail.poll():
            if isinstance(blocks, Rollback):
                self._restart()
                continue
            for block in blocks:
                for log in block.logs:
                    self._fold(log.event)

    def condemned(self, node: int) -> list[Job]:
        """Returns a worker's jobs that were judged fraudulent and not appealed, ascending."""
        return sorted(job for job in self.fraud - self.appeals.keys() if self.workers.get(job) == node)

    def slashed(self, nodes: set[int], cause: Cause) -> int:
        """Returns the amount slashed from these nodes for this cause."""
        return sum(slash.amount for slash in self.slashes if slash.node in nodes and slash.cause is cause)

    @property
    def decided(self) -> bool:
        """True if there were appeals, and all of them and their rounds have ended."""
        return bool(self.appeals) and all(job in self.decisions and job[0] in self.ended for job in self.appeals)

    def _fold(self, event: Event) -> None:
        match event:
            case Submitted(round=round_, node=node, leaves=leaves):
                self.workers |= {(round_, leaf.job): node for leaf in unpack_leaves(leaves)}
            case RoundTallied(round=round_, fraud=fraud):
                # The round that tries an appeal is tallied too, but has no submissions.
                self.fraud |= {(round_, job) for job in jobs_in(fraud) if (round_, job) in self.workers}
            case AppealOpened(round=round_, job=job):
                self.appeals[round_, job] = event
            case AppealDecided(round=round_, job=job):
                self.decisions[round_, job] = event
            case AppealedJobSettled(round=round_, job=job):
                self.settled[round_, job] = event
            case RoundSettled(round=round_):
                self.ended.add(round_)
            case NodeSlashed():
                self.slashes.append(event)
            case SlashesAwarded(amount=amount):
                self.awarded += amount
