"""Events of ``Credits``."""

from __future__ import annotations

from protocol.chain.events.base import Event


class CreditsBought(Event):
    """Tokens became credits."""

    owner: str
    amount: int


class CreditsRedeemed(Event):
    """Credits of ``owner`` became tokens of ``to``."""

    owner: str
    to: str
    amount: int


class CreditsLocked(Event):
    """Credits became a run's escrow, or a deposit on an appeal."""

    owner: str
    run: int
    amount: int


class CreditsUnlocked(Event):
    """Credits of a run became free credits of ``owner``."""

    owner: str
    run: int
    amount: int


class CreditsEarned(Event):
    """Credits left a run's escrow for the owner of ``node``."""

    owner: str
    run: int
    round: int
    node: int
    amount: int


class CreditsGranted(Event):
    """Slashed tokens became credits of an appellant whose verdict in ``round`` was overturned."""

    owner: str
    round: int
    amount: int
