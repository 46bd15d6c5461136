"""Drives the rounds of one run or several: follows the chain, sends the transactions that are due, follows again.

    advance: ┌─> follow the chain ──> open a round ──> relay claims ──> close, draw, tally, free ──> settle one batch
             └────────────── again while anything was sent ──────────────┘

Appeals are drawn and tallied like any round; a round ends (``finish``) with its last batch or its last appeal. A
transaction that enables another is followed by it in the same tick; settlements come after everything else.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from coordinator.driver.batching import Batcher
from coordinator.driver.opener import RoundOpener
from coordinator.driver.schedule import DueStep, Verb, step_of
from coordinator.mirror.market import Market
from coordinator.mirror.mirror import Mirror
from protocol.chain.reverts import Reverted
from protocol.chain.structs import SettledLeaves
from protocol.chain.writing import calls
from protocol.chain.writing.calls import Call
from protocol.chain.writing.sender import Sender

log = structlog.get_logger()

MOST_PASSES = 64
"""Most passes of one ``advance``: enough for two dozen rounds, and a bound on the loop."""

RETRY_SECONDS = 0.5
"""Pause before a step is sent again that the contract refused, because its clock or blocks differ from the mirror's."""


WITH_ASSIGNMENTS = {Verb.CLOSE: calls.close_round, Verb.FREE: calls.free, Verb.FINISH: calls.finish}
"""Steps whose call needs the round's assignments."""

ALONE = {Verb.DRAW: calls.draw, Verb.TALLY: calls.tally, Verb.EXPIRE: calls.expire}
"""Steps whose call needs the round's number alone."""


@dataclass(frozen=True, slots=True)
class DueTransaction:
    """A due step and the call that takes it."""

    step: DueStep
    call: Call


class Driver:
    """Drives the runs of its ``openers``, in one process and one thread."""

    def __init__(self, mirror: Mirror, sender: Sender, openers: Iterable[RoundOpener], batcher: Batcher) -> None:
        """Reads the longest duration of a round from the chain. Raises ``Unavailable``."""
        self._mirror, self._sender, self._batcher = mirror, sender, batcher
        self._openers = deque(openers)
        self._runs = {opener.run for opener in self._openers}
        self._not_before: dict[str, float] = {}
        self._longest_seconds = sender.chain.latest().market_terms().max_round_seconds

    def advance(self) -> None:
        """Sends everything that is due. Raises ``Unavailable`` if chain, database or Redis do not answer."""
        if self._sender.unfinished():
            self._sender.reconcile()  # after a crash: transactions in progress first, so that none is sent twice
        self._sender.tend()
        for _ in range(MOST_PASSES):
            market = self._mirror.follow()
            if self._runs.isdisjoint(market.runs) or not self._pass(market):
                return

    def _pass(self, market: Market) -> bool:
        """Sends what is due once. Returns True if anything was sent."""
        now = time.time()
        chain_time = max(self._mirror.timestamp, int(now))
        self._mirror.take_effect(chain_time)
        moved = self._open(market, now)
        moved |= self._batcher.advance(market, now, chain_time)
        due = self._due(market, chain_time, time.monotonic())
        for each in due:
            if each.step.verb is not Verb.SETTLE:
                moved |= self._take(market, each)
        settles = [each for each in due if each.step.verb is Verb.SETTLE]
        return moved or any(self._take(market, each) for each in settles[:1])

    def _open(self, market: Market, now: float) -> bool:
        """Opens at most one round: the market shows it, and the capacity that is left, after the next look.

        The runs take turns in being first.
        """
        self._openers.rotate(-1)
        return any(opener.advance(market, now) for opener in self._openers if opener.run in market.runs)

    def _due(self, market: Market, chain_time: int, now: float) -> list[DueTransaction]:
        """Returns the steps due in the runs' rounds, oldest round first, without those put off."""
        steps = []
        for round_id in sorted(market.live):
            round_ = market.rounds[round_id]
            if round_.run not in self._runs:
                continue
            unsettled = [
                row for row in market.submitted.get(round_id, []) if (round_id, row.batch) not in market.settled
            ]
            step = step_of(round_, market.jurors(round_), unsettled, self._longest_seconds, chain_time)
            if step is not None and self._not_before.get(step.key, 0.0) <= now:
                steps.append(DueTransaction(step, self._call(market, step)))
        return steps

    def _call(self, market: Market, step: DueStep) -> Call:
        deployment, round_ = self._sender.chain.deployment, market.rounds[step.round]
        if step.verb is Verb.SETTLE:
            rows = [row for row in market.submitted[step.round] if row.batch == step.batch]
            leaves = [SettledLeaves(row.node, row.leaves) for row in rows]
            return calls.settle(deployment, step.round, step.batch, round_.assignments, leaves)
        if step.verb in WITH_ASSIGNMENTS:
            return WITH_ASSIGNMENTS[step.verb](deployment, step.round, round_.assignments)
        return ALONE[step.verb](deployment, step.round)

    def _take(self, market: Market, due: DueTransaction) -> bool:
        """Sends one step and returns True, or puts it off if the contract refuses it."""
        try:
            self._sender.send(due.step.key, due.call)
        except Reverted as refusal:
            # Another party has taken the step, or the seed block is not mined yet.
            self._not_before[due.step.key] = time.monotonic() + RETRY_SECONDS
            _note_settled(market, due.step, refusal)
            log.debug("step_refused", step=due.step.key, error=str(refusal))
            return False
        if due.step.verb is Verb.SETTLE:
            # The settlement of a batch whose jobs were all appealed emits no event.
            market.settled.add((due.step.round, due.step.batch))
        log.info("round_moved", round=due.step.round, verb=due.step.verb.value)
        return True


def _note_settled(market: Market, step: DueStep, refusal: Reverted) -> None:
    """Notes from a refusal, for lack of an event, that a batch is settled or that a settlement was undone."""
    if refusal.name == "AlreadySettled":
        market.settled.add((step.round, step.batch))
    elif refusal.name == "NotFinished":
        # A reorganisation undid a settlement in blocks that the mirror, behind by its confirmations, never read.
        market.settled -= {batch for batch in market.settled if batch[0] == step.round}
