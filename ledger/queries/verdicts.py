"""Verdicts on one node's jobs, with the reason that the jurors of the majority gave.

The reason is that of most jurors whose vote was the verdict. What they measured is not on the chain: their evidence,
which is named here by its root, has it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, Connection, Row, Select, select, tuple_

from ledger.facts import Appeal, Job, Round, Seat
from ledger.facts.fact import Hex, Wide
from ledger.store.index import EVENT
from ledger.store.tables import TABLES
from protocol.chain.events import RoundTallied, RoundVoided
from protocol.chain.structs import verdict_in
from protocol.errors import Rejected
from protocol.wire.reasons import Reason
from protocol.wire.votes import Vote, most_given, reasons_of

ENDS = (RoundTallied.__name__, RoundVoided.__name__)
DECIDED = ("upheld", "overturned")
"""States of appeals whose committee gave a verdict."""
REFUSED = ("void", "fraud", "unavailable")
"""Verdicts under which a job is not paid."""
LOOKED_AT = 500
"""Newest jobs of a node among which refusals are looked for."""
TOGETHER = 100
"""Verdicts whose votes are asked for at once."""
NO_QUORUM = "the round ended without a verdict"


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """The verdict on a job, as appeals have left it, and where on the chain its round got its verdict.

    ``reason`` is a name of ``protocol.wire.reasons`` and ``sentence`` says it in words; both are empty where no juror's
    reason can be read. In a round without a verdict only ``sentence`` is given: it says so. ``evidence_roots`` are
    those of the jurors that agree with ``reason``. ``appeal`` may be pending; ``trial`` is the round, or the appeal,
    whose votes gave the verdict. ``credited`` is in wei.
    """

    KEY: ClassVar[tuple[str, ...]] = ("round", "job")

    round: int
    job: int
    node: int
    verdict: str
    reason: str
    sentence: str
    jurors: int
    evidence_roots: tuple[Hex, ...]
    appeal: int
    trial: int
    units: Wide
    credited: Wide
    block_number: int
    timestamp: int
    tx_hash: str


def node_verdicts(
    connection: Connection, node: int, since: int, after: tuple[int, ...] | None, limit: int | None
) -> tuple[NodeVerdict, ...]:
    """Returns at most ``limit`` verdicts that were given at ``since`` (unix seconds) or later, by an appeal's too.

    They are in the order of rounds and jobs, after the (round, job) ``after``.
    """
    job = TABLES[Job].c
    appealed = select(EVENT.c.round).where(EVENT.c.name.in_(ENDS), EVENT.c.timestamp >= since)
    wanted = (
        _verdicts(job.node == node)
        .where((EVENT.c.timestamp >= since) | ((job.appeal != 0) & job.appeal.in_(appealed)))
        .order_by(job.round, job.job)
        .limit(limit)
    )
    if after is not None:
        wanted = wanted.where(tuple_(job.round, job.job) > tuple_(*after))
    return tuple(_told(connection, connection.execute(wanted).all()))


@dataclass(frozen=True, slots=True)
class RefusedJobs:
    """Jobs refused for one reason: how many, and the newest of them, as (round, job), as an example."""

    verdict: str
    reason: str
    sentence: str
    jobs: int
    example: tuple[int, int]


def refused_jobs(connection: Connection, rounds: Sequence[int], limit: int) -> tuple[RefusedJobs, ...]:
    """Returns the newest ``limit`` jobs of these rounds that were judged other than accepted, the most frequent first.

    A job whose reason nobody can read is counted under an empty one.
    """
    job = TABLES[Job].c
    wanted = _verdicts(job.round.in_(rounds), job.verdict.in_(REFUSED))
    newest = wanted.order_by(job.round.desc(), job.job.desc()).limit(limit)
    found: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for each in _told(connection, connection.execute(newest).all()):
        found.setdefault((each.verdict, each.reason, each.sentence), []).append((each.round, each.job))
    counted = (RefusedJobs(*what, len(places), places[0]) for what, places in found.items())
    return tuple(sorted(counted, key=lambda each: -each.jobs))


def newest_verdicts(
    connection: Connection, node: int, before: tuple[int, ...] | None, limit: int
) -> tuple[NodeVerdict, ...]:
    """Returns at most ``limit`` verdicts on a node's jobs, the newest rounds first, before (round, job) ``before``."""
    job = TABLES[Job].c
    wanted = _verdicts(job.node == node).order_by(job.round.desc(), job.job.desc()).limit(limit)
    if before is not None:
        wanted = wanted.where(tuple_(job.round, job.job) < tuple_(*before))
    return tuple(_told(connection, connection.execute(wanted).all()))


def newest_refusals(connection: Connection, node: int, limit: int) -> tuple[NodeVerdict, ...]:
    """Returns at most ``limit`` verdicts other than accepted on a node's newest jobs, the newest rounds first."""
    job = TABLES[Job].c
    looked_at = select(job.round, job.job).where(job.node == node).order_by(job.round.desc(), job.job.desc())
    newest = looked_at.limit(LOOKED_AT).subquery()
    wanted = _verdicts(job.node == node).join(newest, (newest.c.round == job.round) & (newest.c.job == job.job))
    refused = wanted.where(job.verdict != "accepted").order_by(job.round.desc(), job.job.desc()).limit(limit)
    return tuple(_told(connection, connection.execute(refused).all()))


def _verdicts(*which: ColumnElement[bool]) -> Select[Any]:
    job = TABLES[Job].c
    return (
        select(TABLES[Job], EVENT.c.block_number, EVENT.c.timestamp, EVENT.c.tx_hash)
        .join(EVENT, (EVENT.c.round == job.round) & EVENT.c.name.in_(ENDS))
        .where(job.verdict != "submitted", *which)
    )


def _told(connection: Connection, rows: Sequence[Row[Any]]) -> Iterator[NodeVerdict]:
    for start in range(0, len(rows), TOGETHER):
        part = rows[start : start + TOGETHER]
        jobs = [Job(**{name: row._mapping[name] for name in Job.__dataclass_fields__}) for row in part]
        decided = _decided(connection, jobs)
        votes = _votes(connection, {job.round for job in jobs} | decided)
        for job, row in zip(jobs, part, strict=True):
            place = {name: row._mapping[name] for name in ("block_number", "timestamp", "tx_hash")}
            trial = job.appeal if job.appeal in decided else job.round
            reason, roots = _reason(votes[trial], job)
            word = "" if reason is None else reason.name.lower()
            sentence = NO_QUORUM if not votes[job.round] else "" if reason is None else reason.sentence
            what = (job.round, job.job, job.node, job.verdict, word, sentence, len(roots), roots, job.appeal)
            yield NodeVerdict(*what, trial, job.units, job.credited, **place)


def _decided(connection: Connection, jobs: Iterable[Job]) -> set[int]:
    """Returns the appeals of jobs that gave them their verdict."""
    appeals = TABLES[Appeal].c
    wanted = select(appeals.appeal).where(appeals.appeal.in_({job.appeal for job in jobs}), appeals.state.in_(DECIDED))
    return set(connection.execute(wanted).scalars())


_Votes = list[tuple[Vote, dict[int, Reason]]]
"""Votes of a round, each with its reason by job."""


def _votes(connection: Connection, numbers: set[int]) -> defaultdict[int, _Votes]:
    """Returns the votes revealed in the last attempt of rounds and appeals."""
    seats, rounds = TABLES[Seat].c, TABLES[Round].c
    last = (seats.round == rounds.round) & (seats.attempt == rounds.attempt)
    wanted = select(TABLES[Seat], rounds.submitted).join(TABLES[Round], last)
    wanted = wanted.where(seats.round.in_(numbers), seats.state == "revealed")
    found: defaultdict[int, _Votes] = defaultdict(list)
    for row in connection.execute(wanted.order_by(seats.round, seats.juror)):
        vote = Vote(row.accept, row.fraud, row.reasons, row.evidence_root)
        found[row.round].append((vote, _readable(vote, row.submitted)))
    return found


def _readable(vote: Vote, submitted: int) -> dict[int, Reason]:
    try:
        return reasons_of(vote, submitted)
    except Rejected:
        return {}


def _reason(votes: _Votes, job: Job) -> tuple[Reason | None, tuple[bytes, ...]]:
    """Returns the reason most named for the verdict, and the roots of the evidence of those that named it."""
    return most_given(
        [
            (reasons[job.job], vote.evidence_root)
            for vote, reasons in votes
            if job.job in reasons and verdict_in(vote.accept, vote.fraud, job.job).name.lower() == job.verdict
        ]
    )
