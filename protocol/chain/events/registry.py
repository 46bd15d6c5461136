"""Events of ``Registry``."""

from __future__ import annotations

from protocol.chain.events.base import Event
from protocol.chain.structs import Cause, Role


class NodeRegistered(Event):
    """A node was registered and bonded."""

    node: int
    owner: str
    key: str
    role: Role
    slot: int
    capacity: int
    bond: int
    active_at: int


class BondToppedUp(Event):
    """``amount`` was added to a bond, which is now ``bond``."""

    node: int
    owner: str
    amount: int
    bond: int


class NodeRetired(Event):
    """A node left service."""

    node: int
    owner: str
    retired_at: int
    withdrawable_at: int


class SlotContested(Event):
    """A newcomer waits for a slot, unless its holder's bond reaches ``bond`` before ``until``."""

    slot: int
    holder: int
    newcomer: int
    bond: int
    until: int


class SlotKept(Event):
    """The holder of a slot matched the newcomer's bond."""

    slot: int
    holder: int
    newcomer: int


class SlotPassed(Event):
    """A slot passed to the newcomer, which may be drawn from ``active_at`` on."""

    slot: int
    displaced: int
    newcomer: int
    active_at: int


class BondWithdrawn(Event):
    """The rest of a bond went back to its owner."""

    node: int
    owner: str
    amount: int


class NodeSlashed(Event):
    """``amount`` was taken from a bond; ``bond`` remains."""

    node: int
    owner: str
    round: int
    cause: Cause
    amount: int
    bond: int


class KeyRotated(Event):
    """A node has a new session key."""

    node: int
    owner: str
    key: str


class KeyRevoked(Event):
    """A session key was revoked; the node has none."""

    node: int
    owner: str
    key: str


class TreasurySwept(Event):
    """Slashed bonds went to the treasury."""

    treasury: str
    amount: int


class SlashesAwarded(Event):
    """Slashed bonds became credits of an appellant whose verdict in ``round`` was overturned."""

    owner: str
    round: int
    amount: int
