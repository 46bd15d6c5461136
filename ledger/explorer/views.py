"""Views: what each page shows, asked for in one snapshot of the database."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Generic

from sqlalchemy import Connection, func, select

from ledger import facts
from ledger.api.bodies import Item, pack_cursor
from ledger.explorer.matrix import Matrix, matrix
from ledger.explorer.timeline import Moment, moment
from ledger.queries import lookup
from ledger.queries.lineage import ENFORCED, Ancestor, ancestors, taints_of
from ledger.queries.run_progress import RunOutlook, run_progress, spent_per_second
from ledger.queries.verdicts import NodeVerdict, newest_verdicts
from ledger.queries.why import Explanation
from ledger.store.index import EVENT
from ledger.store.rows import fact_of, find_fact
from ledger.store.tables import TABLES, TRAINED, UNDER_WAY
from protocol.wire.assignments import assignee_of

PAGE_ITEMS = 50
"""Items of a list's page."""
GLANCE_ITEMS = 10
"""Items of a list that is part of another page."""
MOMENTS = 80
"""Events of a time line's page."""
ANCESTORS = 20
"""Versions of a lineage that a page shows."""


@dataclass(frozen=True, slots=True)
class Listed(Generic[Item]):
    """Part of a list; ``next`` is the cursor of what follows, None at the end."""

    items: tuple[Item, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class NowView:
    """The market at a glance: rounds that have not ended, and the newest slashes and checkpoints."""

    under_way: tuple[facts.Round, ...]
    slashes: tuple[facts.Slash, ...]
    checkpoints: tuple[facts.Checkpoint, ...]
    counts: dict[str, int]
    paused: bool


@dataclass(frozen=True, slots=True)
class RunView:
    """A run: its terms, its newest rounds and checkpoints, its money, and some of its members.

    ``lasts_seconds`` is how long the escrow lasts at the rate of the newest rounds; None where that is unknown.
    """

    run: facts.Run
    terms: tuple[facts.RunTerms, ...]
    progress: RunOutlook
    lasts_seconds: float | None
    checkpoints: tuple[facts.Checkpoint, ...]
    members: tuple[facts.Membership, ...]
    members_in_all: int


@dataclass(frozen=True, slots=True)
class RoundView:
    """A round: its time line, its matrix, its committees, and what was slashed, trained on and appealed."""

    round: facts.Round
    timeline: Listed[Moment]
    matrix: Matrix
    committees: tuple[tuple[facts.Committee, tuple[facts.Seat, ...]], ...]
    slashes: Listed[facts.Slash]
    consumptions: tuple[facts.Consumption, ...]
    appeals: Listed[facts.Appeal]
    verdicts: dict[str, int]


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: its bond, its newest verdicts, movements of credits and slashes. ``margin`` is above its bond, in wei."""

    node: facts.Node
    margin: int
    members: tuple[facts.Membership, ...]
    members_in_all: int
    service: facts.Service | None
    counts: dict[str, int]
    verdicts: Listed[NodeVerdict]
    earnings: tuple[facts.CreditEntry, ...]
    slashes: tuple[facts.Slash, ...]


@dataclass(frozen=True, slots=True)
class OwnerView:
    """An owner: its credits, nodes, newest movements and slashes."""

    credit: facts.Credit
    nodes: Listed[facts.Node]
    entries: tuple[facts.CreditEntry, ...]
    slashes: tuple[facts.Slash, ...]


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """A checkpoint, the newest of its line, and overturned jobs on which it stands."""

    checkpoint: facts.Checkpoint
    enforced: tuple[str, ...]
    ancestors: tuple[Ancestor, ...]
    taints: Listed[facts.Taint]


@dataclass(frozen=True, slots=True)
class TreasuryView:
    """The pot of slashed bonds, where it goes, and what went there, newest first."""

    admin: facts.Admin
    treasury: facts.Treasury
    sweeps: Listed[facts.Sweep]


@dataclass(frozen=True, slots=True)
class JobView:
    """A job's story; ``job`` is None if it was not submitted."""

    story: Explanation
    round: facts.Round
    number: int
    node: int
    job: facts.Job | None
    verdict: NodeVerdict | None


def listed(items: tuple[Any, ...], limit: int) -> Listed[Any]:
    """Returns a page of a list from one item more than it shows. PURE."""
    shown = items[:limit]
    return Listed(shown, pack_cursor(lookup.place_of(shown[-1])) if len(items) > limit else None)


def now_view(connection: Connection) -> NowView:
    """Returns the market at a glance."""
    rounds, points = TABLES[facts.Round], TABLES[facts.Checkpoint]
    going = select(rounds).where(UNDER_WAY).order_by(rounds.c.round.desc()).limit(GLANCE_ITEMS)
    made = select(points).where(TRAINED).order_by(points.c.block_number.desc()).limit(GLANCE_ITEMS)
    kinds = {"runs": facts.Run, "rounds": facts.Round, "nodes": facts.Node, "slashes": facts.Slash}
    admin = find_fact(connection, facts.Admin, facts.THE_ONE)
    return NowView(
        under_way=tuple(fact_of(facts.Round, row) for row in connection.execute(going)),
        slashes=lookup.newest(connection, facts.Slash, None, GLANCE_ITEMS),
        checkpoints=tuple(fact_of(facts.Checkpoint, row) for row in connection.execute(made)),
        counts={name: _count(connection, kind) for name, kind in kinds.items()},
        paused=admin is not None and admin.paused,
    )


def run_view(connection: Connection, run: int, now: int) -> RunView | None:
    """Returns a run as of the Unix second ``now``, or None."""
    fact = find_fact(connection, facts.Run, run)
    if fact is None:
        return None
    progress = run_progress(connection, run)
    rate = spent_per_second(progress.rounds, now)
    return RunView(
        run=fact,
        terms=lookup.newest(connection, facts.RunTerms, None, GLANCE_ITEMS, run=run),
        progress=progress,
        lasts_seconds=fact.escrow / rate if rate else None,
        checkpoints=lookup.newest(connection, facts.Checkpoint, None, GLANCE_ITEMS, run=run),
        members=lookup.newest(connection, facts.Membership, None, PAGE_ITEMS, run=run),
        members_in_all=_count(connection, facts.Membership, run=run),
    )


def round_view(connection: Connection, number: int, after: tuple[int, ...] | None, first: int) -> RoundView | None:
    """Returns a round, its time line from the place ``after`` on and its jobs from ``first`` on; or None."""
    fact = find_fact(connection, facts.Round, number)
    if fact is None:
        return None
    jobs = lookup.every(connection, facts.Job, round=fact.parent or number)
    seats = lookup.every(connection, facts.Seat, round=number)
    told = lookup.events_of_round(connection, number, after, MOMENTS + 1)
    events = listed(told, MOMENTS)
    drawn = lookup.every(connection, facts.Committee, round=number)
    return RoundView(
        round=fact,
        timeline=Listed(tuple(map(moment, events.items)), events.next),
        matrix=matrix(fact, jobs, seats, first),
        committees=tuple((one, tuple(seat for seat in seats if seat.attempt == one.attempt)) for one in drawn),
        slashes=listed(lookup.page(connection, facts.Slash, None, GLANCE_ITEMS + 1, round=number), GLANCE_ITEMS),
        consumptions=lookup.every(connection, facts.Consumption, round=number),
        appeals=listed(lookup.page(connection, facts.Appeal, None, GLANCE_ITEMS + 1, round=number), GLANCE_ITEMS),
        verdicts=dict(Counter(job.verdict for job in jobs)),
    )


def node_view(connection: Connection, number: int) -> NodeView | None:
    """Returns a node, or None."""
    fact = find_fact(connection, facts.Node, number)
    if fact is None:
        return None
    jobs = TABLES[facts.Job].c
    counted = select(jobs.verdict, func.count()).where(jobs.node == number).group_by(jobs.verdict)
    return NodeView(
        node=fact,
        margin=fact.bond - fact.posted,
        members=lookup.newest(connection, facts.Membership, None, PAGE_ITEMS, node=number),
        members_in_all=_count(connection, facts.Membership, node=number),
        service=find_fact(connection, facts.Service, number),
        counts={row[0]: row[1] for row in connection.execute(counted)},
        verdicts=listed(newest_verdicts(connection, number, None, GLANCE_ITEMS + 1), GLANCE_ITEMS),
        earnings=lookup.newest(connection, facts.CreditEntry, None, GLANCE_ITEMS, owner=fact.owner, node=number),
        slashes=lookup.newest(connection, facts.Slash, None, GLANCE_ITEMS, node=number),
    )


def job_view(connection: Connection, story: Explanation, number: int, job: int) -> JobView | None:
    """Returns a job with its story, and the verdict on it with its reason."""
    round_ = find_fact(connection, facts.Round, number)
    if round_ is None:
        return None
    node = assignee_of(round_.assignments, job)
    held = find_fact(connection, facts.Job, number, job)
    judged = newest_verdicts(connection, node, (number, job + 1), 1) if held else ()
    verdict = next((one for one in judged if (one.round, one.job) == (number, job)), None)
    return JobView(story, round_, job, node, held, verdict)


def owner_view(connection: Connection, owner: str, after: tuple[int, ...] | None) -> OwnerView | None:
    """Returns an owner with its nodes after the node ``after``, or None where the chain never spoke of it."""
    credit = find_fact(connection, facts.Credit, owner)
    nodes = lookup.page(connection, facts.Node, after, PAGE_ITEMS + 1, owner=owner)
    if credit is None and not nodes:
        return None
    return OwnerView(
        credit=credit or facts.Credit(owner),
        nodes=listed(nodes, PAGE_ITEMS),
        entries=lookup.newest(connection, facts.CreditEntry, None, GLANCE_ITEMS, owner=owner),
        slashes=lookup.newest(connection, facts.Slash, None, GLANCE_ITEMS, owner=owner),
    )


def checkpoint_view(
    connection: Connection, run: int, version: int, after: tuple[int, ...] | None
) -> CheckpointView | None:
    """Returns a checkpoint with its taints after the (round, job) ``after``, or None."""
    fact = find_fact(connection, facts.Checkpoint, run, version)
    if fact is None:
        return None
    line = ancestors(connection, run, version, ANCESTORS)
    taints = taints_of(connection, run, version, after, PAGE_ITEMS + 1)
    return CheckpointView(fact, ENFORCED, line, listed(taints, PAGE_ITEMS))


def treasury_view(connection: Connection, before: tuple[int, ...] | None) -> TreasuryView:
    """Returns the pot of slashed bonds with its sweeps before the place (block number, log index) ``before``."""
    return TreasuryView(
        admin=find_fact(connection, facts.Admin, facts.THE_ONE) or facts.Admin(),
        treasury=find_fact(connection, facts.Treasury, facts.THE_ONE) or facts.Treasury(),
        sweeps=listed(lookup.newest(connection, facts.Sweep, before, PAGE_ITEMS + 1), PAGE_ITEMS),
    )


def time_of(connection: Connection, block: int) -> int:
    """Returns the Unix second of the newest event up to a block; 0 before the first."""
    columns = EVENT.c
    wanted = select(columns.timestamp).where(columns.block_number <= block)
    found = connection.execute(wanted.order_by(columns.block_number.desc()).limit(1)).scalar_one_or_none()
    return int(found or 0)


def _count(connection: Connection, kind: type[Any], **only: Any) -> int:
    table = TABLES[kind]
    wanted = select(func.count()).select_from(table).where(*(table.c[name] == value for name, value in only.items()))
    return int(connection.execute(wanted).scalar_one())
