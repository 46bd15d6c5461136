"""The base of all events, and an event's place on the chain."""

from __future__ import annotations

from typing import NamedTuple

from protocol.chain.structs import FrozenDataclass

EVENTS: dict[str, type[Event]] = {}
"""Solidity event name to dataclass."""


class Event(metaclass=FrozenDataclass):
    """Base of all events."""

    def __init_subclass__(cls) -> None:
        """Registers the event under its name; ``slots`` builds each class twice, and the second one counts."""
        EVENTS[cls.__name__] = cls


class Log(NamedTuple):
    """An event and its place on the chain; ``timestamp`` is the block's, in unix seconds."""

    block_number: int
    block_hash: bytes
    tx_hash: bytes
    log_index: int
    timestamp: int
    event: Event
