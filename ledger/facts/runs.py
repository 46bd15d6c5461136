"""Runs, who joined them, and their checkpoints."""

from __future__ import annotations

from ledger.facts.fact import NO_WORD, Bitmap, Fact, Hex, Wide, fact


@fact("run")
class Run(Fact):
    """A run and its escrow; its terms are ``RunTerms``, the last of which has the number ``announcements``.

    ``escrow`` = funded − refunded − reserved rounds + released; ``reserved`` is promised to rounds that have not ended,
    deposits on their appeals included: ``deposited`` came in, ``paid_out`` of them went out.
    """

    run: int
    requester: str
    announcements: int
    uri: str
    version: int = 0
    closed: bool = False
    funded: Wide = 0
    refunded: Wide = 0
    deposited: Wide = 0
    paid_out: Wide = 0
    paid: Wide = 0
    escrow: Wide = 0
    reserved: Wide = 0


@fact("run", "number")
class RunTerms(Fact):
    """Terms of a run: number 0 as it opened, then every announcement. They hold from ``effective_at`` on.

    ``replaced`` ones never took effect: a later announcement came first.
    """

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


@fact("run", "node")
class Membership(Fact):
    """A node that joined a run at ``rules_hash``; 32 zero bytes once it has left.

    ``strikes`` of a validator count from the time ``struck_at`` of the first, for an unbonding delay; ``struck_in`` is
    the newest round that counted.
    """

    run: int
    node: int
    rules_hash: Hex = NO_WORD
    strikes: int = 0
    struck_at: int = 0
    struck_in: int = 0


@fact("run", "node", "number")
class Consent(Fact):
    """A validator's consent to judge a run under the terms of a number; not ``given`` once it has left."""

    run: int
    node: int
    number: int
    given: bool


@fact("run", "version")
class Checkpoint(Fact):
    """One published version of a run's weights. Version 0 is the model the run opened with.

    ``tainted`` counts the jobs overturned since on which this version or one before it was trained. ``previous`` is the
    version before it.
    """

    run: int
    version: int
    previous: int
    manifest_root: Hex
    jobs: int
    tainted: int
    block_number: int
    timestamp: int
    tx_hash: Hex


@fact("run", "version", "round")
class Consumption(Fact):
    """Jobs of one round that a checkpoint was trained on."""

    run: int
    version: int
    round: int
    jobs: Bitmap
