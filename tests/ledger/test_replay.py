"""A replay names events that break the protocol, from the real ones of a whole life, one changed at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ledger.audit.history import history
from ledger.audit.replay import conclude, replay
from ledger.audit.report import Findings
from ledger.audit.trial import Trial, read_terms
from protocol.chain.client import Chain
from protocol.chain.events import (
    CommitteeDrawn,
    CreditsEarned,
    Event,
    JobsConsumed,
    JurorSettled,
    Log,
    NodeSlashed,
    RoundOpened,
    RoundTallied,
    RunFunded,
    SubmissionSettled,
    Submitted,
    VoteRevealed,
)
from tests.ledger.scenario import Story

Change = Callable[[Any], Event | None]


def told(chain: Chain) -> list[Log]:
    head = chain.head()
    return [log for block in history(chain, head.number, head.hash) for log in block.logs]


def tried(chain: Chain, logs: list[Log]) -> set[str]:
    """The names of the checks that fail on ``logs``."""
    reader = chain.latest()
    trial = Trial(read_terms(reader, chain.deployment), Findings())
    replay(trial, logs)
    conclude(trial)
    return {check.name for check in trial.findings.checks() if check.wrong}


def changed(logs: list[Log], kind: type[Event], change: Change) -> list[Log]:
    """The same story with the first event of this kind changed, or left out where ``change`` gives none."""
    index = next(index for index, log in enumerate(logs) if isinstance(log.event, kind))
    event = change(logs[index].event)
    return [*logs[:index], *([replace(logs[index], event=event)] if event else []), *logs[index + 1 :]]


LIES: list[tuple[type[Event], Change, str]] = [
    (Submitted, lambda event: replace(event, uri="elsewhere"), "signatures"),
    (Submitted, lambda event: replace(event, node=event.node + 1), "assignments"),
    (RoundOpened, lambda event: replace(event, reserved=event.reserved + 1), "reserves"),
    (CommitteeDrawn, lambda event: replace(event, jurors=event.jurors[::-1]), "draws"),
    (CommitteeDrawn, lambda event: replace(event, seed=bytes(32)), "seeds"),
    (VoteRevealed, lambda event: replace(event, accept=event.accept | 4), "commitments"),
    (VoteRevealed, lambda event: None, "tallies"),
    (RoundTallied, lambda event: replace(event, accepted=event.accepted | 8, fraud=event.fraud & ~8), "tallies"),
    (SubmissionSettled, lambda event: replace(event, paid=event.paid + 1), "settlements"),
    (SubmissionSettled, lambda event: None, "credits"),
    (CreditsEarned, lambda event: replace(event, amount=event.amount - 1), "credits"),
    (CreditsEarned, lambda event: None, "credits"),
    (JurorSettled, lambda event: replace(event, bits=event.bits + 1), "fees"),
    (NodeSlashed, lambda event: None, "slashes"),
    (NodeSlashed, lambda event: replace(event, amount=event.amount + 1, bond=event.bond - 1), "slashes"),
    (JobsConsumed, lambda event: replace(event, jobs=0b11), "consumption"),
    (JobsConsumed, lambda event: replace(event, jobs=0b1000), "consumption"),
    (RunFunded, lambda event: replace(event, escrow=event.escrow + 1), "amounts"),
]


def test_the_true_story_passes_and_every_lie_is_named(story: Story, chain: Chain) -> None:
    logs = told(chain)
    assert tried(chain, logs) == set()
    for kind, change, check in LIES:
        assert check in tried(chain, changed(logs, kind, change)), (kind.__name__, check)
