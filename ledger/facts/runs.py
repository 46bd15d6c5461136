"""Runs, who joined them, and their checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ledger.facts.columns import Bitmap, Hex, Wide


@dataclass(frozen=True, slots=True)
class Run:
    """A run and its escrow; its terms are ``RunTerms``, the last of which has the number ``announcements``.

    ``escrow`` = funded − refunded − reserved rounds + released; ``reserved`` is promised to rounds that have not ended,
    deposits on their appeals included: ``deposited`` came in, ``paid_out`` of them (and of what covered fees) went out.
    """

    KEY: ClassVar[tuple[str, ...]] = ("run",)

    run: int
    requester: str
    announcements: int
    uri: str
    version: int
    closed: bool
    funded: Wide
    refunded: Wide
    deposited: Wide
    paid_out: Wide
    paid: Wide
    escrow: Wide
    reserved: Wide


@dataclass(frozen=True, slots=True)
class RunTerms:
    """Terms of a run: number 0 as it opened, then every announcement. They hold from ``effective_at`` on.

    ``replaced`` ones never took effect: a later announcement came first.
    """

    KEY: ClassVar[tuple[str, ...]] = ("run", "number")

    run: int
    number: int
    announced_at: int
    effective_at: int
    replaced: bool
    coordinator: str
    trainer: str
    rules_hash: Hex
    price_per_unit: Wide
    juror_fee: Wide
    max_units: Wide
    committee: int
    appeal_seats: int
    work_seconds: int
    draw_seconds: int
    commit_seconds: int
    reveal_seconds: int
    challenge_seconds: int


@dataclass(frozen=True, slots=True)
class Membership:
    """A node that joined a run at ``rules_hash``; 32 zero bytes once it has left."""

    KEY: ClassVar[tuple[str, ...]] = ("run", "node")

    run: int
    node: int
    rules_hash: Hex


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One published version of a run's weights. Version 0 is the model the run opened with.

    ``tainted`` counts the jobs overturned since on which this version or one before it was trained. ``previous`` is the
    version before it.
    """

    KEY: ClassVar[tuple[str, ...]] = ("run", "version")

    run: int
    version: int
    previous: int
    manifest_root: Hex
    jobs: int
    tainted: int
    block_number: int
    timestamp: int
    tx_hash: Hex


@dataclass(frozen=True, slots=True)
class Consumption:
    """Jobs of one round that a checkpoint was trained on."""

    KEY: ClassVar[tuple[str, ...]] = ("run", "version", "round")

    run: int
    version: int
    round: int
    jobs: Bitmap
