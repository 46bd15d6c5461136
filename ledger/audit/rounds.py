"""Checks of the events before a verdict: listing, submissions, draws, votes."""

from __future__ import annotations

from eth_abi import encode
from eth_utils import keccak

from ledger.audit.audit_state import AuditCheck, AuditSources, AuditState
from ledger.book import known
from ledger.facts import Membership, Node, Round, Seat
from ledger.fold.nodes import seated_at
from ledger.fold.rounds import listed_jobs, needed_slots, serves, serving_slots
from ledger.fold.runs import terms_at
from protocol.chain import events
from protocol.chain.structs import MOST_DRAWS
from protocol.errors import Rejected
from protocol.wire import auth
from protocol.wire.assignments import assignee_of, unpack_leaves
from protocol.wire.votes import ABSTENTION, Vote, commitment

ASSIGNMENTS = AuditCheck(
    "assignments", "listed nodes had joined at the run's rules and had capacity; every submitted job was its node's"
)
RESERVES = AuditCheck(
    "reserves", "a round's reserve covers its jobs at the run's price and the maximum fees of its verdict"
)
SIGNATURES = AuditCheck("signatures", "every submission was signed by the key of its node")
DRAWS = AuditCheck("draws", "every committee is the one its seed draws from the eligible validators")
SEEDS = AuditCheck("seeds", "every seed is the hash of its seed block")
COMMITMENTS = AuditCheck("commitments", "every revealed vote is the one that was committed")

RANDOM_TRIES = 4
"""Random tries for each slot before the draw probes linearly."""


# Work


@ASSIGNMENTS.tries(events.RoundOpened)
def _listing(audit: AuditState, log: events.Log, event: events.RoundOpened) -> None:
    rules = terms_at(audit.book, event.run, log.timestamp).rules_hash
    listed = listed_jobs(event.assignments)
    audit.findings.equal("assignments", "RoundOpened", event.round, "jobs", event.jobs, sum(listed.values()))
    for node_id, jobs in listed.items():
        node, key = known(audit.book, Node, node_id), (event.round, node_id)
        member = audit.book.find(Membership, event.run, node_id)
        joined = member is not None and member.rules_hash == rules
        serving = node.role == "worker" and serves(node, log.timestamp)
        audit.findings.holds("assignments", "round/node", key, "joined at the run's rules", joined)
        audit.findings.holds("assignments", "round/node", key, "bonded worker in service", serving)
        audit.findings.holds("assignments", "round/node", key, "capacity", node.in_flight + jobs <= node.capacity)


@RESERVES.tries(events.RoundOpened)
def _reserve(audit: AuditState, log: events.Log, event: events.RoundOpened) -> None:
    terms = terms_at(audit.book, event.run, log.timestamp)
    work = event.jobs * terms.max_units * terms.price_per_unit
    needed = work + maximum_fees(terms.committee, terms.juror_fee)
    audit.findings.equal("reserves", "RoundOpened", event.round, "reserved", event.reserved, needed)


def maximum_fees(seats: int, juror_fee: int) -> int:
    """Returns the fees of one verdict if every committee but the last is one vote short of a quorum."""
    quorum = (seats + 1) // 2
    return juror_fee * ((MOST_DRAWS - 1) * (quorum - 1) + seats)


@DRAWS.tries(events.RoundOpened)
def _eligible(audit: AuditState, log: events.Log, event: events.RoundOpened) -> None:
    terms = terms_at(audit.book, event.run, log.timestamp)
    serving = serving_slots(audit.book, event.run, event.slot_count, log.timestamp).bit_count()
    third = needed_slots(audit.book, event.slot_count, log.timestamp)
    enough = serving >= terms.committee + terms.appeal_seats
    audit.findings.holds("draws", "round", event.round, "validators for its committees", enough)
    audit.findings.holds("draws", "round", event.round, "a third of the validators that serve", serving >= third)


@ASSIGNMENTS.tries(events.Submitted)
def _own_jobs(audit: AuditState, log: events.Log, event: events.Submitted) -> None:
    round_ = known(audit.book, Round, event.round)
    audit.findings.equal("assignments", "round", event.round, "state at submission", round_.state, "open")
    for leaf in unpack_leaves(event.leaves):
        key = (event.round, leaf.job)
        audit.findings.equal(
            "assignments", "round/job", key, "node", event.node, assignee_of(round_.assignments, leaf.job)
        )
        audit.findings.holds("assignments", "round/job", key, "submitted once", not round_.submitted >> leaf.job & 1)


@SIGNATURES.tries(events.Submitted)
def _signature(audit: AuditState, log: events.Log, event: events.Submitted) -> None:
    if "\ufffd" in event.uri:
        return  # the text lost bytes in reading, so only the contract could check this signature, and did
    deployment = audit.terms.deployment
    message = auth.submission(
        deployment.chain_id, deployment.rounds, event.round, event.node, event.beacon, event.leaves, event.uri
    )
    try:
        signer = auth.recover(message, event.signature)
    except Rejected as error:
        signer = str(error)
    key = known(audit.book, Node, event.node).key
    audit.findings.equal("signatures", "round/node", (event.round, event.node), "signer", signer, key)


@ASSIGNMENTS.tries(events.RoundClosed)
def _all_in(audit: AuditState, log: events.Log, event: events.RoundClosed) -> None:
    round_ = known(audit.book, Round, event.round)
    audit.findings.equal(
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


@DRAWS.tries(events.CommitteeDrawn)
def _committee(audit: AuditState, log: events.Log, event: events.CommitteeDrawn) -> None:
    round_ = known(audit.book, Round, event.round)
    seats = round_.committee
    if round_.eligible.bit_count() < seats:
        return
    slots = draw(event.seed, event.attempt, round_.slot_count, round_.eligible, seats)
    jurors = tuple(seated_at(audit.book, slot, log.timestamp) for slot in slots)
    audit.findings.equal("draws", "round/attempt", (event.round, event.attempt), "jurors", event.jurors, jurors)
    audit.findings.equal("draws", "round", event.round, "attempt", event.attempt, round_.attempt)


@SEEDS.tries(events.CommitteeDrawn)
def _seed(audit: AuditState, log: events.Log, event: events.CommitteeDrawn) -> None:
    round_ = known(audit.book, Round, event.round)
    key = (event.round, event.attempt)
    if event.seed_block == round_.close_block:
        audit.findings.equal("seeds", "round/attempt", key, "seed", event.seed, round_.close_hash)
        return
    audit.seeds.append((event.round, event.seed_block, event.seed))


# Votes


@COMMITMENTS.tries(events.VoteCommitted)
def _seated(audit: AuditState, log: events.Log, event: events.VoteCommitted) -> None:
    key = (event.round, event.attempt, event.juror)
    seat = audit.book.find(Seat, *key)
    state = seat.state if seat else "not seated"
    audit.findings.equal("commitments", "round/attempt/juror", key, "state at committing", state, "drawn")


@COMMITMENTS.tries(events.VoteRevealed)
def _as_committed(audit: AuditState, log: events.Log, event: events.VoteRevealed) -> None:
    key = (event.round, event.attempt, event.juror)
    seat = known(audit.book, Seat, *key)
    vote = Vote(event.accept, event.fraud, event.reasons, event.evidence_root)
    deployment = audit.terms.deployment
    word = commitment(deployment.chain_id, deployment.rounds, event.round, event.attempt, event.juror, vote, event.salt)
    audit.findings.equal("commitments", "round/attempt/juror", key, "commitment", seat.commitment, word)
    audit.findings.equal("commitments", "round/attempt/juror", key, "state at revealing", seat.state, "committed")


@COMMITMENTS.tries(events.VoteRevealed)
def _reasoned(audit: AuditState, log: events.Log, event: events.VoteRevealed) -> None:
    # The contract enforces the number of reasons, not their meaning: an unknown code is allowed.
    submitted = known(audit.book, Round, event.round).submitted
    vote = Vote(event.accept, event.fraud, event.reasons, event.evidence_root)
    needed = len(ABSTENTION) if vote.abstains else (submitted & ~(event.accept & ~event.fraud)).bit_count()
    key = (event.round, event.attempt, event.juror)
    audit.findings.equal("commitments", "round/attempt/juror", key, "reasons", len(event.reasons), needed)


@SEEDS.compares
def _seeds_of_later_blocks(audit: AuditState, sources: AuditSources) -> None:
    for round_, number, seed in audit.seeds:
        audit.findings.equal("seeds", "round/block", (round_, number), "seed", seed, sources.chain.block(number).hash)


CHECKS = (ASSIGNMENTS, RESERVES, SIGNATURES, DRAWS, SEEDS, COMMITMENTS)
