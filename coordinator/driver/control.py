"""Run control by the coordinator's operator: holds, which open no rounds, and bans, which list a worker no more.

    pause ──> paused ──┐                          Both only touch what a coordinator chooses. Rounds under way go on,
    drain ──> draining ┼──> resume                and a banned worker finishes the jobs that it was listed with: the
                └──> drained ──┘                  chain gave it those, as it draws the seats of validators.

The state is in the coordinator's database, by run. Every process reads it there.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlmodel import Session, bindparam, select

from coordinator.tables import BanRow, HoldRow, NodeRow
from protocol.chain.structs import Role
from protocol.errors import Misconfigured
from protocol.times import clock

PAUSED, DRAINING, DRAINED = "paused", "draining", "drained"

_BANNED = select(BanRow.run).where(BanRow.run == bindparam("run"), BanRow.node == bindparam("node"))

MOST_REASON = 200
"""Longest reason of a hold or a ban, in characters."""


def checked_reason(why: str) -> str:
    """Returns a reason that nodes and the status will show; raises ``Misconfigured`` unless it is one short line."""
    told = why.strip()
    if len(told) > MOST_REASON or not told.isprintable():
        raise Misconfigured(f"invalid reason {told[:40]!r}: expected one line of at most {MOST_REASON} characters")
    return told


def hold(session: Session, run: int, state: str, why: str, now: float) -> HoldRow:
    """Holds a run ``PAUSED`` or ``DRAINING`` from ``now`` (unix seconds) on; returns the hold."""
    return session.merge(HoldRow(run=run, state=state, why=checked_reason(why), since=now))


def release(session: Session, run: int) -> bool:
    """Ends the run's hold; returns whether there was one."""
    held = session.get(HoldRow, run)
    if held is not None:
        session.delete(held)
    return held is not None


def hold_sentence(held: HoldRow | None) -> str:
    """Returns the reason for which a hold keeps rounds from opening; empty without a hold."""
    if held is None:
        return ""
    what = {
        PAUSED: "paused by the coordinator's operator",
        DRAINING: "draining: no more rounds are opened, those under way go on",
        DRAINED: "drained: every round has ended",
    }[held.state]
    return f"{what}: {held.why}" if held.why else what


def ban(session: Session, run: int, node: int, why: str, until: float | None, now: float) -> BanRow:
    """Bans a worker from a run's new rounds; ``until`` in unix seconds, None until it is lifted.

    Raises:
        Misconfigured: an empty or long reason, a node that the mirror does not know, or a validator.
    """
    if not checked_reason(why):
        raise Misconfigured("invalid reason '': expected one line for the node's owner to read")
    known = session.get(NodeRow, node)
    if known is None:
        raise Misconfigured(f"invalid node {node}: expected one in the blocks that this coordinator has read")
    if known.role != Role.WORKER:
        raise Misconfigured(f"invalid node {node}: expected a worker; the chain draws the seats of validators")
    return session.merge(BanRow(run=run, node=node, why=checked_reason(why), until=until, since=now))


def lift(session: Session, run: int, node: int) -> bool:
    """Lifts a ban; returns whether there was one."""
    banned = session.get(BanRow, (run, node))
    if banned is not None:
        session.delete(banned)
    return banned is not None


def ban_of(session: Session, run: int, node: int, now: float) -> BanRow | None:
    """Returns the node's ban in force at ``now`` (unix seconds), or None."""
    if session.connection().execute(_BANNED, {"run": run, "node": node}).first() is None:  # nearly always, and cheaper
        return None
    found = session.get(BanRow, (run, node))
    return found if found is not None and in_force(found, now) else None


def bans(session: Session, run: int, now: float) -> Mapping[int, BanRow]:
    """Returns a run's bans in force at ``now`` (unix seconds) by node, ascending."""
    rows = session.exec(select(BanRow).where(BanRow.run == run).order_by(BanRow.node))  # type: ignore[arg-type]
    return {row.node: row for row in rows if in_force(row, now)}


def in_force(row: BanRow, now: float) -> bool:
    """Returns whether a ban has not ended at ``now`` (unix seconds)."""
    return row.until is None or now < row.until


def ban_sentence(banned: BanRow) -> str:
    """Returns the reason and the end of a ban."""
    end = "until it is lifted" if banned.until is None else f"until {clock(int(banned.until))}"
    return f"banned by the coordinator's operator {end}: {banned.why}"
