"""Effects of the chain's events on the mirrored rows. PURE.

``fold`` applies one log and notes the rows that it touched, so that the caller can write exactly those. The events of
``Rounds`` are in ``fold_rounds``.
"""

from __future__ import annotations

from coordinator.mirror.fold_rounds import ROUND_HANDLERS
from coordinator.mirror.market import Handler, Market, announcement_of, term_columns
from coordinator.tables import CheckpointRow, EarningRow, MemberRow, NodeRow, RunRow
from protocol.chain import events as on_chain
from protocol.chain.events import Log
from protocol.chain.round_changes import changed_round
from protocol.chain.structs import Cause

NO_KEY = "0x" + "0" * 40


def fold(market: Market, log: Log) -> None:
    """Applies one log; events without an effect on any row are ignored."""
    market.take_effect(log.timestamp)
    handler = _HANDLERS.get(type(log.event).__name__)
    if handler is not None:
        handler(market, log, log.event)
    number = changed_round(log.event)
    if number is not None:
        market.advance_round(number, log)


def _opened_run(market: Market, log: Log, event: on_chain.RunOpened) -> None:
    terms = term_columns(event.terms)
    market.runs[event.run] = RunRow(id=event.run, requester=event.requester, **terms)
    market.touch(market.runs[event.run])
    market.touch(CheckpointRow(run=event.run, version=0, manifest_root=event.manifest_root))


def _announced(market: Market, log: Log, event: on_chain.TermsAnnounced) -> None:
    market.announcements[event.run] = announcement_of(event.run, event.terms, event.effective_at)
    market.touch(market.announcements[event.run])


def _escrow(market: Market, log: Log, event: on_chain.RunFunded | on_chain.RunRefunded) -> None:
    market.set(market.runs[event.run], escrow=event.escrow)


def _closed_run(market: Market, log: Log, event: on_chain.RunClosed) -> None:
    market.set(market.runs[event.run], closed=True)


def _reserved(market: Market, log: Log, event: on_chain.EscrowReserved) -> None:
    market.add(market.runs[event.run], escrow=-event.amount, reserved=event.amount)


def _released(market: Market, log: Log, event: on_chain.EscrowReleased) -> None:
    market.add(market.runs[event.run], escrow=event.amount, reserved=-event.amount)


def _earned(market: Market, log: Log, event: on_chain.CreditsEarned) -> None:
    market.add(market.runs[event.run], reserved=-event.amount)
    earning = market.earnings.setdefault((event.run, event.owner), EarningRow(run=event.run, owner=event.owner))
    market.add(earning, amount=event.amount)


def _deposited(market: Market, log: Log, event: on_chain.DepositLocked) -> None:
    market.add(market.runs[event.run], reserved=event.amount)


def _paid_out(market: Market, log: Log, event: on_chain.DepositPaidOut) -> None:
    market.add(market.runs[event.run], reserved=-event.amount)


def _joined(market: Market, log: Log, event: on_chain.NodeJoined) -> None:
    member = MemberRow(run=event.run, node=event.node, rules_hash=event.rules_hash)
    market.members[event.run, event.node] = member
    market.touch(member)


def _left(market: Market, log: Log, event: on_chain.NodeLeft) -> None:
    member = market.members.pop((event.run, event.node), None)
    if member is not None:
        market.remove(member)


def _published(market: Market, log: Log, event: on_chain.CheckpointPublished) -> None:
    market.set(market.runs[event.run], version=event.version)
    market.touch(CheckpointRow(run=event.run, version=event.version, manifest_root=event.manifest_root))


def _registered(market: Market, log: Log, event: on_chain.NodeRegistered) -> None:
    # Registering takes exactly the required bond, so the event tells what that is.
    market.nodes[event.node] = NodeRow(
        id=event.node,
        owner=event.owner,
        key=event.key,
        role=event.role,
        slot=event.slot,
        capacity=event.capacity,
        active_at=event.active_at,
        bond=event.bond,
        required=event.bond,
    )
    market.touch(market.nodes[event.node])


def _topped_up(market: Market, log: Log, event: on_chain.BondToppedUp) -> None:
    market.set(market.nodes[event.node], bond=event.bond)


def _retired(market: Market, log: Log, event: on_chain.NodeRetired) -> None:
    market.set(market.nodes[event.node], retired_at=event.retired_at)


def _passed(market: Market, log: Log, event: on_chain.SlotPassed) -> None:
    market.set(market.nodes[event.newcomer], active_at=event.active_at)


def _withdrawn(market: Market, log: Log, event: on_chain.BondWithdrawn) -> None:
    market.set(market.nodes[event.node], bond=0, key=NO_KEY)


def _slashed(market: Market, log: Log, event: on_chain.NodeSlashed) -> None:
    node = market.nodes[event.node]
    market.set(node, bond=event.bond, slashed=node.slashed + event.amount)
    if event.cause is Cause.FRAUD and not node.fraudulent:
        market.set(node, fraudulent=1)


def _rotated(market: Market, log: Log, event: on_chain.KeyRotated) -> None:
    market.set(market.nodes[event.node], key=event.key, revoked=False)


def _revoked(market: Market, log: Log, event: on_chain.KeyRevoked) -> None:
    market.set(market.nodes[event.node], key=NO_KEY, revoked=True)


def _paused(market: Market, log: Log, event: on_chain.Paused | on_chain.Unpaused) -> None:
    market.set(market.admin, paused=isinstance(event, on_chain.Paused))


_HANDLERS: dict[str, Handler] = {
    "RunOpened": _opened_run,
    "Paused": _paused,
    "Unpaused": _paused,
    "TermsAnnounced": _announced,
    "RunFunded": _escrow,
    "RunRefunded": _escrow,
    "RunClosed": _closed_run,
    "EscrowReserved": _reserved,
    "EscrowReleased": _released,
    "DepositLocked": _deposited,
    "DepositPaidOut": _paid_out,
    "CreditsEarned": _earned,
    "NodeJoined": _joined,
    "NodeLeft": _left,
    "CheckpointPublished": _published,
    "NodeRegistered": _registered,
    "BondToppedUp": _topped_up,
    "NodeRetired": _retired,
    "SlotPassed": _passed,
    "BondWithdrawn": _withdrawn,
    "NodeSlashed": _slashed,
    "KeyRotated": _rotated,
    "KeyRevoked": _revoked,
    **ROUND_HANDLERS,
}
"""By event name."""
