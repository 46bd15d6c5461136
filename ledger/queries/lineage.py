"""Lineage of weights: earlier checkpoints, their rollouts, and the nodes that made and judged them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, func, select, tuple_

from ledger.facts import Checkpoint, Consumption, Round, Seat, Taint
from ledger.facts.fact import Hex
from ledger.queries.lookup import At, at
from ledger.store.rows import fact_of
from ledger.store.tables import TABLES
from protocol.wire.assignments import nodes_of

ENFORCED = (
    "only the run's trainer published, each version after the last",
    "every job trained on stood accepted when it was, and was trained on once",
    "the weights are those whose manifest has this root",
)
"""Guarantees of the contracts. The audit recomputes the order of versions and the second one; no event names the
publisher. The third is checked when weights are loaded."""


@dataclass(frozen=True, slots=True)
class Ancestor:
    """One checkpoint of the line. ``nodes`` counts its rollouts' jobs by node, ``jurors`` the votes by validator.

    ``tainted`` jobs of its own were overturned after it was trained on them.
    """

    version: int
    manifest_root: Hex
    block_number: int
    tx_hash: Hex
    rounds: tuple[int, ...]
    jobs: int
    nodes: dict[int, int]
    jurors: dict[int, int]
    tainted: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """A checkpoint and all before it, newest first, as of a block. ``taints`` lie anywhere in the line."""

    run: int
    version: int
    at: At
    enforced: tuple[str, ...]
    ancestors: tuple[Ancestor, ...]
    taints: tuple[Taint, ...]


def lineage(connection: Connection, run: int, version: int) -> Lineage | None:
    """Returns the whole line of a checkpoint; None where there is no such checkpoint."""
    line, taints = ancestors(connection, run, version, None), taints_of(connection, run, version, None, None)
    return Lineage(run, version, at(connection), ENFORCED, line, taints) if line else None


def ancestors(connection: Connection, run: int, version: int, most: int | None) -> tuple[Ancestor, ...]:
    """Returns a checkpoint and those before it, the newest ``most``, newest first; none if there is no such one."""
    table = TABLES[Checkpoint]
    line = select(table).where(table.c.run == run, table.c.version <= version)
    rows = connection.execute(line.order_by(table.c.version.desc()).limit(most))
    points = [fact_of(Checkpoint, row) for row in rows]
    if not points or points[0].version != version:
        return ()
    uses, taints = TABLES[Consumption], TABLES[Taint].c
    ours = (uses.c.run == run, uses.c.version.between(points[-1].version, version))
    consumed: defaultdict[int, list[Consumption]] = defaultdict(list)
    for row in connection.execute(select(uses).where(*ours).order_by(uses.c.version, uses.c.round)):
        consumed[row.version].append(fact_of(Consumption, row))
    counted = select(taints.version, func.count()).where(taints.run == run).group_by(taints.version)
    tainted = {row[0]: row[1] for row in connection.execute(counted)}
    rounds = select(uses.c.round).where(*ours)
    makers, voters = _makers(connection, rounds), _voters(connection, rounds)
    return tuple(
        Ancestor(
            version=point.version,
            manifest_root=point.manifest_root,
            block_number=point.block_number,
            tx_hash=point.tx_hash,
            rounds=tuple(each.round for each in consumed[point.version]),
            jobs=point.jobs,
            nodes={node: jobs for node, jobs in _counts(consumed[point.version], makers).items() if jobs},
            jurors=_counts(consumed[point.version], voters),
            tainted=tainted.get(point.version, 0),
        )
        for point in points
    )


def taints_of(
    connection: Connection, run: int, version: int, after: tuple[int, ...] | None, limit: int | None
) -> tuple[Taint, ...]:
    """Returns at most ``limit`` taints that a checkpoint stands on, after the (round, job) ``after``."""
    table = TABLES[Taint]
    wanted = select(table).where(table.c.run == run, table.c.version <= version)
    if after is not None:
        wanted = wanted.where(tuple_(table.c.round, table.c.job) > tuple_(*after))
    in_order = wanted.order_by(table.c.round, table.c.job).limit(limit)
    return tuple(fact_of(Taint, row) for row in connection.execute(in_order))


_Parts = dict[int, dict[int, int]]
"""By round: a node, or a juror, to the bitmap of the jobs that it made, or accepted."""


def _makers(connection: Connection, wanted: Select[Any]) -> _Parts:
    """Returns the jobs of each node by the rounds' assignments."""
    rounds = TABLES[Round].c
    found: _Parts = {}
    for row in connection.execute(select(rounds.round, rounds.assignments).where(rounds.round.in_(wanted))):
        part = found.setdefault(row.round, defaultdict(int))
        for job, node in enumerate(nodes_of(row.assignments)):
            part[node] |= 1 << job
    return found


def _voters(connection: Connection, wanted: Select[Any]) -> _Parts:
    """Returns the jobs that each juror of the deciding attempt accepted."""
    rounds, seats = TABLES[Round].c, TABLES[Seat].c
    deciding = (seats.round == rounds.round) & (seats.attempt == rounds.attempt)
    voted = select(seats.round, seats.juror, seats.accept, seats.fraud).join_from(TABLES[Seat], TABLES[Round], deciding)
    found: _Parts = {}
    for row in connection.execute(voted.where(seats.round.in_(wanted), seats.state == "revealed")):
        found.setdefault(row.round, {})[row.juror] = row.accept & ~row.fraud
    return found


def _counts(consumed: list[Consumption], parts: _Parts) -> dict[int, int]:
    """Returns the number of jobs trained on by who made them, or accepted them."""
    counts: Counter[int] = Counter()
    for each in consumed:
        counts.update({who: (jobs & each.jobs).bit_count() for who, jobs in parts.get(each.round, {}).items()})
    return dict(sorted(counts.items()))
