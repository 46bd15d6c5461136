"""What is tried of the events before a verdict: listing, submissions, draws, votes."""

from __future__ import annotations

from eth_abi import encode
from eth_utils import keccak

from ledger.audit.trial import Check, Trial
from ledger.book import MemoryBook, known
from ledger.facts import Checkpoint, Membership, Node, Round, Run, Seat, Slot
from ledger.fold.rounds import eligible_slots, listed_jobs, serves
from ledger.fold.runs import terms_at
from ledger.fold.treasury import admin_of
from protocol.chain.events import (
    CommitteeDrawn,
    CommitteeRedrawn,
    Event,
    Log,
    RevealStarted,
    RoundClosed,
    RoundOpened,
    RoundTallied,
    Submitted,
    VoteCommitted,
    VoteRevealed,
)
from protocol.errors import Rejected
from protocol.wire import auth
from protocol.wire.assignments import assignee_of, unpack_leaves
from protocol.wire.votes import ABSTENTION, Vote, commitment

RANDOM_TRIES = 4
"""Random tries for each slot before the draw probes linearly."""


# Work


def _listing(trial: Trial, log: Log, event: RoundOpened) -> None:
    rules = terms_at(trial.book, event.run, log.timestamp).rules_hash
    listed = listed_jobs(event.assignments)
    trial.findings.equal("assignments", "RoundOpened", event.round, "jobs", event.jobs, sum(listed.values()))
    for node_id, jobs in listed.items():
        node, key = known(trial.book, Node, node_id), (event.round, node_id)
        member = trial.book.find(Membership, event.run, node_id)
        joined = member is not None and member.rules_hash == rules
        serving = node.role == "worker" and serves(node, log.timestamp)
        trial.findings.holds("assignments", "round/node", key, "joined at the run's rules", joined)
        trial.findings.holds("assignments", "round/node", key, "bonded worker in service", serving)
        trial.findings.holds("assignments", "round/node", key, "capacity", node.in_flight + jobs <= node.capacity)


def _reserve(trial: Trial, log: Log, event: RoundOpened) -> None:
    terms = terms_at(trial.book, event.run, log.timestamp)
    work = event.jobs * terms.max_units * terms.price_per_unit
    needed = work + 2 * terms.committee * terms.juror_fee
    trial.findings.equal("reserves", "RoundOpened", event.round, "reserved", event.reserved, needed)


def _eligible(trial: Trial, log: Log, event: RoundOpened) -> None:
    terms = terms_at(trial.book, event.run, log.timestamp)
    eligible = eligible_slots(trial.book, event.slot_count, log.timestamp)
    enough = eligible.bit_count() >= terms.committee + terms.appeal_seats
    trial.findings.holds("draws", "round", event.round, "validators for its committees", enough)


def _allowed(trial: Trial, log: Log, event: RoundOpened) -> None:
    run = known(trial.book, Run, event.run)
    deadline = log.timestamp + terms_at(trial.book, event.run, log.timestamp).work_seconds
    trial.findings.equal("rules", "RoundOpened", event.round, "opened while paused", admin_of(trial.book).paused, False)
    trial.findings.equal("rules", "RoundOpened", event.round, "opened on a closed run", run.closed, False)
    trial.findings.equal("rules", "RoundOpened", event.round, "deadline", event.deadline, deadline)
    version = trial.book.find(Checkpoint, event.run, event.policy_version)
    trial.findings.holds("rules", "RoundOpened", event.round, "policy version published", version is not None)


def _own_jobs(trial: Trial, log: Log, event: Submitted) -> None:
    round_ = known(trial.book, Round, event.round)
    trial.findings.equal("assignments", "round", event.round, "state at submission", round_.state, "open")
    for leaf in unpack_leaves(event.leaves):
        key = (event.round, leaf.job)
        trial.findings.equal(
            "assignments", "round/job", key, "node", event.node, assignee_of(round_.assignments, leaf.job)
        )
        trial.findings.holds("assignments", "round/job", key, "submitted once", not round_.submitted >> leaf.job & 1)


def _signature(trial: Trial, log: Log, event: Submitted) -> None:
    if "\ufffd" in event.uri:
        return  # the text lost bytes in reading, so only the contract could check this signature, and did
    deployment = trial.terms.deployment
    message = auth.submission(
        deployment.chain_id, deployment.rounds, event.round, event.node, event.beacon, event.leaves, event.uri
    )
    try:
        signer = auth.recover(message, event.signature)
    except Rejected as error:
        signer = str(error)
    key = known(trial.book, Node, event.node).key
    trial.findings.equal("signatures", "round/node", (event.round, event.node), "signer", signer, key)


def _all_in(trial: Trial, log: Log, event: RoundClosed) -> None:
    round_ = known(trial.book, Round, event.round)
    trial.findings.equal(
        "amounts", "RoundClosed", event.round, "submitted", hex(event.submitted), hex(round_.submitted)
    )


# The committee


def draw(seed: bytes, attempt: int, slot_count: int, eligible: int, seats: int) -> list[int]:
    """Returns the slots a seed draws from the bitmap ``eligible``, which holds at least ``seats`` of them."""
    slots: list[int] = []
    tries = 0
    while len(slots) < seats:
        slot = _try(seed, attempt, tries) % slot_count if tries < RANDOM_TRIES * slot_count else tries % slot_count
        if eligible >> slot & 1:
            eligible ^= 1 << slot
            slots.append(slot)
        tries += 1
    return slots


def _try(seed: bytes, attempt: int, number: int) -> int:
    return int.from_bytes(keccak(encode(["bytes32", "uint8", "uint256"], [seed, attempt, number])), "big")


def _committee(trial: Trial, log: Log, event: CommitteeDrawn) -> None:
    round_ = known(trial.book, Round, event.round)
    seats = round_.committee
    if round_.eligible.bit_count() < seats:
        return
    slots = draw(event.seed, event.attempt, round_.slot_count, round_.eligible, seats)
    jurors = tuple(_holder(trial.book, slot) for slot in slots)
    trial.findings.equal("draws", "round/attempt", (event.round, event.attempt), "jurors", event.jurors, jurors)
    trial.findings.equal("draws", "round", event.round, "attempt", event.attempt, round_.attempt)


def _holder(book: MemoryBook, slot: int) -> int:
    return known(book, Slot, slot).node


def _seed(trial: Trial, log: Log, event: CommitteeDrawn) -> None:
    round_ = known(trial.book, Round, event.round)
    key = (event.round, event.attempt)
    if event.seed_block == round_.close_block:
        trial.findings.equal("seeds", "round/attempt", key, "seed", event.seed, round_.close_hash)
        return
    trial.seeds.append((event.round, event.seed_block, event.seed))


def _windows(
    trial: Trial, log: Log, event: RoundClosed | CommitteeDrawn | CommitteeRedrawn | RevealStarted | RoundTallied
) -> None:
    """Deadlines follow from the windows that were in effect when the round opened."""
    round_ = known(trial.book, Round, event.round)
    start = log.timestamp
    if isinstance(event, RevealStarted):
        # The first reveal past the deadline counts from that deadline, and prolongs nothing.
        start = min(start, round_.deadline)
    name = WINDOWS[type(event)]
    deadline = start + getattr(round_, name)
    trial.findings.equal("rules", type(event).__name__, event.round, "deadline", event.deadline, deadline)


WINDOWS: dict[type[Event], str] = {
    RoundClosed: "draw_seconds",
    CommitteeRedrawn: "draw_seconds",
    CommitteeDrawn: "commit_seconds",
    RevealStarted: "reveal_seconds",
    RoundTallied: "challenge_seconds",
}
"""Type of event to the window it begins."""


# Votes


def _seated(trial: Trial, log: Log, event: VoteCommitted) -> None:
    key = (event.round, event.attempt, event.juror)
    seat = trial.book.find(Seat, *key)
    state = seat.state if seat else "not seated"
    trial.findings.equal("commitments", "round/attempt/juror", key, "state at committing", state, "drawn")


def _as_committed(trial: Trial, log: Log, event: VoteRevealed) -> None:
    key = (event.round, event.attempt, event.juror)
    seat = known(trial.book, Seat, *key)
    vote = Vote(event.accept, event.fraud, event.reasons, event.evidence_root)
    deployment = trial.terms.deployment
    word = commitment(deployment.chain_id, deployment.rounds, event.round, event.attempt, event.juror, vote, event.salt)
    trial.findings.equal("commitments", "round/attempt/juror", key, "commitment", seat.commitment, word)
    trial.findings.equal("commitments", "round/attempt/juror", key, "state at revealing", seat.state, "committed")
    trial.findings.holds(
        "commitments", "round/attempt/juror", key, "accept and fraud apart", not event.accept & event.fraud
    )


def _reasoned(trial: Trial, log: Log, event: VoteRevealed) -> None:
    # The number of reasons is the contract's rule; their meaning is the juror's word, and an unknown one harms nobody.
    submitted = known(trial.book, Round, event.round).submitted
    vote = Vote(event.accept, event.fraud, event.reasons, event.evidence_root)
    needed = len(ABSTENTION) if vote.abstains else (submitted & ~event.accept).bit_count()
    key = (event.round, event.attempt, event.juror)
    trial.findings.equal("commitments", "round/attempt/juror", key, "reasons", len(event.reasons), needed)


ROUNDS: dict[type[Event], tuple[Check, ...]] = {
    RoundOpened: (_allowed, _listing, _reserve, _eligible),
    Submitted: (_own_jobs, _signature),
    RoundClosed: (_all_in, _windows),
    CommitteeDrawn: (_committee, _seed, _windows),
    CommitteeRedrawn: (_windows,),
    RevealStarted: (_windows,),
    RoundTallied: (_windows,),
    VoteCommitted: (_seated,),
    VoteRevealed: (_as_committed, _reasoned),
}
"""Type of event to what is tried of it."""
