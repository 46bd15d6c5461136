"""Events of ``Admin``, less those of its roles."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.chain.events.base import Event


@dataclass(frozen=True, slots=True)
class Paused(Event):
    """No new rounds."""

    pauser: str


@dataclass(frozen=True, slots=True)
class Unpaused(Event):
    """New rounds again."""

    pauser: str


@dataclass(frozen=True, slots=True)
class TreasuryChanged(Event):
    """Slashed bonds go to ``treasury``."""

    treasury: str
