"""One frozen value per event, named and ordered as in ``contracts/src/interfaces``; fields in snake case.

Types as in ``structs``.
"""

from __future__ import annotations

from protocol.chain.events.admin import (
    Paused,
    TreasuryChanged,
    Unpaused,
)
from protocol.chain.events.base import Event, Log
from protocol.chain.events.credits import (
    CreditsBought,
    CreditsEarned,
    CreditsGranted,
    CreditsLocked,
    CreditsRedeemed,
    CreditsUnlocked,
)
from protocol.chain.events.market import (
    CheckpointPublished,
    DepositLocked,
    DepositPaidOut,
    EscrowReleased,
    EscrowReserved,
    NodeJoined,
    NodeLeft,
    RunClosed,
    RunFunded,
    RunOpened,
    RunRefunded,
    TermsAnnounced,
)
from protocol.chain.events.registry import (
    BondToppedUp,
    BondWithdrawn,
    KeyRevoked,
    KeyRotated,
    NodeRegistered,
    NodeRetired,
    NodeSlashed,
    SlashesAwarded,
    TreasurySwept,
)
from protocol.chain.events.rounds import (
    AppealDecided,
    AppealedJobSettled,
    AppealOpened,
    CommitteeDrawn,
    CommitteeRedrawn,
    JobsConsumed,
    JobsFreed,
    JobsTainted,
    JurorSettled,
    RevealStarted,
    RoundClosed,
    RoundOpened,
    RoundSettled,
    RoundTallied,
    RoundVoided,
    SubmissionRefused,
    SubmissionSettled,
    Submitted,
    VoteCommitted,
    VoteRevealed,
)
from protocol.chain.events.token import (
    Approval,
    Dripped,
    Transfer,
)

__all__ = [
    "EVENTS",
    "AppealDecided",
    "AppealOpened",
    "AppealedJobSettled",
    "Approval",
    "BondToppedUp",
    "BondWithdrawn",
    "CheckpointPublished",
    "CommitteeDrawn",
    "CommitteeRedrawn",
    "CreditsBought",
    "CreditsEarned",
    "CreditsGranted",
    "CreditsLocked",
    "CreditsRedeemed",
    "CreditsUnlocked",
    "DepositLocked",
    "DepositPaidOut",
    "Dripped",
    "EscrowReleased",
    "EscrowReserved",
    "Event",
    "JobsConsumed",
    "JobsFreed",
    "JobsTainted",
    "JurorSettled",
    "KeyRevoked",
    "KeyRotated",
    "Log",
    "NodeJoined",
    "NodeLeft",
    "NodeRegistered",
    "NodeRetired",
    "NodeSlashed",
    "Paused",
    "RevealStarted",
    "RoundClosed",
    "RoundOpened",
    "RoundSettled",
    "RoundTallied",
    "RoundVoided",
    "RunClosed",
    "RunFunded",
    "RunOpened",
    "RunRefunded",
    "SlashesAwarded",
    "SubmissionRefused",
    "SubmissionSettled",
    "Submitted",
    "TermsAnnounced",
    "Transfer",
    "TreasuryChanged",
    "TreasurySwept",
    "Unpaused",
    "VoteCommitted",
    "VoteRevealed",
]

EVENTS: dict[str, type[Event]] = {
    name: value
    for name, value in list(globals().items())
    if isinstance(value, type) and issubclass(value, Event) and value is not Event
}
"""Solidity event name to dataclass."""
