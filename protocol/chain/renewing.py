"""Sends what is still wanted after an intent for it has failed: under a new key, since the old one's is spent.

An intent fails where its transaction was mined and reverted, or where another program took its nonce. The journal
answers with that failure ever after, whoever asks for the same key.
"""

from __future__ import annotations

from collections import Counter

import structlog

from protocol.chain.calls import Call
from protocol.chain.receipts import Receipt
from protocol.chain.sender import Sender, Spent

log = structlog.get_logger()


class Renewing:
    """A sender whose failed intents stand in nobody's way. What it knows of them it learns from the journal again."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._spent: Counter[str] = Counter()

    def send(self, key: str, call: Call) -> Receipt:
        """Makes ``call`` happen, as ``Sender.send``; an intent of this key that failed before is another one's past.

        Raises:
            Reverted: the contract refuses it now, or it was mined and reverted.
            Rejected: the key was used for another call.
            Unavailable: as ``Sender.send``; calling again goes on where it stopped.
        """
        while True:
            spent = self._spent[key]
            try:
                return self._sender.send(f"{key}/{spent}" if spent else key, call)
            except Spent as failure:
                self._spent[key] += 1
                log.warning("sent_anew", call=call.description, why=str(failure))
