"""A replay names events that break the protocol, from the real ones of a whole life, one changed at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ledger.audit.audit_state import AuditState, read_terms
from ledger.audit.checks import sentences, tries
from ledger.audit.history import history
from ledger.audit.replay import conclude, replay
from ledger.audit.report import Findings
from protocol.chain.events import (
    AppealDecided,
    AppealedJobSettled,
    AppealOpened,
    CommitteeDrawn,
    CreditsBought,
    CreditsEarned,
    CreditsGranted,
    CreditsRedeemed,
    CreditsUnlocked,
    DepositLocked,
    DepositPaidOut,
    Event,
    JobsConsumed,
    JobsTainted,
    JurorSettled,
    Log,
    NodeJoined,
    NodeRegistered,
    NodeSlashed,
    NodeStruck,
    RevealStarted,
    RoundClosed,
    RoundOpened,
    RoundTallied,
    RunFunded,
    RunRefunded,
    SlashesAwarded,
    SubmissionSettled,
    Submitted,
    TermsAnnounced,
    TreasuryChanged,
    TreasurySwept,
    Unpaused,
    VoteCommitted,
    VoteRevealed,
)
from protocol.chain.reading.client import Chain
from protocol.chain.structs import Cause, SettledLeaves, Verdict
from protocol.chain.writing import calls
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from protocol.wire.reasons import Reason
from protocol.wire.votes import vote_on
from tests.conftest import TERMS
from tests.ledger import disputes
from tests.ledger.disputes import NEW_RULES, NEW_TREASURY, Dispute, as_admin, one_job
from tests.ledger.scenario import RULES, WINDOW, Story

Change = Callable[[Any], Event | None]


def told(chain: Chain) -> list[Log]:
    head = chain.head()
    return [log for block in history(chain, head.number, head.hash) for log in block.logs]


def tried(chain: Chain, logs: list[Log]) -> set[str]:
    """The names of the checks that fail on ``logs``."""
    reader = chain.latest()
    state = AuditState(read_terms(reader, chain.deployment), Findings(), tries())
    replay(state, logs)
    conclude(state)
    return {check.name for check in state.findings.results(sentences()) if check.wrong}


def changed(logs: list[Log], kind: type[Event], change: Change, where: Callable[[Any], bool] = bool) -> list[Log]:
    """The same story with the first such event changed, or left out where ``change`` gives none."""
    index = next(index for index, log in enumerate(logs) if isinstance(log.event, kind) and where(log.event))
    event = change(logs[index].event)
    return [*logs[:index], *([logs[index]._replace(event=event)] if event else []), *logs[index + 1 :]]


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
    (RunFunded, lambda event: replace(event, requester=somebody_else(event.requester)), "escrow"),
    (RoundOpened, lambda event: replace(event, policy_version=9), "rules"),
    (CreditsBought, lambda event: replace(event, owner=somebody_else(event.owner)), "conservation"),
    (CreditsRedeemed, lambda event: replace(event, to=somebody_else(event.to)), "conservation"),
    (NodeRegistered, lambda event: replace(event, owner=somebody_else(event.owner)), "conservation"),
    (JurorSettled, lambda event: None, "fees"),
    (NodeStruck, lambda event: None, "strikes"),
    (NodeStruck, lambda event: replace(event, strikes=event.strikes + 1), "strikes"),
    (NodeStruck, lambda event: replace(event, node=3 + (event.node - 2) % 3), "strikes"),
    (RoundClosed, lambda event: None, "phases"),
    (CommitteeDrawn, lambda event: replace(event, seed_block=event.seed_block + 1), "phases"),
    (RevealStarted, lambda event: None, "phases"),
    (VoteCommitted, lambda event: None, "phases"),
]

LATE: list[tuple[type[Event], int]] = [
    (Submitted, WINDOW + 1),
    (RoundClosed, -WINDOW),
    (CommitteeDrawn, WINDOW + 1),
    (VoteCommitted, WINDOW + 1),
    (VoteRevealed, WINDOW + 1),
    (RoundTallied, -WINDOW),
]
"""What came outside its phase, by so many seconds."""


def test_the_true_story_passes_and_every_lie_is_named(story: Story, chain: Chain) -> None:
    logs = told(chain)
    assert tried(chain, logs) == set()
    for kind, change, check in LIES:
        assert check in tried(chain, changed(logs, kind, change)), (kind.__name__, check)


def test_what_comes_too_late_or_too_early_is_named(story: Story, chain: Chain) -> None:
    logs = told(chain)
    for kind, seconds in LATE:
        index = next(index for index, log in enumerate(logs) if isinstance(log.event, kind))
        moved = logs[index]._replace(timestamp=logs[index].timestamp + seconds)
        assert "phases" in tried(chain, [*logs[:index], moved, *logs[index + 1 :]]), kind.__name__


def test_a_juror_that_is_paid_before_the_verdict_is_named(story: Story, chain: Chain) -> None:
    logs = told(chain)
    paid = next(index for index, log in enumerate(logs) if isinstance(log.event, JurorSettled))
    tallied = next(index for index, log in enumerate(logs) if isinstance(log.event, RoundTallied))
    early = logs[paid]._replace(event=replace(logs[paid].event, bits=0))
    assert "fees" in tried(chain, [*logs[:tallied], early, *logs[tallied:paid], *logs[paid + 1 :]])


def test_a_node_that_submits_its_jobs_in_parts_is_paid_for_each(story: Story, chain: Chain) -> None:
    market, worker = story.market, story.honest
    assignments = pack_assignments([Listing(worker.node, 2)])
    round_ = market.open_round(story.coordinator, assignments, step=4)
    parts = [pack_leaves([Leaf(job, 5 + job, bytes([job + 1]) * 32)]) for job in (0, 1)]
    signed = [market.signed(round_, worker, part) for part in parts]
    market.send(story.coordinator, calls.submit(market.deployment, round_, assignments, signed))
    market.send(story.coordinator, calls.draw(market.deployment, round_))
    vote, seats = vote_on(dict.fromkeys((0, 1), Reason.ACCEPTED), b"\x05" * 32), chain.latest().seats(round_)
    for act in (market.commit, market.reveal):
        for seat in seats:
            act(round_, story.validators[seat.node], vote)
    batch = [SettledLeaves(worker.node, part) for part in parts]
    market.send(story.coordinator, calls.settle(market.deployment, round_, 0, assignments, batch))
    logs = told(chain)
    assert sum(isinstance(log.event, CreditsEarned) and log.event.node == worker.node for log in logs) == 3
    assert tried(chain, logs) == set()


def test_a_refund_to_somebody_else_is_named(story: Story, chain: Chain) -> None:
    market = story.market
    for verb, more in (("close", ()), ("refund", (1,))):
        market.send(story.requester, calls.call(market.deployment, "Market", verb, market.run, *more))
    logs = told(chain)
    assert tried(chain, logs) == set()
    thief = somebody_else(story.requester.address)
    logs = changed(logs, RunRefunded, lambda event: replace(event, requester=thief))
    logs = changed(logs, CreditsUnlocked, lambda event: replace(event, owner=thief))
    assert "escrow" in tried(chain, logs)


def somebody_else(address: str) -> str:
    """Another address than this one, which may end with any digit."""
    return address[:-1] + ("1" if address.endswith("0") else "0")


def overturned(event: NodeSlashed) -> bool:
    return event.cause is Cause.OVERTURNED


def worker_joined_anew(event: NodeJoined) -> bool:
    return event.rules_hash == NEW_RULES and event.node == 1


def validator_joined(event: NodeJoined) -> bool:
    return event.node == 3


def later(event: RoundOpened) -> bool:
    """One of the rounds opened after new terms were announced."""
    return event.round > 6


APPEAL_LIES: list[tuple[type[Event], Change, str, Callable[[Any], bool]]] = [
    (AppealOpened, lambda event: replace(event, deposit=event.deposit + 1), "appeals", bool),
    (AppealOpened, lambda event: replace(event, against=Verdict.VOID), "appeals", bool),
    (AppealOpened, lambda event: replace(event, units=event.units + 1), "appeals", bool),
    (AppealOpened, lambda event: replace(event, appellant=somebody_else(event.appellant)), "escrow", bool),
    (DepositLocked, lambda event: replace(event, amount=event.amount - 1), "escrow", bool),
    (DepositLocked, lambda event: None, "escrow", bool),
    (CommitteeDrawn, lambda event: replace(event, jurors=event.jurors[::-1]), "draws", lambda event: event.round == 2),
    (JurorSettled, lambda event: replace(event, paid=event.paid + 1), "fees", lambda event: event.round == 2),
    (JobsTainted, lambda event: None, "appeals", bool),
    (JobsTainted, lambda event: replace(event, jobs=event.jobs << 1), "appeals", bool),
    (AppealedJobSettled, lambda event: replace(event, verdict=Verdict.FRAUD), "appeals", bool),
    (AppealedJobSettled, lambda event: replace(event, paid=event.paid + 1), "appeals", bool),
    (NodeSlashed, lambda event: None, "slashes", overturned),
    (NodeSlashed, lambda event: replace(event, node=3 + (event.node - 2) % 4), "slashes", overturned),
    (NodeSlashed, lambda event: replace(event, amount=event.amount - 1, bond=event.bond + 1), "slashes", overturned),
    (SlashesAwarded, lambda event: replace(event, amount=event.amount + 1), "treasury", bool),
    (CreditsGranted, lambda event: replace(event, owner=somebody_else(event.owner)), "treasury", bool),
    (CreditsGranted, lambda event: None, "treasury", bool),
    (DepositPaidOut, lambda event: replace(event, to=somebody_else(event.to)), "escrow", bool),
    (CreditsUnlocked, lambda event: replace(event, amount=event.amount - 1), "escrow", bool),
    (AppealDecided, lambda event: replace(event, fees=event.fees + 1), "appeals", bool),
    (AppealDecided, lambda event: replace(event, decided=False), "appeals", bool),
    (AppealDecided, lambda event: replace(event, awarded=0), "appeals", bool),
    (AppealDecided, lambda event: None, "appeals", bool),
    (SubmissionSettled, lambda event: replace(event, void_jobs=event.void_jobs | 4), "settlements", bool),
    (TreasurySwept, lambda event: replace(event, amount=event.amount - 1), "treasury", bool),
    (TreasuryChanged, lambda event: None, "treasury", lambda event: event.treasury == NEW_TREASURY),
    (TermsAnnounced, lambda event: replace(event, effective_at=event.effective_at - 1), "rules", bool),
    (TermsAnnounced, lambda event: None, "reserves", bool),
    (
        NodeJoined,
        lambda event: replace(event, rules_hash=RULES),
        "assignments",
        worker_joined_anew,
    ),
    (NodeJoined, lambda event: replace(event, rules_hash=b"\x77" * 32), "rules", validator_joined),
    (NodeJoined, lambda event: None, "draws", validator_joined),
    (RoundOpened, lambda event: replace(event, deadline=event.deadline + 1), "rules", later),
    (Unpaused, lambda event: None, "rules", bool),
]


def test_every_lie_about_an_appeal_or_a_change_of_rules_is_named(dispute: Dispute, chain: Chain) -> None:
    disputes.told(dispute)
    renew(dispute)
    logs = told(chain)
    assert tried(chain, logs) == set()
    for kind, change, check, where in APPEAL_LIES:
        assert check in tried(chain, changed(logs, kind, change, where)), (kind.__name__, check)


def renew(dispute: Dispute) -> None:
    """New terms take effect; a round of them is opened after a pause."""
    market, worker = dispute.market, dispute.workers[0]
    terms = disputes.renewed(dispute.terms, NEW_RULES)
    market.send(dispute.requester, calls.announce(market.deployment, market.run, terms))
    disputes.serve(dispute, NEW_RULES)
    market.pass_time(TERMS.market.notice_seconds)
    market.send(worker.owner, calls.join(market.deployment, market.run, worker.node, NEW_RULES))
    for verb in ("pause", "unpause"):
        as_admin(market, calls.call(market.deployment, "Admin", verb))
    market.open_round(dispute.coordinator, one_job(dispute))
