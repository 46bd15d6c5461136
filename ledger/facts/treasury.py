"""The admin's word, and what becomes of slashed bonds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ledger.facts.columns import Hex, Wide

THE_ONE = 1
"""The key of a fact of which a deployment has one."""


@dataclass(frozen=True, slots=True)
class Admin:
    """No new rounds while ``paused``; slashed bonds are swept to ``treasury``."""

    KEY: ClassVar[tuple[str, ...]] = ("id",)

    id: int = THE_ONE
    treasury: str = ""
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Treasury:
    """The pot of slashed bonds: ``balance`` = slashed − swept − awarded, in wei."""

    KEY: ClassVar[tuple[str, ...]] = ("id",)

    id: int = THE_ONE
    slashed: Wide = 0
    swept: Wide = 0
    awarded: Wide = 0
    balance: Wide = 0


@dataclass(frozen=True, slots=True)
class Sweep:
    """Slashed bonds that left for the address that was the treasury then, in wei."""

    KEY: ClassVar[tuple[str, ...]] = ("block_number", "log_index")

    block_number: int
    log_index: int
    tx_hash: Hex
    treasury: str
    amount: Wide
