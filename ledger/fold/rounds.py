"""The events of rounds: listing, submissions, settlement. Committees and votes are in ``ledger.fold.committees``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ledger.book import Book, add, known
from ledger.facts import Consent, Job, Node, Round, Slot, Submission
from ledger.fold.runs import terms_at
from protocol.chain import events
from protocol.wire.assignments import bitmap_of, jobs_in, unpack_assignments, unpack_leaves

FROZEN: tuple[str, ...] = ("committee", "appeal_seats", "max_units", "price_per_unit", "juror_fee")
FROZEN += ("draw_seconds", "commit_seconds", "reveal_seconds", "challenge_seconds")
"""Terms of a run that a round keeps as they stood at its opening."""

LEAST_SHARE = 3
"""A round needs one in so many of the validators that serve any run."""


# Work


def _opened(book: Book, log: events.Log, event: events.RoundOpened) -> None:
    terms = terms_at(book, event.run, log.timestamp)
    book.put(
        Round(
            round=event.round,
            run=event.run,
            parent=0,
            step=event.step,
            policy_version=event.policy_version,
            state="open",
            jobs=event.jobs,
            slot_count=event.slot_count,
            **{name: getattr(terms, name) for name in FROZEN},
            assignments=event.assignments,
            open_block=log.block_number,
            beacon=log.block_hash,
            opened_at=log.timestamp,
            deadline=event.deadline,
            eligible=serving_slots(book, event.run, event.slot_count, log.timestamp),
            reserve=event.reserved,
            reserved=event.reserved,
        )
    )
    count_in_flight(book, listed_jobs(event.assignments))


def eligible_slots(book: Book, slot_count: int, timestamp: int) -> int:
    """Returns the bitmap of the slots whose validator serves at ``timestamp``."""
    return bitmap_of(_eligible(book, slot_count, timestamp))


def serving_slots(book: Book, run: int, slot_count: int, timestamp: int) -> int:
    """Returns the bitmap of the eligible slots whose validator consents to a run's terms at ``timestamp``."""
    number = terms_at(book, run, timestamp).number
    nodes = _eligible(book, slot_count, timestamp)
    consents = {slot: book.find(Consent, run, node.node, number) for slot, node in nodes.items()}
    return bitmap_of(slot for slot, consent in consents.items() if consent is not None and consent.given)


def needed_slots(book: Book, slot_count: int, timestamp: int) -> int:
    """Returns a third, rounded up, of the number of eligible slots whose validator serves any run."""
    serving = sum(node.runs > 0 for node in _eligible(book, slot_count, timestamp).values())
    return -(-serving // LEAST_SHARE)


def _eligible(book: Book, slot_count: int, timestamp: int) -> dict[int, Node]:
    """The validators that serve, by slot."""
    held = (book.find(Slot, slot) for slot in range(slot_count))
    nodes = {slot.slot: book.find(Node, slot.node) for slot in held if slot is not None}
    return {slot: node for slot, node in nodes.items() if node is not None and serves(node, timestamp)}


def serves(node: Node, timestamp: int) -> bool:
    """Tells whether a node may be listed or drawn: not retired, active, with its bond and its key."""
    return not node.retired_at and not node.revoked and node.active_at <= timestamp and node.bond >= node.posted


def listed_jobs(assignments: bytes, besides: int = 0) -> Counter[int]:
    """Returns how many jobs each node was listed for, leaving out those in the bitmap ``besides``."""
    counts: Counter[int] = Counter()
    job = 0
    for listing in unpack_assignments(assignments):
        counts[listing.node] += sum(1 for each in range(job, job + listing.count) if not besides >> each & 1)
        job += listing.count
    return counts


def count_in_flight(book: Book, changes: Mapping[int, int], sign: int = 1) -> None:
    """Adds each node's jobs to those in flight, or takes them away."""
    for node_id, jobs in changes.items():
        add(book, known(book, Node, node_id), in_flight=sign * jobs)


def _submitted(book: Book, log: events.Log, event: events.Submitted) -> None:
    round_ = known(book, Round, event.round)
    leaves = unpack_leaves(event.leaves)
    jobs = bitmap_of(leaf.job for leaf in leaves)
    book.put(replace(round_, submitted=round_.submitted | jobs, batches=max(round_.batches, event.batch + 1)))
    book.put(
        Submission(
            round=event.round,
            first_job=leaves[0].job,
            batch=event.batch,
            node=event.node,
            beacon=event.beacon,
            leaves=event.leaves,
            # PostgreSQL's text holds no NUL, and a worker may sign one.
            uri=event.uri.replace("\0", "\ufffd"),
            signature=event.signature,
            tx_hash=log.tx_hash,
        )
    )
    for leaf in leaves:
        book.put(
            Job(
                round=event.round,
                job=leaf.job,
                first_job=leaves[0].job,
                node=event.node,
                batch=event.batch,
                units=leaf.units,
                root=leaf.root,
            )
        )


def _closed(book: Book, log: events.Log, event: events.RoundClosed) -> None:
    round_ = known(book, Round, event.round)
    book.put(awaiting_draw(round_, log, event.deadline))


def awaiting_draw(round_: Round, log: events.Log, deadline: int) -> Round:
    """Returns the round with a committee to be drawn from this block on."""
    return replace(round_, state="closed", deadline=deadline, close_block=log.block_number, close_hash=log.block_hash)


# Settling


def _consumed(book: Book, log: events.Log, event: events.JobsConsumed) -> None:
    round_ = known(book, Round, event.round)
    book.put(replace(round_, consumed=round_.consumed | event.jobs))


def _submission_settled(book: Book, log: events.Log, event: events.SubmissionSettled) -> None:
    jobs = jobs_in(event.accepted | event.fraud | event.void_jobs)
    # Appealed jobs are left out, so that its first job may not be among these.
    first = known(book, Job, event.round, jobs[0]).first_job
    submission = known(book, Submission, event.round, first)
    book.put(
        replace(
            submission,
            settled=True,
            accepted=event.accepted,
            fraud=event.fraud,
            void=event.void_jobs,
            units=event.units,
            paid=event.paid,
        )
    )
    count_in_flight(book, {event.node: len(jobs)}, sign=-1)
    round_ = known(book, Round, event.round)
    book.put(replace(round_, settled_batches=round_.settled_batches | 1 << event.batch))
    for number in jobs_in(event.accepted & ~event.fraud):
        job = known(book, Job, event.round, number)
        book.put(replace(job, credited=min(job.units, round_.max_units) * round_.price_per_unit))


def _settled(book: Book, log: events.Log, event: events.RoundSettled) -> None:
    round_ = _ended(known(book, Round, event.round), "settled", event.released)
    if not round_.parent:
        count_in_flight(book, listed_jobs(round_.assignments, besides=round_.submitted), sign=-1)
        # A batch of which every job was appealed is settled without an event.
        round_ = replace(round_, settled_batches=(1 << round_.batches) - 1)
    book.put(round_)


def _voided(book: Book, log: events.Log, event: events.RoundVoided) -> None:
    round_ = known(book, Round, event.round)
    book.put(_ended(round_, "void", event.released))
    for job in jobs_in(round_.submitted) if not round_.parent else ():
        book.put(replace(known(book, Job, event.round, job), verdict="void"))


def _ended(round_: Round, state: str, released: int) -> Round:
    return replace(round_, state=state, released=round_.released + released, reserved=round_.reserved - released)


def _freed(book: Book, log: events.Log, event: events.JobsFreed) -> None:
    count_in_flight(book, listed_jobs(known(book, Round, event.round).assignments), sign=-1)


ROUNDS = {
    events.RoundOpened: _opened,
    events.Submitted: _submitted,
    events.RoundClosed: _closed,
    events.JobsConsumed: _consumed,
    events.SubmissionSettled: _submission_settled,
    events.RoundSettled: _settled,
    events.RoundVoided: _voided,
    events.JobsFreed: _freed,
}
"""Event type to the function that folds it."""
