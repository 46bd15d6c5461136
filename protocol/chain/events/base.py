"""The base of all events, and where on the chain one stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


class Log(NamedTuple):
    """An event and where on the chain it stands; ``timestamp`` is its block's, in unix seconds."""

    block_number: int
    block_hash: bytes
    tx_hash: bytes
    log_index: int
    timestamp: int
    event: Event
