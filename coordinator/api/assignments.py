"""A node's open assignments: the rounds in which it is listed and has jobs left to submit."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row
from sqlmodel import Session, bindparam, col, select

from coordinator.driver.schedule import claimed_jobs
from coordinator.tables import ClaimRow, ListingRow, RoundRow
from protocol.chain.structs import State
from protocol.wire.api import Assignment, Assignments
from protocol.wire.assignments import jobs_of

# Columns, not objects: every node asks several times a minute.
_OPEN = (
    select(*RoundRow.__table__.columns)  # type: ignore[attr-defined]
    .where(
        RoundRow.state == State.OPEN,
        RoundRow.run == bindparam("run"),
        col(RoundRow.id).in_(select(ListingRow.round).where(ListingRow.node == bindparam("node"))),
    )
    .order_by(col(RoundRow.id))
)


def assignments(session: Session, run: int, node: int, now: int) -> Assignments:
    """Returns the rounds of ``run`` open at ``now`` (unix seconds) that wait for the node, oldest first.

    Jobs that the node has signed for are left out; a worker that lost its artifacts before signing gets them again.
    """
    rounds = session.connection().execute(_OPEN, {"run": run, "node": node})
    found = [(round_, _open_jobs(session, round_, node)) for round_ in rounds if round_.deadline >= now]
    return Assignments(rounds=[_assignment(round_, jobs) for round_, jobs in found if jobs])


def _open_jobs(session: Session, round_: Row[Any], node: int) -> list[int]:
    done = round_.submitted
    for claim in session.exec(select(ClaimRow).where(ClaimRow.round == round_.id, ClaimRow.node == node)):
        # A refused claim counts too: the node would make the same one. A claim on another beacon is from another fork.
        done |= claimed_jobs(claim) if claim.beacon == round_.beacon else 0
    return [job for job in jobs_of(round_.assignments, node) if not done >> job & 1]


def _assignment(round_: Row[Any], jobs: list[int]) -> Assignment:
    columns = {name: value for name, value in round_._mapping.items() if name in Assignment.model_fields}
    return Assignment(**columns | {"round": round_.id, "jobs": jobs})
