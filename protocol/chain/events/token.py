"""Events of ``Token``."""

from __future__ import annotations

from protocol.chain.events.base import Event


class Transfer(Event):
    """Tokens moved; minted where ``sender`` is zero."""

    sender: str
    to: str
    value: int


class Approval(Event):
    """An owner lets a spender take tokens."""

    owner: str
    spender: str
    value: int


class Dripped(Event):
    """The faucet minted ``amount``; ``total`` is all it gave this address."""

    to: str
    amount: int
    total: int
