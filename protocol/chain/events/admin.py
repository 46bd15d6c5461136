"""Events of ``Admin``, except those of its roles."""

from __future__ import annotations

from protocol.chain.events.base import Event


class Paused(Event):
    """New rounds are paused."""

    pauser: str


class Unpaused(Event):
    """New rounds are possible again."""

    pauser: str


class TreasuryChanged(Event):
    """Slashed bonds go to ``treasury``."""

    treasury: str
