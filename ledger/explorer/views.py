"""Views: what each page shows, asked for in one snapshot of the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from sqlalchemy import Connection, func, select

from ledger import facts
from ledger.api.bodies import Item, pack_cursor
from ledger.explorer.contents import JobSources, NamedSeat, RoundSources
from ledger.explorer.matrix import Matrix, matrix
from ledger.explorer.samples import SampledJob
from ledger.explorer.timeline import Moment, moment
from ledger.queries import lookup
from ledger.queries.daily import CreditDay, credits_by_day
from ledger.queries.lineage import ENFORCED, Ancestor, ancestors, taints_of
from ledger.queries.named_bytes import voting_keys
from ledger.queries.run_costs import ProviderCost, providers_since
from ledger.queries.run_progress import RunOutlook, VersionProgress, run_progress, spent_per_second, version_progress
from ledger.queries.verdicts import NodeVerdict, RefusedJobs, newest_refusals, newest_verdicts, refused_jobs
from ledger.queries.why import Explanation
from ledger.store.index import EVENT
from ledger.store.rows import fact_of, find_fact
from ledger.store.tables import TABLES, TRAINED, UNDER_WAY
from protocol.chain.structs import verdict_in
from protocol.wire.assignments import assignee_of

if TYPE_CHECKING:
    from ledger.api.published import PublishedVersions, VersionRewards

PAGE_ITEMS = 50
"""Items of a list's page."""
GLANCE_ITEMS = 10
"""Items of a list that is part of another page."""
SERIES_ITEMS = 100
"""Newest rounds or versions of a series."""
PROVIDER_ROUNDS = 20
"""Newest rounds whose providers and refusals the page of a run sums up."""
MOST_REFUSED = 200
"""Refused jobs that it counts by reason."""
RECORD_JOBS, RECORD_ROUNDS = 100, 8
"""Newest jobs and rounds of a node whose evidence its page reads."""
TRAPS_LOOKED_AT = 500
"""Newest opened traps among which those are looked for that a validator met."""
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
class VersionPoint:
    """A version with its rewards; None where they were not read."""

    made: VersionProgress
    rewards: VersionRewards | None
    tainted: int
    tx_hash: bytes
    block_number: int


@dataclass(frozen=True, slots=True)
class RewardsRead:
    """State of the rewards on a page: the relays that they come from, none unread, and why they are not there."""

    relays: tuple[str, ...]
    unread: int
    problem: str


@dataclass(frozen=True, slots=True)
class RunView:
    """A run: its newest terms and those in effect, its newest rounds and versions, its money, and some of its members.

    ``lasts_seconds`` is how long the escrow lasts at the rate of the newest rounds; None where that is unknown.
    ``versions`` are the newest after version 0, newest first; ``providers`` and ``refusals`` are of the newest
    ``summed`` of its rounds. ``shown`` rounds are part of series. ``accuracy`` by version is the trainer's own figure.
    """

    run: facts.Run
    terms: tuple[facts.RunTerms, ...]
    in_effect: facts.RunTerms
    progress: RunOutlook
    lasts_seconds: float | None
    versions: tuple[VersionPoint, ...]
    rewards: RewardsRead
    providers: tuple[ProviderCost, ...]
    refusals: tuple[RefusedJobs, ...]
    members: tuple[facts.Membership, ...]
    members_in_all: int
    samples: tuple[SampledJob, ...]
    summed: int
    shown: int = SERIES_ITEMS
    accuracy: Mapping[int, float] = field(default_factory=dict)


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
    days: tuple[CreditDay, ...]
    refusals: tuple[NodeVerdict, ...]
    traps: tuple[MetTrap, ...]
    slashes: tuple[facts.Slash, ...]
    rounds: tuple[RoundSources, ...]


@dataclass(frozen=True, slots=True)
class MetTrap:
    """A trap in a round that a validator judged, and what it voted on the trap's job."""

    trap: facts.OpenedTrap
    vote: str


@dataclass(frozen=True, slots=True)
class OwnerView:
    """An owner: its credits, nodes, newest movements and slashes."""

    credit: facts.Credit
    nodes: Listed[facts.Node]
    entries: tuple[facts.CreditEntry, ...]
    days: tuple[CreditDay, ...]
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
    sources: JobSources | None


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


def run_view(
    connection: Connection, run: int, now: int, published: PublishedVersions | None, rounds: int = PROVIDER_ROUNDS
) -> RunView | None:
    """Returns a run as of the Unix second ``now``, or None.

    Args:
        connection: to the database.
        run: id of the run.
        now: time from which the escrow's end is reckoned.
        published: has the rewards that were read by now.
        rounds: newest rounds whose providers and refusals are summed up.
    """
    fact = find_fact(connection, facts.Run, run)
    if fact is None:
        return None
    progress = run_progress(connection, run, max(SERIES_ITEMS, rounds))
    rate = spent_per_second(progress.rounds, now)
    checkpoints = lookup.newest(connection, facts.Checkpoint, None, SERIES_ITEMS, run=run)
    trained = [each for each in checkpoints if each.version > 0]
    read = published.rewards(run, trained) if published is not None else {}
    versions = version_progress(connection, run, trained)
    recent = [each.round for each in progress.rounds[:rounds]]
    return RunView(
        run=fact,
        terms=lookup.newest(connection, facts.RunTerms, None, GLANCE_ITEMS, run=run),
        in_effect=lookup.terms_at(connection, run, now),
        progress=progress,
        lasts_seconds=fact.escrow / rate if rate else None,
        versions=tuple(
            VersionPoint(each, read.get(each.version), made.tainted, made.tx_hash, made.block_number)
            for each, made in zip(versions, trained, strict=True)
        ),
        rewards=RewardsRead(
            *((published.urls, len(trained) - len(read), published.problem) if published else ((), 0, ""))
        ),
        providers=providers_since(connection, run, recent[-1]) if recent else (),
        refusals=refused_jobs(connection, recent, MOST_REFUSED),
        members=lookup.newest(connection, facts.Membership, None, PAGE_ITEMS, run=run),
        members_in_all=_count(connection, facts.Membership, run=run),
        samples=sampled_jobs(connection, run),
        summed=len(recent),
    )


def sampled_jobs(connection: Connection, run: int) -> tuple[SampledJob, ...]:
    """Returns the first accepted job of a run's first round that has one, and that of its newest such round."""
    jobs, rounds = TABLES[facts.Job].c, TABLES[facts.Round].c
    accepted = select(jobs.round, jobs.job).join(TABLES[facts.Round], rounds.round == jobs.round)
    accepted = accepted.where(rounds.run == run, jobs.verdict == "accepted").limit(1)
    first = connection.execute(accepted.order_by(rounds.round, jobs.job)).first()
    newest = connection.execute(accepted.order_by(rounds.round.desc(), jobs.job)).first()
    places = dict.fromkeys((row.round, row.job) for row in (first, newest) if row is not None)
    return tuple(_sampled(connection, *place) for place in places)


def _sampled(connection: Connection, number: int, job: int) -> SampledJob:
    round_, held = find_fact(connection, facts.Round, number), find_fact(connection, facts.Job, number, job)
    assert round_
    assert held
    node = find_fact(connection, facts.Node, held.node)
    return SampledJob(round_, held, node.owner if node else "", job_sources(connection, round_, held))


def round_view(connection: Connection, number: int, after: tuple[int, ...] | None, first: int) -> RoundView | None:
    """Returns a round, its time line from the place ``after`` on and its jobs from ``first`` on; or None."""
    fact = find_fact(connection, facts.Round, number)
    if fact is None:
        return None
    jobs = lookup.every(connection, facts.Job, round=fact.parent or number)
    seats = lookup.every(connection, facts.Seat, round=number)
    told = lookup.events(connection, after, MOMENTS + 1, round_=number)
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


def node_view(connection: Connection, number: int, with_bytes: bool) -> NodeView | None:
    """Returns a node, or None; ``with_bytes`` adds the newest rounds whose evidence may be had."""
    fact = find_fact(connection, facts.Node, number)
    if fact is None:
        return None
    jobs = TABLES[facts.Job].c
    counted = select(jobs.verdict, func.count()).where(jobs.node == number).group_by(jobs.verdict)
    worker = fact.role == "worker"
    refusals = newest_refusals(connection, number, GLANCE_ITEMS) if worker else ()
    return NodeView(
        node=fact,
        margin=fact.bond - fact.posted,
        members=lookup.newest(connection, facts.Membership, None, PAGE_ITEMS, node=number),
        members_in_all=_count(connection, facts.Membership, node=number),
        service=find_fact(connection, facts.Service, number),
        counts={row[0]: row[1] for row in connection.execute(counted)},
        verdicts=listed(newest_verdicts(connection, number, None, GLANCE_ITEMS + 1), GLANCE_ITEMS),
        earnings=lookup.newest(connection, facts.CreditEntry, None, GLANCE_ITEMS, owner=fact.owner, node=number),
        days=credits_by_day(connection, node=number),
        refusals=refusals,
        traps=() if worker else traps_met(connection, number),
        rounds=_rounds_of(connection, number, refusals) if worker and with_bytes else (),
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
    sources = job_sources(connection, round_, held) if held and isinstance(held.root, bytes) else None
    return JobView(story, round_, job, node, held, verdict, sources)


def job_sources(connection: Connection, round_: facts.Round, job: facts.Job) -> JobSources:
    """Returns what the chain says of a job's bytes: evidence is that of its round's last attempt, then its appeal's."""
    trials = (round_, *(each for each in (find_fact(connection, facts.Round, job.appeal),) if job.appeal and each))
    terms = lookup.terms_at(connection, round_.run, round_.opened_at)
    policy = find_fact(connection, facts.Checkpoint, round_.run, round_.policy_version)
    part = find_fact(connection, facts.Submission, round_.round, job.first_job)
    trainer = (terms if policy is None else lookup.terms_at(connection, round_.run, policy.timestamp)).trainer
    seats = tuple(each for trial in trials for each in named_seats(connection, trial))
    return JobSources(seats, terms.rules_hash, policy, trainer, "" if part is None else part.uri)


def named_seats(connection: Connection, round_: facts.Round) -> tuple[NamedSeat, ...]:
    """Returns the seats of a round's last attempt whose votes name evidence, in the order drawn."""
    seats = (seat for seat in lookup.every(connection, facts.Seat, round=round_.round) if seat.state == "revealed")
    present = [seat for seat in seats if seat.attempt == round_.attempt]
    naming = [seat for seat in present if isinstance(seat.evidence_root, bytes) and any(seat.evidence_root)]
    keys = voting_keys(connection, naming)
    found = ((seat, keys.get(facts.key_of(seat))) for seat in sorted(naming, key=lambda seat: seat.place))
    return tuple(NamedSeat(seat, round_.submitted, key) for seat, key in found if key is not None)


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
        days=credits_by_day(connection, owner=owner),
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


def traps_met(connection: Connection, validator: int) -> tuple[MetTrap, ...]:
    """Returns the newest traps, of the last that were opened, in rounds whose last attempt a validator voted in."""
    traps, seats, rounds = TABLES[facts.OpenedTrap], TABLES[facts.Seat], TABLES[facts.Round]
    order = (traps.c.block_number.desc(), traps.c.log_index.desc())
    opened = select(traps).where(traps.c.kind != "decoy").order_by(*order).limit(TRAPS_LOOKED_AT).subquery()
    met = (
        select(opened, seats.c.accept, seats.c.fraud)
        .join(rounds, rounds.c.round == opened.c.round)
        .join(seats, (seats.c.round == opened.c.round) & (seats.c.attempt == rounds.c.attempt))
        .where(seats.c.juror == validator, seats.c.state == "revealed")
        .order_by(opened.c.block_number.desc(), opened.c.log_index.desc())
        .limit(GLANCE_ITEMS)
    )
    found = []
    for *trap, accept, fraud in connection.execute(met):
        fact = facts.OpenedTrap(*trap)
        found.append(MetTrap(fact, verdict_in(accept, fraud, fact.job).name.lower()))
    return tuple(found)


def _rounds_of(connection: Connection, node: int, refusals: tuple[NodeVerdict, ...]) -> tuple[RoundSources, ...]:
    """Returns the rounds of a node's newest settled jobs, then those of its refusals, newest first, with its jobs."""
    jobs = TABLES[facts.Job].c
    newest = select(jobs.round).where(jobs.node == node, jobs.verdict != "submitted").order_by(jobs.round.desc())
    numbers = connection.execute(newest.limit(RECORD_JOBS)).scalars().all()
    counted = [*dict.fromkeys(numbers)][:RECORD_ROUNDS]
    found = []
    for number in dict.fromkeys([*counted, *(each.trial for each in refusals)]):
        round_ = find_fact(connection, facts.Round, number)
        if round_ is not None:
            held = lookup.every(connection, facts.Job, round=round_.parent or number, node=node)
            rules_hash = lookup.terms_at(connection, round_.run, round_.opened_at).rules_hash
            seats = named_seats(connection, round_)
            found.append(RoundSources(round_, held, seats, rules_hash, number in counted))
    return tuple(found)


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
