"""A provider that appeals against fraud verdicts on its worker.

Appeals need the owner's wallet, which the worker's host does not have. Uses the code of ``assize appeal open``.
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
    """The owner of one worker, with its wallet. Call ``close`` at the end."""

    def __init__(self, chain: Chain, wallet: Wallet, node: int, journal: Path) -> None:
        self.chain, self.node = chain, node
        journal.parent.mkdir(parents=True, exist_ok=True)
        self.sender = Sender(chain, wallet, journal)

    def appeal(self, disputes: Disputes) -> list[AppealOpened]:
        """Appeals against every fraud verdict on this worker's jobs that was not appealed yet.

        Raises:
            Rejected: the challenge period is over, or credits and tokens are insufficient.
        """
        return [
            open_appeal(self.sender, round_, job).carry_out(f"appeal/{round_}/{job}")
            for round_, job in disputes.condemned(self.node)
        ]

    def close(self) -> None:
        """Closes the sender."""
        self.sender.close()
