"""A notice: one message about a node, an owner or a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
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
    Kind.BOND: "bond under its margin",
    Kind.SLASHED: "bond slashed",
    Kind.VOID: "jobs void or missing",
    Kind.ABSENCE: "absent from a committee",
    Kind.TERMS: "new terms announced",
    Kind.APPEAL: "time to appeal runs out",
    Kind.CREDITS: "credits to redeem",
    Kind.SILENT: "node silent",
    Kind.ESCROW: "escrow runs out",
    Kind.VERSION: "new version",
}
"""What a message of each kind is headed."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message. ``key`` names its content, whichever block it is in: the same key is never sent twice."""

    kind: Kind
    key: str
    text: str

    @property
    def title(self) -> str:
        """The message's subject."""
        return f"Assize: {TITLES[self.kind]}"


@dataclass(frozen=True, slots=True)
class Figures:
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
