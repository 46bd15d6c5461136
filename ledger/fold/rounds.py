"""The events of rounds: listing, submissions, committees, votes, verdicts, settlement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ledger.book import Book, known
from ledger.facts import Committee, Job, Node, Round, Run, Seat, Slot, Submission
from protocol.chain.events import (
    CommitteeDrawn,
    CommitteeRedrawn,
    JobsConsumed,
    JobsFreed,
    JurorSettled,
    Log,
    RevealStarted,
    RoundClosed,
    RoundOpened,
    RoundSettled,
    RoundTallied,
    RoundVoided,
    SubmissionSettled,
    Submitted,
    VoteCommitted,
    VoteRevealed,
)
from protocol.wire.assignments import bitmap_of, jobs_in, unpack_assignments, unpack_leaves
from protocol.wire.votes import Vote

NO_WORD = bytes(32)


# Work


def _opened(book: Book, log: Log, event: RoundOpened) -> None:
    book.put(
        Round(
            round=event.round,
            run=event.run,
            step=event.step,
            policy_version=event.policy_version,
            state="open",
            jobs=event.jobs,
            slot_count=event.slot_count,
            assignments=event.assignments,
            open_block=log.block_number,
            beacon=log.block_hash,
            opened_at=log.timestamp,
            deadline=event.deadline,
            close_block=0,
            close_hash=NO_WORD,
            eligible=eligible_slots(book, event.slot_count, log.timestamp),
            attempt=0,
            batches=0,
            settled_batches=0,
            submitted=0,
            accepted=0,
            fraud=0,
            consumed=0,
            reserve=event.reserved,
            paid=0,
            released=0,
            reserved=event.reserved,
        )
    )
    _count_in_flight(book, listed_jobs(event.assignments))


def eligible_slots(book: Book, slot_count: int, timestamp: int) -> int:
    """Returns the bitmap of the slots whose validator is in service, active at ``timestamp`` and holds its bond."""
    return bitmap_of(slot for slot in range(slot_count) if _is_eligible(book, slot, timestamp))


def _is_eligible(book: Book, slot: int, timestamp: int) -> bool:
    held = book.find(Slot, slot)
    node = book.find(Node, held.node) if held else None
    return node is not None and node.retired_at == 0 and node.active_at <= timestamp and node.bond >= node.posted


def listed_jobs(assignments: bytes, besides: int = 0) -> Counter[int]:
    """Returns how many jobs each node was listed for, leaving out those in the bitmap ``besides``."""
    counts: Counter[int] = Counter()
    job = 0
    for listing in unpack_assignments(assignments):
        counts[listing.node] += sum(1 for each in range(job, job + listing.count) if not besides >> each & 1)
        job += listing.count
    return counts


def _count_in_flight(book: Book, changes: Mapping[int, int], sign: int = 1) -> None:
    for node_id, jobs in changes.items():
        node = known(book, Node, node_id)
        book.put(replace(node, in_flight=node.in_flight + sign * jobs))


def _submitted(book: Book, log: Log, event: Submitted) -> None:
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
            settled=False,
            accepted=0,
            fraud=0,
            void=0,
            units=0,
            paid=0,
        )
    )
    for leaf in leaves:
        book.put(Job(event.round, leaf.job, event.node, event.batch, leaf.units, leaf.root, "submitted", 0))


def _closed(book: Book, log: Log, event: RoundClosed) -> None:
    round_ = known(book, Round, event.round)
    book.put(_reopened_draw(round_, log, event.deadline))


def _reopened_draw(round_: Round, log: Log, deadline: int) -> Round:
    return replace(round_, state="closed", deadline=deadline, close_block=log.block_number, close_hash=log.block_hash)


# Judging


def _drawn(book: Book, log: Log, event: CommitteeDrawn) -> None:
    round_ = known(book, Round, event.round)
    book.put(replace(round_, state="voting", deadline=event.deadline))
    jurors = b"".join(juror.to_bytes(4, "big") for juror in event.jurors)
    book.put(Committee(event.round, event.attempt, event.seed_block, event.seed, jurors))
    for place, juror in enumerate(event.jurors):
        book.put(
            Seat(
                round=event.round,
                attempt=event.attempt,
                juror=juror,
                place=place,
                state="drawn",
                commitment=NO_WORD,
                accept=0,
                fraud=0,
                reasons=b"",
                evidence_root=NO_WORD,
                salt=NO_WORD,
                bits=0,
                paid=0,
            )
        )


def seats_of(book: Book, round_: int, attempt: int) -> list[Seat]:
    """Returns a committee's seats in the order drawn; empty where none was."""
    committee = book.find(Committee, round_, attempt)
    jurors = (int.from_bytes(word, "big") for word in _words(committee.jurors)) if committee else ()
    return [known(book, Seat, round_, attempt, juror) for juror in jurors]


def _words(packed: bytes) -> list[bytes]:
    return [packed[start : start + 4] for start in range(0, len(packed), 4)]


def _committed(book: Book, log: Log, event: VoteCommitted) -> None:
    seat = known(book, Seat, event.round, event.attempt, event.juror)
    book.put(replace(seat, state="committed", commitment=event.commitment))


def _reveal_started(book: Book, log: Log, event: RevealStarted) -> None:
    book.put(replace(known(book, Round, event.round), deadline=event.deadline))


def _revealed(book: Book, log: Log, event: VoteRevealed) -> None:
    seat = known(book, Seat, event.round, event.attempt, event.juror)
    vote = Vote(event.accept, event.fraud, event.reasons, event.evidence_root)
    book.put(
        replace(
            seat,
            state="abstained" if vote.abstains else "revealed",
            accept=event.accept,
            fraud=event.fraud,
            reasons=event.reasons,
            evidence_root=event.evidence_root,
            salt=event.salt,
        )
    )


def _tallied(book: Book, log: Log, event: RoundTallied) -> None:
    round_ = known(book, Round, event.round)
    book.put(replace(round_, state="tallied", deadline=event.deadline, accepted=event.accepted, fraud=event.fraud))
    for job in jobs_in(round_.submitted):
        verdict = "accepted" if event.accepted >> job & 1 else "fraud" if event.fraud >> job & 1 else "void"
        book.put(replace(known(book, Job, event.round, job), verdict=verdict))


def _redrawn(book: Book, log: Log, event: CommitteeRedrawn) -> None:
    round_ = replace(known(book, Round, event.round), attempt=event.attempt)
    book.put(_reopened_draw(round_, log, event.deadline))


# Settling


def _consumed(book: Book, log: Log, event: JobsConsumed) -> None:
    round_ = known(book, Round, event.round)
    book.put(replace(round_, consumed=round_.consumed | event.jobs))


def _submission_settled(book: Book, log: Log, event: SubmissionSettled) -> None:
    jobs = jobs_in(event.accepted | event.fraud | event.void_jobs)
    submission = known(book, Submission, event.round, jobs[0])
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
    _count_in_flight(book, {event.node: len(jobs)}, sign=-1)
    round_ = known(book, Round, event.round)
    book.put(replace(round_, settled_batches=round_.settled_batches | 1 << event.batch))
    run = known(book, Run, round_.run)
    for number in jobs_in(event.accepted):
        job = known(book, Job, event.round, number)
        book.put(replace(job, credited=min(job.units, run.max_units) * run.price_per_unit))


def _juror_settled(book: Book, log: Log, event: JurorSettled) -> None:
    round_ = known(book, Round, event.round)
    seat = known(book, Seat, event.round, round_.attempt, event.juror)
    book.put(replace(seat, bits=event.bits, paid=event.paid))


def _settled(book: Book, log: Log, event: RoundSettled) -> None:
    round_ = known(book, Round, event.round)
    book.put(_ended(round_, "settled", event.released))
    _count_in_flight(book, listed_jobs(round_.assignments, besides=round_.submitted), sign=-1)


def _voided(book: Book, log: Log, event: RoundVoided) -> None:
    round_ = known(book, Round, event.round)
    book.put(_ended(round_, "void", event.released))
    for job in jobs_in(round_.submitted):
        book.put(replace(known(book, Job, event.round, job), verdict="void"))


def _ended(round_: Round, state: str, released: int) -> Round:
    return replace(round_, state=state, released=round_.released + released, reserved=round_.reserved - released)


def _freed(book: Book, log: Log, event: JobsFreed) -> None:
    _count_in_flight(book, listed_jobs(known(book, Round, event.round).assignments), sign=-1)


ROUNDS = {
    RoundOpened: _opened,
    Submitted: _submitted,
    RoundClosed: _closed,
    CommitteeDrawn: _drawn,
    VoteCommitted: _committed,
    RevealStarted: _reveal_started,
    VoteRevealed: _revealed,
    RoundTallied: _tallied,
    CommitteeRedrawn: _redrawn,
    JobsConsumed: _consumed,
    SubmissionSettled: _submission_settled,
    JurorSettled: _juror_settled,
    RoundSettled: _settled,
    RoundVoided: _voided,
    JobsFreed: _freed,
}
"""Event type to the function that folds it."""
