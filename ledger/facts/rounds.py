"""Rounds: submissions, jobs, committees and votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ledger.facts.columns import Bitmap, Hex, Wide


@dataclass(frozen=True, slots=True)
class Round:
    """A round. ``beacon`` is the hash of its opening block, ``reserve`` the credits set aside when it opened.

    ``eligible`` holds the validator slots that could be drawn then; the present attempt's draw starts at
    ``close_block``, whose hash is ``close_hash``; ``reserved`` is neither paid nor released yet. Bit b of
    ``settled_batches`` is batch b.
    """

    KEY: ClassVar[tuple[str, ...]] = ("round",)

    round: int
    run: int
    step: Wide
    policy_version: int
    state: str
    jobs: int
    slot_count: int
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
    reserve: Wide
    paid: Wide
    released: Wide
    reserved: Wide


@dataclass(frozen=True, slots=True)
class Submission:
    """One worker's signed part of a batch, and what it came to once ``settled``.

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
    """One submitted job: what was claimed. ``credited`` is what settlement paid for it.

    ``verdict`` is submitted until the round is tallied or void, then accepted, fraud or void.
    """

    KEY: ClassVar[tuple[str, ...]] = ("round", "job")

    round: int
    job: int
    node: int
    batch: int
    units: Wide
    root: Hex
    verdict: str
    credited: Wide


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
