"""Interrupted sends: how far one came, said at once, and what became of it, said by the next command."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from protocol.errors import Unavailable
from protocol.node.console import note

if TYPE_CHECKING:
    from protocol.chain.writing.calls import Call
    from protocol.chain.writing.sender import Sender

SETTLE_SECONDS = 3.0
"""Longest wait for a transaction that an earlier command left, before the next command goes on."""

POLL_SECONDS = 0.2


@contextmanager
def saying_how_far(sender: Sender, intent: str, calls: Sequence[Call], resumes: bool = False) -> Iterator[None]:
    """Has an interrupt or an outage say which of the calls were sent.

    Args:
        sender: sends them.
        intent: their name in its journal.
        calls: in their order, the verb itself last.
        resumes: whether the command, typed again, goes on; any other means its verb again.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted: {_how_far(sender, intent, calls, resumes)}") from None
    except Unavailable as error:
        raise Unavailable(f"{error}; {_how_far(sender, intent, calls, resumes)}") from error


def _how_far(sender: Sender, intent: str, calls: Sequence[Call], resumes: bool) -> str:
    from protocol.chain.writing.sender import key_of

    came = [(call, sender.progress(key_of(intent, call))) for call in calls]
    if all(progress is None for _, progress in came):
        return "nothing was sent"
    said = "; ".join(progress or f"{call.description} was not sent" for call, progress in came)
    if resumes or came[-1][1] is None:
        return said
    return f"{said}; typing the command again sends another; see: assize wallet sent {sender.address}"


def tell_what_was_left(sender: Sender) -> None:
    """Says on stderr what became of the transactions that an earlier command left unfinished."""
    give_up = time.monotonic() + SETTLE_SECONDS
    for left in sender.left:
        while time.monotonic() < give_up and any(left.key == each.key for each in sender.unfinished()):
            time.sleep(POLL_SECONDS)
            sender.reconcile()
        note(f"from an earlier command: {sender.progress(left.key)}")
