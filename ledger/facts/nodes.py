"""Nodes, validator slots and slashes."""

from __future__ import annotations

from ledger.facts.fact import Fact, Hex, Wide, fact


@fact("node")
class Node(Fact):
    """A registered node and its bond. ``bond`` = posted + topped_up − slashed − returned, in wei.

    ``posted`` is exactly what its role and capacity require: a node serves while ``bond`` ≥ ``posted`` and its key is
    not ``revoked``. A newcomer that waits for a slot, or got none, is never active: ``active_at`` is 2^40 − 1. Once
    ``withdrawn`` it is gone for good; ``returned`` went back to its owner. ``runs`` counts those
    that it has joined.
    """

    node: int
    owner: str
    role: str
    slot: int
    capacity: int
    key: str
    active_at: int
    retired_at: int = 0
    revoked: bool = False
    withdrawn: bool = False
    in_flight: int = 0
    runs: int = 0
    posted: Wide = 0
    topped_up: Wide = 0
    slashed: Wide = 0
    returned: Wide = 0
    bond: Wide = 0


@fact("slot")
class Slot(Fact):
    """Validator that holds a slot; ``node`` is 0 once the slot is free again.

    ``before`` is whom it displaced, and whom draws seat until the holder is active; 0 if nobody. ``newcomer`` waits for
    the slot, which the holder cannot keep from ``until`` on; 0 if nobody does.
    """

    slot: int
    node: int
    before: int = 0
    newcomer: int = 0
    until: int = 0


@fact("block_number", "log_index")
class Slash(Fact):
    """One slash: ``amount`` was taken, ``bond`` is what the event says remained, in wei.

    ``cause`` is fraud, absence or overturned. ``round`` is the round judged, for an absence at an appeal the appeal.
    """

    block_number: int
    log_index: int
    tx_hash: Hex
    node: int
    owner: str
    round: int
    cause: str
    amount: Wide
    bond: Wide
