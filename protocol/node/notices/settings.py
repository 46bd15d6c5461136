"""Settings of ``assize notices``."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from protocol.amounts import wei_of
from protocol.node.notices.notice import NoticeFigures, NoticeKind
from protocol.node.settings import AmountText, NodeSettings, settings_config


class NoticesSettings(NodeSettings):
    """``ASSIZE_NOTICES_…``; of the shared ones, those of keys are not used.

    Args:
        urls_file: file of targets in Apprise's notation, one URL a line; it holds secrets.
        owners: addresses of whose nodes, runs and credits to tell.
        nodes: nodes to tell of, whoever owns them.
        runs: runs to tell of, whoever opened them.
        kinds: kinds of notices; by default all.
        coordinator_urls: base URLs of coordinators, which know when a node was last heard of.
        margin: tokens that a bond should have above what is required.
        credits_above: credits from which on to remind of redeeming them; 0 for never.
        silent_seconds: time without a heartbeat after which a node is silent.
        appeal_seconds: time before the end of a challenge window at which to tell of it.
        escrow_rounds: rounds that a run's free escrow should still pay.
        interval_seconds: pause between looks at the chain.
    """

    model_config = settings_config("ASSIZE_NOTICES_")

    keystore: str = ""
    urls_file: Path
    owners: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    runs: tuple[int, ...] = ()
    kinds: tuple[NoticeKind, ...] = tuple(NoticeKind)
    coordinator_urls: tuple[str, ...] = ()
    margin: AmountText = "0"
    credits_above: AmountText = "0"
    silent_seconds: int = Field(default=300, ge=1)
    appeal_seconds: int = Field(default=3600, ge=0)
    escrow_rounds: int = Field(default=1, ge=0)
    interval_seconds: float = Field(default=5.0, gt=0)

    def figures(self) -> NoticeFigures:
        """Returns the amounts and times at which conditions become notices."""
        amounts = (wei_of(self.margin), wei_of(self.credits_above))
        return NoticeFigures(*amounts, self.silent_seconds, self.appeal_seconds, self.escrow_rounds)
