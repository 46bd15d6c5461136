"""Rounds: submissions, jobs, committees and votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ledger.facts.columns import Bitmap, Hex, Wide


@dataclass(frozen=True, slots=True)
class Round:
    """A round, or the trial of an appeal: then ``parent`` is the round appealed against, 0 otherwise.

    ``beacon`` is the hash of its opening block; committee to ``challenge_seconds`` are the run's terms as they stood
    then, and ``eligible`` the validator slots that could be drawn (an appeal's lack the first committee's).
    The present attempt's draw starts at ``close_block``, whose hash is ``close_hash``. Bit b of ``settled_batches`` is
    batch b.
    ``accepted`` and ``fraud`` are as appeals have left them; ``appeals`` of the ``appealed`` jobs are pending.

    Credits: ``reserve`` was set aside at the opening, an appeal's by its deposit; ``reserved`` is left of it.
        round    reserve           = paid + covered + released + reserved     ``covered`` paid fees of its appeals
        appeal   reserve + covered = paid + paid_out + reserved               ``covered`` came from its parent
    """

    KEY: ClassVar[tuple[str, ...]] = ("round",)

    round: int
    run: int
    parent: int
    step: Wide
    policy_version: int
    state: str
    jobs: int
    slot_count: int
    committee: int
    appeal_seats: int
    max_units: Wide
    price_per_unit: Wide
    juror_fee: Wide
    draw_seconds: int
    commit_seconds: int
    reveal_seconds: int
    challenge_seconds: int
    assignments: Hex
    open_block: int
    beacon: Hex
    opened_at: int
    deadline: int
    close_block: int
    close_hash: Hex
    eligible: Bitmap
    attempt: int
    batches: int
    settled_batches: Bitmap
    submitted: Bitmap
    accepted: Bitmap
    fraud: Bitmap
    consumed: Bitmap
    appealed: Bitmap
    appeals: int
    reserve: Wide
    paid: Wide
    covered: Wide
    paid_out: Wide
    released: Wide
    reserved: Wide


@dataclass(frozen=True, slots=True)
class Submission:
    """One worker's signed part of a batch, and what it came to once ``settled``, jobs that were appealed left out.

    A node may sign several parts of one batch; ``first_job`` tells them apart, as no job is submitted twice.
    """

    KEY: ClassVar[tuple[str, ...]] = ("round", "first_job")

    round: int
    first_job: int
    batch: int
    node: int
    beacon: Hex
    leaves: Hex
    uri: str
    signature: Hex
    tx_hash: Hex
    settled: bool
    accepted: Bitmap
    fraud: Bitmap
    void: Bitmap
    units: Wide
    paid: Wide


@dataclass(frozen=True, slots=True)
class Job:
    """One submitted job: what was claimed in the submission of ``first_job``. ``credited`` is what was paid for it.

    ``verdict`` is submitted until the round is tallied or void, then accepted, fraud or void, as appeals have left it.
    ``appeal`` is the number of its appeal, ``trained`` the version that was trained on it; 0 where there is none.
    """

    KEY: ClassVar[tuple[str, ...]] = ("round", "job")

    round: int
    job: int
    first_job: int
    node: int
    batch: int
    units: Wide
    root: Hex
    verdict: str
    credited: Wide
    appeal: int
    trained: int


@dataclass(frozen=True, slots=True)
class Committee:
    """The draw of one attempt: ``jurors`` are the seated validators, uint32 each, big-endian, in the order drawn."""

    KEY: ClassVar[tuple[str, ...]] = ("round", "attempt")

    round: int
    attempt: int
    seed_block: int
    seed: Hex
    jurors: Hex


@dataclass(frozen=True, slots=True)
class Service:
    """One validator's record: seats in committees and what it did with them; amounts in wei.

    ``seats`` = revealed + abstained + silent; ``silent`` are also those that may still vote. ``agreed`` is the sum of
    their bits. ``overturned`` counts slashes for a majority that an appeal overturned, ``absent`` those for not voting.
    """

    KEY: ClassVar[tuple[str, ...]] = ("validator",)

    validator: int
    owner: str
    seats: int = 0
    revealed: int = 0
    abstained: int = 0
    silent: int = 0
    agreed: int = 0
    absent: int = 0
    overturned: int = 0
    paid: Wide = 0


@dataclass(frozen=True, slots=True)
class Seat:
    """A juror's seat in one attempt, its commitment, its vote, and what it earned.

    ``state`` is drawn, committed, revealed or abstained. ``bits`` agreed with the verdict, of the jobs submitted.
    """

    KEY: ClassVar[tuple[str, ...]] = ("round", "attempt", "juror")

    round: int
    attempt: int
    juror: int
    place: int
    state: str
    commitment: Hex
    accept: Bitmap
    fraud: Bitmap
    reasons: Hex
    evidence_root: Hex
    salt: Hex
    bits: int
    paid: Wide
