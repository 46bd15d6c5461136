"""A validator's own service as the chain's events tell it: seats, votes by outcome, agreement, absences and fees.

PURE. After a reorganisation the other chain's events are folded from the beginning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from protocol.chain import events
from protocol.chain.structs import Cause, jobs_by_verdict
from protocol.wire.votes import Vote
from validator.rounds import Rounds

COUNTED = ("revealed", "abstained", "absent", "overturned", "agreed", "judged")
"""Counts of seats, of slashes, and of jobs settled: on how many its vote agreed, and how many there were."""


class ServiceRecord:
    """The service of ``node``; ``fold`` takes events in chain order."""

    def __init__(self, node: int) -> None:
        self._node = node
        self._drawn: set[tuple[int, int]] = set()
        self._submitted: dict[int, int] = {}
        self.votes: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self._fees = Counter[str]()

    def fold(self, logs: Iterable[events.Log], rounds: Rounds) -> None:
        """Folds events into ``rounds``, and into this record those that are about the node."""
        for log in logs:
            rounds.fold((log,))
            self._fold(log, rounds)

    def _fold(self, log: events.Log, rounds: Rounds) -> None:
        match log.event:
            case events.CommitteeDrawn(round=round_, attempt=attempt, jurors=jurors) if self._node in jurors:
                self._drawn.add((round_, attempt))
                if (followed := rounds.live.get(round_)) is not None:
                    self._submitted[round_] = followed.submitted
            case events.VoteRevealed(juror=self._node) as vote:
                self._count_votes(vote)
            case events.JurorSettled(juror=self._node, bits=bits) as settled:
                self.counts["agreed"] += bits
                self.counts["judged"] += self._submitted.pop(settled.round, 0).bit_count()
            case events.NodeSlashed(node=self._node, cause=cause):
                self.counts["absent" if cause is Cause.ABSENCE else "overturned"] += 1
            case events.CreditsEarned(node=self._node, amount=amount):
                self._fees[datetime.fromtimestamp(log.timestamp, UTC).strftime("%Y-%m-%d")] += amount

    def _count_votes(self, revealed: events.VoteRevealed) -> None:
        self.counts["revealed"] += 1
        if Vote(revealed.accept, revealed.fraud, revealed.reasons, revealed.evidence_root).abstains:
            self.counts["abstained"] += 1
            self._submitted.pop(revealed.round, None)
            return
        by_verdict = jobs_by_verdict(revealed.accept, revealed.fraud, self._submitted.get(revealed.round, 0))
        self.votes += Counter({verdict.name.lower(): jobs.bit_count() for verdict, jobs in by_verdict.items()})

    def figures(self, day: str) -> dict[str, Any]:
        """Returns the figures for the health file; fees are those of ``day`` and of all days, in wei."""
        return {
            "seats": len(self._drawn),
            **{
                name: self.counts[name]
                for name in ("revealed", "abstained", "absent", "overturned", "agreed", "judged")
            },
            "votes": dict(self.votes),
            "fees": {"day": day, "wei": str(self._fees[day]), "total_wei": str(self._fees.total())},
        }
