"""Events of ``Market``."""

from __future__ import annotations

from protocol.chain.events.base import Event
from protocol.chain.structs import Consumption, RunTerms


class RunOpened(Event):
    """A run was opened; ``manifest_root`` is its version 0."""

    run: int
    requester: str
    terms: RunTerms
    manifest_root: bytes
    uri: str


class RunFunded(Event):
    """``amount`` credits were locked; free escrow is now ``escrow``."""

    run: int
    requester: str
    amount: int
    escrow: int


class RunClosed(Event):
    """A run was closed: it opens no new rounds."""

    run: int
    requester: str


class RunRefunded(Event):
    """``amount`` credits went back to the requester; free escrow is now ``escrow``."""

    run: int
    requester: str
    amount: int
    escrow: int


class NodeJoined(Event):
    """A node consented to a run's rules."""

    run: int
    node: int
    rules_hash: bytes


class NodeLeft(Event):
    """A node no longer takes part in a run."""

    run: int
    node: int


class NodeStruck(Event):
    """A validator did not vote in a round, or could not read what an appeal's committee read; ``strikes`` count."""

    run: int
    node: int
    round: int
    strikes: int


class EscrowReserved(Event):
    """Escrow was reserved for a round."""

    run: int
    round: int
    amount: int


class EscrowReleased(Event):
    """Unused reserved escrow went back to free escrow."""

    run: int
    round: int
    amount: int


class CheckpointPublished(Event):
    """A new checkpoint, and the jobs it was trained on."""

    run: int
    version: int
    manifest_root: bytes
    consumed: tuple[Consumption, ...]


class TermsAnnounced(Event):
    """New terms from ``effective_at`` on; they also replace an earlier announcement that is not in effect yet."""

    run: int
    requester: str
    terms: RunTerms
    effective_at: int


class DepositLocked(Event):
    """Credits were locked as the deposit on the appeal ``round``."""

    run: int
    round: int
    owner: str
    amount: int


class DepositPaidOut(Event):
    """Credits of the appeal ``round`` became free credits of ``to``."""

    run: int
    round: int
    to: str
    amount: int
