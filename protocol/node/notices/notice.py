"""A notice: one message about a node, an owner or a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class NoticeKind(StrEnum):
    """Kinds of notices, as typed in the settings."""

    BOND = "bond"
    SLASHED = "slashed"
    VOID = "void"
    ABSENCE = "absence"
    TERMS = "terms"
    APPEAL = "appeal"
    CREDITS = "credits"
    SILENT = "silent"
    ESCROW = "escrow"
    VERSION = "version"


TITLES = {
    NoticeKind.BOND: "bond under its margin",
    NoticeKind.SLASHED: "bond slashed",
    NoticeKind.VOID: "jobs void or missing",
    NoticeKind.ABSENCE: "strike or fine in a committee",
    NoticeKind.TERMS: "new terms announced",
    NoticeKind.APPEAL: "time to appeal runs out",
    NoticeKind.CREDITS: "credits to redeem",
    NoticeKind.SILENT: "node silent",
    NoticeKind.ESCROW: "escrow runs out",
    NoticeKind.VERSION: "new version",
}
"""Heading of each kind's messages."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message. ``key`` names its content, whichever block it is in: the same key is never sent twice."""

    kind: NoticeKind
    key: str
    text: str

    @property
    def title(self) -> str:
        """The message's subject."""
        return f"Assize: {TITLES[self.kind]}"


@dataclass(frozen=True, slots=True)
class NoticeFigures:
    """Amounts and times at which conditions become notices.

    Args:
        margin_wei: tokens that a bond should have above what its capacity requires.
        credits_wei: credits above which their owner is reminded to redeem them; 0 for never.
        silent_seconds: time without a heartbeat after which a node is silent.
        appeal_seconds: time before the end of a challenge window at which its owner is told.
        escrow_rounds: rounds that a run's free escrow should still pay.
    """

    margin_wei: int = 0
    credits_wei: int = 0
    silent_seconds: int = 300
    appeal_seconds: int = 3600
    escrow_rounds: int = 1
