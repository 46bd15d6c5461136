"""The errors that Assize raises on purpose, and how to handle them.

    AssizeError
    ├── Unavailable      a dependency does not answer: wait, then retry
    ├── Rejected         a party, a contract or a person asks for something invalid: refuse it
    └── Misconfigured    this process is set up wrongly: exit with a message that says how to mend it

The loop in ``protocol.node.daemon`` retries after the first two and ends after the third. Commands turn any of them
into one sentence and an exit code (``protocol.node.console``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class AssizeError(Exception):
    """Base of all errors. ``str(error)`` is one sentence that a person can act on."""


class Unavailable(AssizeError):
    """A peer, chain, store or device does not answer; the same call may succeed later."""


class Rejected(AssizeError):
    """Input is invalid: another party's bytes, a call that a contract refuses, or a person's request.

    ``reason`` is the protocol's reason code for evidence (see ``protocol.wire.reasons``), or 0 if none applies.
    """

    def __init__(self, message: str, reason: int = 0) -> None:
        super().__init__(message)
        self.reason = reason


class Misconfigured(AssizeError):
    """Settings, files or keys of this process are wrong; the message says how to mend them."""


@contextmanager
def accessing(what: str, refusal: type[Unavailable | Misconfigured] = Misconfigured) -> Iterator[None]:
    """Turns an `OSError` into a ``refusal``: "cannot ``what``" and the system's reason."""
    try:
        yield
    except OSError as error:
        raise refusal(f"cannot {what}: {error.strerror}") from error
