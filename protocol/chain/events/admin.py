"""Events of ``Admin``, except those of its roles."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.chain.events.base import Event


@dataclass(frozen=True, slots=True)
class Paused(Event):
    """New rounds are paused."""

    pauser: str


@dataclass(frozen=True, slots=True)
class Unpaused(Event):
    """New rounds are possible again."""

    pauser: str


@dataclass(frozen=True, slots=True)
class TreasuryChanged(Event):
    """Slashed bonds go to ``treasury``."""

    treasury: str
