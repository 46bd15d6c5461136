"""The admin's word, and what becomes of slashed bonds."""

from __future__ import annotations

from ledger.facts.fact import Fact, Hex, Wide, fact

THE_ONE = 1
"""The key of a fact of which a deployment has one."""


@fact("id")
class Admin(Fact):
    """No new rounds while ``paused``; slashed bonds are swept to ``treasury``."""

    id: int = THE_ONE
    treasury: str = ""
    paused: bool = False


@fact("id")
class Treasury(Fact):
    """The pot of slashed bonds: ``balance`` = slashed − swept − awarded, in wei."""

    id: int = THE_ONE
    slashed: Wide = 0
    swept: Wide = 0
    awarded: Wide = 0
    balance: Wide = 0


@fact("block_number", "log_index")
class Sweep(Fact):
    """Slashed bonds that left for the address that was the treasury then, in wei."""

    block_number: int
    log_index: int
    tx_hash: Hex
    treasury: str
    amount: Wide
