"""Every error Assize raises on purpose, and what whoever catches it should do.

    AssizeError
    ├── Unavailable      something we need is out of reach: wait, then retry
    ├── Rejected         the counterparty's bytes are bad: refuse them, they become evidence
    └── Misconfigured    this process cannot work as set up: exit, saying how to mend it

Only the loop in ``protocol.node.daemon`` and the front door catch ``AssizeError`` as a whole.
"""

from __future__ import annotations


class AssizeError(Exception):
    """Root of the tree. ``str(error)`` is one sentence a person can act on."""


class Unavailable(AssizeError):
    """A peer, chain, store or device did not answer; the same call may succeed later."""


class Rejected(AssizeError):
    """Bytes from another party break a rule of the protocol.

    ``reason`` is the protocol's reason code where one applies (see ``protocol.wire.reasons``), else 0.
    """

    def __init__(self, message: str, reason: int = 0) -> None:
        super().__init__(message)
        self.reason = reason


class Misconfigured(AssizeError):
    """Settings, files or keys of this process are wrong; the message says how to mend them."""
