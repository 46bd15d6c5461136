"""Faults that requesters planted in their own nodes' work, and the deposits behind them."""

from __future__ import annotations

from ledger.facts.fact import Fact, Hex, Wide, fact


@fact("set")
class TrapSet(Fact):
    """A requester's set of traps; ``bounty`` is deposited for each of its ``leaves``, in wei.

    ``balance`` = leaves × bounty − what opened and forfeited leaves took. ``opened`` counts both.
    """

    set: int
    run: int
    setter: str
    root: Hex
    leaves: int
    bounty: Wide
    first: int
    open_by: int
    opened: int = 0
    balance: Wide = 0


@fact("block_number", "log_index")
class OpenedTrap(Fact):
    """A leaf that was opened: a job that was a trap, or a decoy, which has no round, node and job.

    ``finders`` is the number of jurors that share the bounty.
    """

    block_number: int
    log_index: int
    tx_hash: Hex
    set: int
    leaf: Hex
    kind: str
    round: int = 0
    node: int = 0
    job: int = 0
    finders: int = 0
