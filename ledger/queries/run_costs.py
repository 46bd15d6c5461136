"""Costs of a run: what was spent on what, by provider and by version, kept against the escrow.

funded + deposits in = work + juror fees + refunded + deposits out + escrow left + reserved
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from ledger import facts
from ledger.facts.fact import Wide
from ledger.queries.lookup import every
from ledger.store.rows import fact_of, find_fact
from ledger.store.tables import TABLES
from protocol.errors import Rejected


@dataclass(frozen=True, slots=True)
class ProviderCost:
    """A node's part in a run. ``seats`` are a validator's; the other counts are jobs handed in by a worker.

    ``units`` are those of its accepted jobs; ``paid`` is what it earned, ``slashed`` what its bond lost in rounds of
    the run, in wei.
    """

    owner: str
    node: int
    role: str
    accepted: int
    void: int
    fraud: int
    unavailable: int
    seats: int
    units: Wide
    paid: Wide
    slashed: Wide


@dataclass(frozen=True, slots=True)
class VersionCost:
    """A version: jobs that it was trained on, what was paid for them, and by how many versions they were behind."""

    version: int
    timestamp: int
    jobs: int
    units: Wide
    paid: Wide
    staleness: float


@dataclass(frozen=True, slots=True)
class RunCosts:
    """Costs of a run so far, in wei.

    ``work`` and ``fees`` were earned, ``slashed`` left bonds in its rounds, ``awarded`` came from that to appellants.
    ``trapped`` went from the deposits of its traps to finders and treasury, ``trap_deposits`` are still held; neither
    is of the escrow.
    """

    run: int
    requester: str
    closed: bool
    version: int
    opened_at: int
    funded: Wide
    deposited: Wide
    work: Wide
    fees: Wide
    refunded: Wide
    paid_out: Wide
    escrow: Wide
    reserved: Wide
    slashed: Wide
    awarded: Wide
    trapped: Wide
    trap_deposits: Wide
    units: Wide
    providers: tuple[ProviderCost, ...]
    versions: tuple[VersionCost, ...]

    @property
    def spent(self) -> int:
        """Work and juror fees together."""
        return self.work + self.fees

    @property
    def a_version(self) -> int | None:
        """Mean cost of a version, in wei; None before the first."""
        made = len(self.versions)
        return self.spent // made if made else None


def run_costs(connection: Connection, run: int) -> RunCosts:
    """Returns the costs of a run.

    Raises:
        Rejected: there is no such run, or its parts do not sum up to what was funded.
    """
    fact = find_fact(connection, facts.Run, run)
    if fact is None:
        raise Rejected(f"there is no run {run}")
    rounds = {each.round: each for each in every(connection, facts.Round, run=run)}
    jobs, entries = jobs_of_run(connection, run), every(connection, facts.CreditEntry, run=run)
    earned = {kind: sum(each.amount for each in entries if each.kind == kind) for kind in ("worked", "judged")}
    slashes = slashes_of_run(connection, run)
    opened = find_fact(connection, facts.RunTerms, run, 0)
    trapped, held = _trap_costs(connection, run)
    costs = RunCosts(
        run=run,
        requester=fact.requester,
        closed=fact.closed,
        version=fact.version,
        opened_at=opened.announced_at if opened else 0,
        funded=fact.funded,
        deposited=fact.deposited,
        work=earned["worked"],
        fees=earned["judged"],
        refunded=fact.refunded,
        paid_out=fact.paid_out,
        escrow=fact.escrow,
        reserved=fact.reserved,
        slashed=sum(each.amount for each in slashes),
        awarded=sum(each.awarded for each in every(connection, facts.Appeal, run=run)),
        trapped=trapped,
        trap_deposits=held,
        units=sum(job.units for job in jobs if job.verdict == "accepted"),
        providers=_providers(connection, jobs, entries, slashes, _seats_of_run(connection, run)),
        versions=_versions(connection, run, jobs, rounds),
    )
    _check(costs, fact)
    return costs


def _check(costs: RunCosts, fact: facts.Run) -> None:
    came = costs.funded + costs.deposited
    went = costs.work + costs.fees + costs.refunded + costs.paid_out + costs.escrow + costs.reserved
    if came != went or costs.spent != fact.paid:
        raise Rejected(
            f"the costs of run {costs.run} sum up to {went} wei, {came} wei came in: "
            "audit the ledger with: assize ledger audit"
        )


def _trap_costs(connection: Connection, run: int) -> tuple[int, int]:
    """Returns what a run's traps have cost, and what is still deposited for them, in wei."""
    sets = every(connection, facts.TrapSet, run=run)
    held, cost = sum(each.balance for each in sets), sum(each.leaves * each.bounty - each.balance for each in sets)
    for each in sets:
        opened = every(connection, facts.OpenedTrap, set=each.set)
        cost -= each.bounty * sum(leaf.kind == "decoy" for leaf in opened)
    return cost, held


def jobs_of_run(connection: Connection, run: int, since: int = 0) -> tuple[facts.Job, ...]:
    """Returns every job handed in to rounds of a run, from the round ``since`` on, by round and job."""
    jobs = TABLES[facts.Job]
    wanted = _in_rounds(facts.Job, run, since).order_by(jobs.c.round, jobs.c.job)
    return tuple(fact_of(facts.Job, row) for row in connection.execute(wanted))


def slashes_of_run(connection: Connection, run: int, since: int = 0) -> tuple[facts.Slash, ...]:
    """Returns the slashes in rounds of a run and their appeals, from the round ``since`` on, oldest first."""
    slashes = TABLES[facts.Slash]
    wanted = _in_rounds(facts.Slash, run, since).order_by(slashes.c.block_number, slashes.c.log_index)
    return tuple(fact_of(facts.Slash, row) for row in connection.execute(wanted))


def providers_since(connection: Connection, run: int, since: int) -> tuple[ProviderCost, ...]:
    """Returns the part of every node in the rounds of a run from ``since`` on, the best paid first."""
    job, entry = TABLES[facts.Job].c, TABLES[facts.CreditEntry].c
    jobs = _in_rounds(facts.Job, run, since).with_only_columns(job.node, job.verdict, job.units)
    entries = _in_rounds(facts.CreditEntry, run, since).with_only_columns(entry.node, entry.amount)
    slashes, seats = slashes_of_run(connection, run, since), _seats_of_run(connection, run, since)
    return _providers(connection, connection.execute(jobs), connection.execute(entries), slashes, seats)


def _in_rounds(kind: type[facts.Fact], run: int, since: int) -> Select[Any]:
    """Returns the query of all facts of a kind in rounds of a run, from the round ``since`` on."""
    table, rounds = TABLES[kind], TABLES[facts.Round].c
    return (
        select(table)
        .join(TABLES[facts.Round], rounds.round == table.c.round)
        .where(rounds.run == run, rounds.round >= since)
    )


def _seats_of_run(connection: Connection, run: int, since: int = 0) -> Counter[int]:
    """Returns the number of seats of each juror in rounds of a run."""
    juror = TABLES[facts.Seat].c.juror
    counted = _in_rounds(facts.Seat, run, since).with_only_columns(juror, func.count()).group_by(juror)
    return Counter({row[0]: row[1] for row in connection.execute(counted)})


def _providers(
    connection: Connection,
    jobs: Iterable[facts.Job | Row[Any]],
    entries: Iterable[facts.CreditEntry | Row[Any]],
    slashes: Iterable[facts.Slash],
    seats: Counter[int],
) -> tuple[ProviderCost, ...]:
    """Returns the part of every node that worked, judged or was slashed, the best paid first."""
    outcomes, units = defaultdict[int, Counter[str]](Counter), Counter[int]()
    for job in jobs:
        outcomes[job.node][job.verdict] += 1
        units[job.node] += job.units if job.verdict == "accepted" else 0
    paid, slashed = Counter[int](), Counter[int]()
    for entry in entries:
        if entry.node:
            paid[entry.node] += entry.amount
    for slash in slashes:
        slashed[slash.node] += slash.amount
    found = []
    for number in sorted({*outcomes, *seats, *paid, *slashed}):
        node = find_fact(connection, facts.Node, number)
        verdicts = {name: outcomes[number][name] for name in ("accepted", "void", "fraud", "unavailable")}
        owner, role = (node.owner, node.role) if node else ("", "")
        sums = {"units": units[number], "paid": paid[number], "slashed": slashed[number]}
        found.append(ProviderCost(owner, number, role, **verdicts, seats=seats[number], **sums))
    return tuple(sorted(found, key=lambda one: (-one.paid, one.node)))


def _versions(
    connection: Connection, run: int, jobs: tuple[facts.Job, ...], rounds: dict[int, facts.Round]
) -> tuple[VersionCost, ...]:
    trained = sorted((job for job in jobs if job.trained), key=attrgetter("trained"))
    by_version = {version: list(group) for version, group in groupby(trained, attrgetter("trained"))}
    found = []
    for made in every(connection, facts.Checkpoint, run=run):
        if made.version == 0:
            continue
        used = by_version.get(made.version, [])
        behind = [made.previous - rounds[job.round].policy_version for job in used]
        found.append(
            VersionCost(
                version=made.version,
                timestamp=made.timestamp,
                jobs=len(used),
                units=sum(job.units for job in used),
                paid=sum(job.credited for job in used),
                staleness=sum(behind) / len(behind) if behind else 0.0,
            )
        )
    return tuple(found)
