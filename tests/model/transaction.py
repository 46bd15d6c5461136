"""What a verb of the model is told of its call, and how it says no."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

NOBODY = "0x" + "00" * 20
"""The zero address; addresses are checksummed throughout the model."""
NO_HASH = bytes(32)


class Refused(Exception):
    """A verb reverts with the custom error ``name`` and these arguments; nothing it did counts."""

    def __init__(self, name: str, *arguments: Any) -> None:
        super().__init__(name, arguments)
        self.name = name
        self.arguments = arguments


@dataclass(frozen=True, slots=True)
class Transaction:
    """Who calls, at which timestamp in seconds, in which block of a chain that serves hashes ``window`` blocks back."""

    sender: str
    now: int
    block: int
    window: int
    hash_of: Callable[[int], bytes]

    def by(self, contract: str) -> Transaction:
        """The same moment, called by a contract."""
        return replace(self, sender=contract)
