"""Nodes, validator slots and slashes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ledger.facts.columns import Hex, Wide


@dataclass(frozen=True, slots=True)
class Node:
    """A registered node and its bond. ``bond`` = posted + topped_up − slashed − returned, in wei.

    ``posted`` is exactly what its role and capacity require: a node serves while ``bond`` ≥ ``posted`` and its key is
    not ``revoked``. Once ``withdrawn`` it is gone for good; ``returned`` went back to its owner.
    """

    KEY: ClassVar[tuple[str, ...]] = ("node",)

    node: int
    owner: str
    role: str
    slot: int
    capacity: int
    key: str
    active_at: int
    retired_at: int
    revoked: bool
    withdrawn: bool
    in_flight: int
    posted: Wide
    topped_up: Wide
    slashed: Wide
    returned: Wide
    bond: Wide


@dataclass(frozen=True, slots=True)
class Slot:
    """Validator that holds a slot; ``node`` is 0 once the slot is free again."""

    KEY: ClassVar[tuple[str, ...]] = ("slot",)

    slot: int
    node: int


@dataclass(frozen=True, slots=True)
class Slash:
    """One slash: ``amount`` was taken, ``bond`` is what the event says remained, in wei.

    ``cause`` is fraud, absence or overturned. ``round`` is the round judged, for an absence at an appeal the appeal.
    """

    KEY: ClassVar[tuple[str, ...]] = ("block_number", "log_index")

    block_number: int
    log_index: int
    tx_hash: Hex
    node: int
    owner: str
    round: int
    cause: str
    amount: Wide
    bond: Wide
