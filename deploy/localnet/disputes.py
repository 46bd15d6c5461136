"""Fraud verdicts, appeals against them and their outcomes, folded from the chain."""

from __future__ import annotations

from protocol.chain.events import AppealDecided, AppealedJobSettled, AppealOpened, Log, NodeSlashed, SlashesAwarded
from protocol.chain.reading.client import Chain
from protocol.chain.reading.tail import Rollback, Tail
from protocol.chain.round_state import RoundState, fold
from protocol.chain.structs import Cause, State
from protocol.wire.assignments import jobs_in

Job = tuple[int, int]
"""(round, job)."""


class Disputes:
    """In-memory fold of the chain's events. Amounts are in wei."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self._restart()

    def _restart(self) -> None:
        self.tail = Tail(self.chain)
        self.rounds: dict[int, RoundState] = {}
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
                    self._fold(log)

    @property
    def submitted(self) -> int:
        """The number of rounds with a submission."""
        return sum(bool(round_.leaves) for round_ in self.rounds.values())

    @property
    def appeals(self) -> dict[Job, AppealOpened]:
        """Every appeal, by the job it is about."""
        return {
            (round_.number, job): dispute.opened
            for round_ in self.rounds.values()
            for job, dispute in round_.disputes.items()
            if dispute.opened
        }

    @property
    def decisions(self) -> list[AppealDecided]:
        """The appeals decided so far, in the order they were opened."""
        return [found for each in self.rounds.values() for one in each.disputes.values() if (found := one.decided)]

    @property
    def settled(self) -> list[AppealedJobSettled]:
        """The appealed jobs settled so far."""
        return [found for each in self.rounds.values() for one in each.disputes.values() if (found := one.settled)]

    @property
    def decided(self) -> bool:
        """True once there were appeals, each is decided, and each round appealed against has ended."""
        disputed = [round_ for round_ in self.rounds.values() if round_.disputes]
        return bool(disputed) and all(round_.state is State.SETTLED and not round_.appeals for round_ in disputed)

    def condemned(self, node: int) -> list[Job]:
        """Returns a worker's jobs that were judged fraudulent and not appealed, ascending."""
        return sorted(
            (round_.number, job)
            for round_ in self.rounds.values()
            for job in jobs_in(round_.fraud & ~round_.appealed)
            if round_.leaves[job].node == node
        )

    def slashed(self, nodes: set[int], cause: Cause) -> int:
        """Returns the amount slashed from these nodes for this cause."""
        return sum(slash.amount for slash in self.slashes if slash.node in nodes and slash.cause is cause)

    def _fold(self, log: Log) -> None:
        fold(self.rounds, log)
        if isinstance(log.event, NodeSlashed):
            self.slashes.append(log.event)
        elif isinstance(log.event, SlashesAwarded):
            self.awarded += log.event.amount
