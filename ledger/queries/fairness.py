"""Fairness of assignment: expected and actual share of each node.

A round's jobs are expected to go to the nodes that could take them in proportion to their capacity: those that had
joined its run at the rules in effect and were in service when it opened. A node's jobs are compared with that
expectation by a z-score, the variance being that of draws without favour, and Holm's correction says which deviations
mean something among so many.
"""

from __future__ import annotations

import json
import math
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from sqlalchemy import Connection, select

from ledger.facts import Node
from ledger.fold.rounds import listed_jobs
from ledger.queries.lookup import at
from ledger.queries.roster import ANNOUNCING, TELLING, Roster
from ledger.store.database import Database
from ledger.store.index import not_collecting, stored_logs
from ledger.store.tables import TABLES, ReckonedRow
from protocol.chain import events as on_chain
from protocol.chain.events import Log
from protocol.errors import Unavailable
from protocol.sql import upserting

_RECKONED = ReckonedRow.__table__  # type: ignore[attr-defined]

SIGNIFICANCE = 0.01
"""Chance that a network without favour shows any significant node at all."""

COUNTED = (*TELLING, *ANNOUNCING, on_chain.RoundOpened)
"""All events that have a say in shares."""

WORTH_KEEPING = 1_000
"""Events from which on a count is kept: to count as many takes some 20 ms."""

NO_VARIANCE = 1e-9
"""Relative to what was expected: what sums of floating-point numbers leave where nothing was left to chance."""


@dataclass(frozen=True, slots=True)
class Share:
    """One worker's jobs against its due. ``p`` is two-sided; ``significant`` after correction for all nodes."""

    KEY: ClassVar[tuple[str, ...]] = ("node",)

    node: int
    owner: str
    rounds: int
    jobs: int
    expected: float
    z: float
    p: float
    significant: bool


@dataclass(slots=True)
class Tally:
    """Sums over the rounds in which a node could have worked."""

    rounds: int = 0
    jobs: int = 0
    expected: float = 0.0
    variance: float = 0.0

    def add(self, other: Tally) -> None:
        """Takes in what another sums up."""
        self.rounds += other.rounds
        self.jobs += other.jobs
        self.expected += other.expected
        self.variance += other.variance


class _Sums(NamedTuple):
    """Over the rounds of a run: how many, and jobs ÷ the capacity of all able nodes, and jobs ÷ its square.

    Between two moments they tell what was due to any node that was able all the while, whatever its capacity.
    """

    rounds: int = 0
    due: float = 0.0
    squares: float = 0.0


@dataclass(slots=True)
class _RunSums:
    """Its sums so far, the capacity of all able nodes, and for each of them the sums when it became able."""

    sums: _Sums = field(default_factory=_Sums)
    whole: int = 0
    able: dict[int, _Sums] = field(default_factory=dict)

    def opened(self, jobs: int) -> None:
        """Counts a round."""
        part = jobs / self.whole if self.whole else 0.0
        square = part / self.whole if self.whole else 0.0
        self.sums = _Sums(self.sums.rounds + 1, self.sums.due + part, self.sums.squares + square)

    def since(self, then: _Sums, capacity: int) -> Tally:
        """Returns the share due to a node that could be listed since the sums were ``then``."""
        due, squares = self.sums.due - then.due, self.sums.squares - then.squares
        return Tally(self.sums.rounds - then.rounds, 0, capacity * due, capacity * due - capacity**2 * squares)


@dataclass(slots=True)
class Count:
    """Counts each node's share from the events so far; they must start with the first one."""

    roster: Roster = field(default_factory=Roster)
    runs: dict[int, _RunSums] = field(default_factory=lambda: defaultdict(_RunSums))
    past: dict[int, Tally] = field(default_factory=lambda: defaultdict(Tally))
    """By node: its jobs, and what was due to it while it was able and no longer is."""

    def copied(self) -> Count:
        """Another that goes on from here."""
        runs = {number: replace(run, able=dict(run.able)) for number, run in self.runs.items()}
        past = {node: replace(tally) for node, tally in self.past.items()}
        return Count(self.roster.copied(), defaultdict(_RunSums, runs), defaultdict(Tally, past))

    def to_json(self) -> dict[str, Any]:
        """Returns all of it as JSON."""
        runs = [
            [number, run.sums, run.whole, [[node, *then] for node, then in run.able.items()]]
            for number, run in self.runs.items()
        ]
        past = [[node, *astuple(tally)] for node, tally in self.past.items()]
        return {"roster": self.roster.to_json(), "runs": runs, "past": past}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Count:
        """Reads what ``to_json`` wrote."""
        runs = {
            number: _RunSums(_Sums(*sums), whole, {node: _Sums(*then) for node, *then in able})
            for number, sums, whole, able in data["runs"]
        }
        past = {node: Tally(*tally) for node, *tally in data["past"]}
        return cls(Roster.from_json(data["roster"]), defaultdict(_RunSums, runs), defaultdict(Tally, past))

    def take(self, logs: Iterable[Log]) -> int:
        """Counts what follows; returns how many events that were."""
        counted = 0
        for log in logs:
            counted += 1
            for number in self.roster.renewed(log.timestamp):
                self._ask_anew(number, log.timestamp)
            if isinstance(log.event, ANNOUNCING):
                self.roster.take(log.event)
            elif isinstance(log.event, on_chain.RoundOpened):
                for node in self.roster.activated(log.timestamp):
                    self._place(node, self.roster.open_to(node, log.timestamp))
                self._opened(self.runs[log.event.run], listed_jobs(log.event.assignments))
            else:
                node = log.event.node  # type: ignore[attr-defined]  # every telling event has one
                before = frozenset(self.roster.joined[node])
                self.roster.take(log.event)
                self._place(node, self.roster.open_to(node, log.timestamp), before)
        return counted

    def _ask_anew(self, number: int, timestamp: int) -> None:
        """Applies a change of rules: nodes that could be listed have to join the run again."""
        for node in list(self.runs[number].able):
            self._place(node, self.roster.open_to(node, timestamp), frozenset({number}))

    def _place(self, node: int, open_to: frozenset[int], before: frozenset[int] = frozenset()) -> None:
        """Takes a node in where it has become able, and out where it no longer is."""
        for number in open_to | before:
            run = self.runs[number]
            if number in open_to and node not in run.able:
                run.able[node] = run.sums
                run.whole += self.roster.capacity[node]
            elif number not in open_to and node in run.able:
                run.whole -= self.roster.capacity[node]
                self.past[node].add(run.since(run.able.pop(node), self.roster.capacity[node]))

    def _opened(self, run: _RunSums, listed: dict[int, int]) -> None:
        """Counts a round's jobs as available to every node that could be listed, and to those listed anyway."""
        run.opened(sum(listed.values()))
        for node, jobs in listed.items():
            self.past[node].add(Tally(rounds=int(node not in run.able), jobs=jobs))

    def tallies(self) -> dict[int, Tally]:
        """Every node's that could have worked, or did."""
        found = {node: replace(tally) for node, tally in self.past.items()}
        for run in self.runs.values():
            for node, then in run.able.items():
                found.setdefault(node, Tally()).add(run.since(then, self.roster.capacity[node]))
        return {node: tally for node, tally in sorted(found.items()) if tally.rounds}


def fairness(connection: Connection) -> tuple[Share, ...]:
    """Every worker's share of the work against its due, in the order of nodes."""
    return Reckoning().shares(connection)


@dataclass(frozen=True, slots=True)
class _ShareScores:
    """Of every worker, in the order of nodes, as of a block."""

    block_hash: str
    tallies: dict[int, Tally]
    z: dict[int, float]
    chances: dict[int, float]
    significant: set[int]

    @classmethod
    def of(cls, block_hash: str, tallies: dict[int, Tally]) -> _ShareScores:
        """From what was counted."""
        z = {node: _score(tally) for node, tally in tallies.items()}
        chances = {node: math.erfc(abs(score) / math.sqrt(2)) for node, score in z.items()}
        return cls(block_hash, tallies, z, chances, _holm(chances))


class Reckoning:
    """Counts what is final once, and goes on from there when asked again. Safe to share between threads.

    Args:
        database: where it keeps a long count, for the next process to go on from; None keeps it in memory alone.
    """

    def __init__(self, database: Database | None = None) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._final = Count()
        self._counted_to = -1
        self._scores = _ShareScores.of("", {})

    def shares(self, connection: Connection, after: int = -1, limit: int | None = None) -> tuple[Share, ...]:
        """Shares of the work against their due, in the order of nodes: at most ``limit`` of the workers after one."""
        with self._lock:
            scores = self._scores_at(connection)
        nodes = list(scores.z)
        shown = nodes[bisect_right(nodes, after) :][:limit]
        owners = _owners(connection, shown)
        return tuple(_share(scores, node, owners.get(node, "")) for node in shown)

    def _scores_at(self, connection: Connection) -> _ShareScores:
        here = at(connection)
        if here.block_hash == self._scores.block_hash:
            return self._scores
        if self._counted_to < 0:
            self._final, self._counted_to = _kept(connection, here.final_block)
        if here.final_block > self._counted_to:
            final = self._final.copied()  # where the database fails half-way, nothing was counted
            counted = final.take(stored_logs(connection, COUNTED, self._counted_to, here.final_block))
            self._final, self._counted_to = final, here.final_block
            if counted >= WORTH_KEEPING and self._database is not None:
                # In a thread of its own: whoever asks as of a block keeps writers waiting.
                keeping = (self._database, here.final_block, json.dumps(final.to_json()))
                threading.Thread(target=_keep, args=keeping, name="reckoning", daemon=True).start()
        if self._counted_to <= here.block_number:
            count, counted_to = self._final.copied(), self._counted_to
        else:  # another was answered from a later block meanwhile
            count, counted_to = Count(), -1
        count.take(stored_logs(connection, COUNTED, counted_to))
        self._scores = _ShareScores.of(here.block_hash, count.tallies())
        return self._scores


def _kept(connection: Connection, final_block: int) -> tuple[Count, int]:
    """Returns the count that is kept and its block; an empty one where there is none, or it goes further."""
    row = connection.execute(select(_RECKONED)).one_or_none()
    if row is None or row.block_number > final_block:
        return Count(), -1
    with not_collecting():  # a hundred thousand values at once: looking for cycles took 80% of the time
        return Count.from_json(json.loads(row.counted)), row.block_number


def _keep(database: Database, block_number: int, counted: str) -> None:
    with suppress(Unavailable), database.writing() as connection:
        kept = upserting(connection.dialect, _RECKONED)
        connection.execute(kept, {"id": 1, "block_number": block_number, "counted": counted})


def _owners(connection: Connection, nodes: list[int]) -> dict[int, str]:
    """Of nodes in ascending order, in one query."""
    if not nodes:
        return {}
    columns = TABLES[Node].c
    wanted = select(columns.node, columns.owner).where(columns.node.between(nodes[0], nodes[-1]))
    return {row.node: row.owner for row in connection.execute(wanted)}


def _share(scores: _ShareScores, node: int, owner: str) -> Share:
    tally = scores.tallies[node]
    return Share(
        node=node,
        owner=owner,
        rounds=tally.rounds,
        jobs=tally.jobs,
        expected=round(tally.expected, 3),
        z=round(scores.z[node], 3),
        p=float(f"{scores.chances[node]:.3g}"),
        significant=node in scores.significant,
    )


def _score(tally: Tally) -> float:
    apart = tally.jobs - tally.expected
    if tally.variance > NO_VARIANCE * max(1.0, tally.expected):
        return apart / math.sqrt(tally.variance)
    return 0.0 if abs(apart) < 1e-6 else math.copysign(math.inf, apart)


def _holm(chances: dict[int, float]) -> set[int]:
    """The nodes whose deviation is significant among all of them."""
    found: set[int] = set()
    for place, (node, chance) in enumerate(sorted(chances.items(), key=lambda each: each[1])):
        if chance > SIGNIFICANCE / (len(chances) - place):
            break
        found.add(node)
    return found
