"""A provider that watches over its worker: what is held against it wrongly it has tried again.

The worker's host has no wallet, so this is the owner's part: the same code as ``assize appeal open``.
"""

from __future__ import annotations

from pathlib import Path

from deploy.localnet.disputes import Disputes
from protocol.chain.events import AppealOpened
from protocol.chain.reading.client import Chain
from protocol.chain.writing.appealing import open_appeal
from protocol.chain.writing.sender import Sender
from protocol.node.wallet import Wallet


class Provider:
    """The owner of one worker, with its wallet. ``close`` it."""

    def __init__(self, chain: Chain, wallet: Wallet, node: int, journal: Path) -> None:
        self.chain, self.node = chain, node
        journal.parent.mkdir(parents=True, exist_ok=True)
        self.sender = Sender(chain, wallet, journal)

    def appeal(self, disputes: Disputes) -> list[AppealOpened]:
        """Appeals against every fraud found in this worker's jobs that nobody appealed against yet.

        Raises:
            Rejected: too late, or too few credits and tokens.
        """
        return [
            open_appeal(self.sender, round_, job).carry_out(f"appeal/{round_}/{job}")
            for round_, job in disputes.condemned(self.node)
        ]

    def close(self) -> None:
        """Lets go of the key."""
        self.sender.close()
