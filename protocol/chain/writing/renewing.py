"""Sends what is wanted, whatever became of earlier intents by the same name.

An intent fails where its transaction was mined and reverted, or where another program took its nonce: its key is spent,
and the journal answers with that failure ever after. And after a reorganisation another round may go by the same
number: what is wanted by the same name is another call then, which no key may stand for beside the first.
"""

from __future__ import annotations

from collections import Counter

import structlog
from eth_utils.crypto import keccak

from protocol.chain.writing.calls import Call
from protocol.chain.writing.receipts import Receipt
from protocol.chain.writing.sender import Sender, Spent

log = structlog.get_logger()


def key_of(name: str, call: Call) -> str:
    """The key of an intent, by its name and by what it says."""
    return f"{name}/{keccak(call.to.encode() + call.data).hex()[:16]}"


class Renewing:
    """A sender whose earlier intents stand in nobody's way. What it knows of them it learns from the journal again."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._spent: Counter[str] = Counter()

    def send(self, name: str, call: Call) -> Receipt:
        """Makes ``call`` happen once, as ``Sender.send``; an intent for it that failed before is the past.

        Raises:
            Reverted: the contract refuses it now, or it was mined and reverted.
            Unavailable: as ``Sender.send``; calling again goes on where it stopped.
        """
        key = key_of(name, call)
        while True:
            spent = self._spent[key]
            try:
                return self._sender.send(f"{key}/{spent}" if spent else key, call)
            except Spent as failure:
                self._spent[key] += 1
                log.warning("sent_anew", call=call.description, why=str(failure))
