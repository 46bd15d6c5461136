"""Drives the rounds of one run: looks at the chain, sends what is due, looks again.

    advance: ┌─> follow the chain ──> open a round ──> relay claims ──> close, draw, tally, free ──> settle one batch
             └────────────── again while anything was sent ──────────────┘

Appeals are drawn and tallied like any round; a round ends (``finish``) with its last batch or its last appeal.

A transaction sent enables the next at once, so a phase never waits for the next tick; money waits for everything else.
"""

from __future__ import annotations

import time
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
"""Passes of one ``advance``: enough for everything two dozen rounds can need, and yet an end."""

RETRY_SECONDS = 0.5
"""Pause before a step is tried again that the contract refused: its clock or its blocks are not ours."""


@dataclass(frozen=True, slots=True)
class DueTransaction:
    """A transaction that moves a round on."""

    step: DueStep
    call: Call


class Driver:
    """The clock of one run. Not safe to share between threads: one process, one thread drives."""

    def __init__(self, run: int, mirror: Mirror, sender: Sender, opener: RoundOpener, batcher: Batcher) -> None:
        """Reads from the chain how long a round may last at most. Raises ``Unavailable`` where it does not answer."""
        self._run = run
        self._mirror = mirror
        self._sender = sender
        self._opener = opener
        self._batcher = batcher
        self._not_before: dict[str, float] = {}
        self._longest_seconds = sender.chain.latest().market_terms().max_round_seconds

    def advance(self) -> None:
        """Does everything that is due now. Raises ``Unavailable`` where chain, database or Redis do not answer."""
        if self._sender.unfinished():
            self._sender.reconcile()  # after a crash: what was under way first, so that nothing is done twice
        self._sender.tend()
        for _ in range(MOST_PASSES):
            market = self._mirror.follow()
            if self._run not in market.runs or not self._pass(market):
                return

    def _pass(self, market: Market) -> bool:
        """One look at everything; True where something was sent."""
        now = time.time()
        chain_time = max(self._mirror.timestamp, int(now))
        self._mirror.take_effect(chain_time)
        moved = self._opener.advance(market, now)
        moved |= self._batcher.advance(market, now, chain_time)
        due = self._due(market, chain_time, time.monotonic())
        for each in due:
            if each.step.verb is not Verb.SETTLE:
                moved |= self._take(market, each)
        settles = [each for each in due if each.step.verb is Verb.SETTLE]
        return moved or any(self._take(market, each) for each in settles[:1])

    def _due(self, market: Market, chain_time: int, now: float) -> list[DueTransaction]:
        """The steps due in this run's rounds, oldest round first, less those put off."""
        steps = []
        for round_id in sorted(market.live):
            round_ = market.rounds[round_id]
            if round_.run != self._run:
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
        match step.verb:
            case Verb.CLOSE:
                return calls.close_round(deployment, step.round, round_.assignments)
            case Verb.DRAW:
                return calls.draw(deployment, step.round)
            case Verb.TALLY:
                return calls.tally(deployment, step.round)
            case Verb.FREE:
                return calls.free(deployment, step.round, round_.assignments)
            case Verb.FINISH:
                return calls.finish(deployment, step.round, round_.assignments)
            case Verb.EXPIRE:
                return calls.expire(deployment, step.round)
            case Verb.SETTLE:
                rows = [row for row in market.submitted[step.round] if row.batch == step.batch]
                leaves = [SettledLeaves(row.node, row.leaves) for row in rows]
                return calls.settle(deployment, step.round, step.batch, round_.assignments, leaves)

    def _take(self, market: Market, due: DueTransaction) -> bool:
        """Sends one step; one that is refused is put off, since others may be due all the same."""
        try:
            self._sender.send(due.step.key, due.call)
        except Reverted as refusal:
            # Somebody else was faster, or the seed block is not there yet.
            self._not_before[due.step.key] = time.monotonic() + RETRY_SECONDS
            _learn(market, due.step, refusal)
            log.debug("step_refused", step=due.step.key, error=str(refusal))
            return False
        if due.step.verb is Verb.SETTLE:
            # Where every job of it was appealed, no event tells that the batch is settled.
            market.settled.add((due.step.round, due.step.batch))
        log.info("round_moved", round=due.step.round, verb=due.step.verb.value)
        return True


def _learn(market: Market, step: DueStep, refusal: Reverted) -> None:
    """Takes in what a refusal tells and no event does: that a batch is settled, or that one is not after all."""
    if refusal.name == "AlreadySettled":
        market.settled.add((step.round, step.batch))
    elif refusal.name == "NotFinished":
        # A settlement was undone in blocks that the mirror, some confirmations behind, never saw.
        market.settled -= {batch for batch in market.settled if batch[0] == step.round}
