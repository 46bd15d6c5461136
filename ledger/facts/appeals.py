"""Appeals, and the checkpoints that stand on what they overturned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ledger.facts.columns import Hex, Wide


@dataclass(frozen=True, slots=True)
class Appeal:
    """One job of ``round`` tried again, as the round under the number ``appeal``. Amounts in credits (wei).

    ``state`` is pending, upheld, overturned or undecided; ``against`` and ``verdict`` are accepted, fraud or void, the
    latter empty while pending. ``fees`` went to the jurors, ``covered`` of them out of the reserve of ``round``;
    ``awarded`` came to the appellant from slashed bonds, ``forfeited`` went from its deposit to the treasury.
    """

    KEY: ClassVar[tuple[str, ...]] = ("appeal",)

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
    covered: Wide
    awarded: Wide
    forfeited: Wide
    block_number: int
    tx_hash: Hex


@dataclass(frozen=True, slots=True)
class Taint:
    """A job that is no longer accepted after ``version`` was trained on it.

    That checkpoint and every later one of the run stand on it.
    """

    KEY: ClassVar[tuple[str, ...]] = ("round", "job")

    round: int
    job: int
    run: int
    version: int
    appeal: int
    block_number: int
    tx_hash: Hex
