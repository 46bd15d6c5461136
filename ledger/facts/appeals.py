"""Appeals, and the checkpoints that stand on what they overturned."""

from __future__ import annotations

from ledger.facts.fact import Fact, Hex, Wide, fact


@fact("appeal")
class Appeal(Fact):
    """One job of ``round`` tried again, as the round under the number ``appeal``. Amounts in credits (wei).

    ``state`` is pending, upheld, overturned or undecided; ``against`` and ``verdict`` are accepted, fraud, unavailable
    or void, the latter empty while pending. ``fees`` went to the jurors; ``awarded`` came to the appellant from slashed
    bonds, ``forfeited`` went from its deposit to the treasury.
    """

    appeal: int
    round: int
    run: int
    job: int
    appellant: str
    against: str
    node: int
    units: Wide
    deposit: Wide
    state: str
    verdict: str
    fees: Wide
    awarded: Wide
    forfeited: Wide
    block_number: int
    tx_hash: Hex


@fact("round", "job")
class Taint(Fact):
    """A job that is no longer accepted after ``version`` was trained on it.

    That checkpoint and every later one of the run stand on it.
    """

    round: int
    job: int
    run: int
    version: int
    appeal: int
    block_number: int
    tx_hash: Hex
