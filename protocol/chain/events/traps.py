"""Events of ``Traps``."""

from __future__ import annotations

from protocol.chain.events.base import Event
from protocol.wire.traps import TrapKind


class TrapsSet(Event):
    """A requester announced faults of its own nodes by their Merkle root, with a deposit of ``leaves`` bounties."""

    set: int
    run: int
    setter: str
    root: bytes
    leaves: int
    bounty: int
    first: int
    open_by: int


class TrapOpened(Event):
    """A fraudulent job was a trap; ``finders`` are the jurors of its first committee that voted fraud."""

    set: int
    round: int
    node: int
    job: int
    kind: TrapKind
    leaf: bytes
    finders: tuple[int, ...]
    bounty: int


class DecoyOpened(Event):
    """A leaf was a decoy, and its share went back to the setter."""

    set: int
    setter: str
    leaf: bytes
    amount: int


class TrapsForfeited(Event):
    """The shares of ``leaves`` leaves that were not opened in time went to the treasury."""

    set: int
    treasury: str
    leaves: int
    amount: int
