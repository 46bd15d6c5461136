"""Verdicts on one node's jobs, with the reason that the jurors of the majority gave.

The reason is that of most jurors whose vote was the verdict. What they measured is not on the chain: their evidence,
which is named here by its root, has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, Connection, Row, Select, select, tuple_

from ledger.facts import Appeal, Job, Round, Seat
from ledger.facts.fact import Hex, Wide
from ledger.queries.lookup import every
from ledger.store.index import EVENT
from ledger.store.rows import find_fact
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
NO_QUORUM = "the round ended without a verdict"


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """The verdict on a job, as appeals have left it, and where on the chain its round got its verdict.

    ``reason`` is a name of ``protocol.wire.reasons`` and ``sentence`` says it in words; both are empty where no juror's
    reason can be read. In a round without a verdict only ``sentence`` is given: it says so. ``evidence_roots`` are
    those of the jurors that agree with ``reason``. ``credited`` is in wei.
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
    return tuple(_told(connection, connection.execute(wanted)))


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
    return tuple(_told(connection, connection.execute(wanted)))


def newest_refusals(connection: Connection, node: int, limit: int) -> tuple[NodeVerdict, ...]:
    """Returns at most ``limit`` verdicts other than accepted on a node's newest jobs, the newest rounds first."""
    job = TABLES[Job].c
    looked_at = select(job.round, job.job).where(job.node == node).order_by(job.round.desc(), job.job.desc())
    newest = looked_at.limit(LOOKED_AT).subquery()
    wanted = _verdicts(job.node == node).join(newest, (newest.c.round == job.round) & (newest.c.job == job.job))
    refused = wanted.where(job.verdict != "accepted").order_by(job.round.desc(), job.job.desc()).limit(limit)
    return tuple(_told(connection, connection.execute(refused)))


def _verdicts(*which: ColumnElement[bool]) -> Select[Any]:
    job = TABLES[Job].c
    return (
        select(TABLES[Job], EVENT.c.block_number, EVENT.c.timestamp, EVENT.c.tx_hash)
        .join(EVENT, (EVENT.c.round == job.round) & EVENT.c.name.in_(ENDS))
        .where(job.verdict != "submitted", *which)
    )


def _told(connection: Connection, rows: Iterable[Row[Any]]) -> Iterator[NodeVerdict]:
    votes = lru_cache(maxsize=64)(lambda round_: _votes(connection, round_))
    for row in rows:
        held = {name: value for name, value in row._mapping.items() if name in Job.__dataclass_fields__}
        place = {name: row._mapping[name] for name in ("block_number", "timestamp", "tx_hash")}
        job = Job(**held)
        reason, roots = _reason(votes(_judged_in(connection, job)), job)
        word = "" if reason is None else reason.name.lower()
        sentence = NO_QUORUM if not votes(job.round) else "" if reason is None else reason.sentence
        what = (job.round, job.job, job.node, job.verdict, word, sentence, len(roots), roots, job.appeal)
        yield NodeVerdict(*what, job.units, job.credited, **place)


def _judged_in(connection: Connection, job: Job) -> int:
    """Returns the number of the appeal that gave a job its verdict, else of its round."""
    appeal = find_fact(connection, Appeal, job.appeal) if job.appeal else None
    return job.appeal if appeal is not None and appeal.state in DECIDED else job.round


def _votes(connection: Connection, round_: int) -> list[tuple[Vote, dict[int, Reason]]]:
    """Returns the votes revealed in the last attempt of a round or an appeal, each with its reason by job."""
    fact = find_fact(connection, Round, round_)
    found: list[tuple[Vote, dict[int, Reason]]] = []
    for seat in every(connection, Seat, round=round_) if fact else ():
        assert fact is not None
        if seat.state == "revealed" and seat.attempt == fact.attempt:
            vote = Vote(seat.accept, seat.fraud, seat.reasons, seat.evidence_root)
            found.append((vote, _readable(vote, fact.submitted)))
    return found


def _readable(vote: Vote, submitted: int) -> dict[int, Reason]:
    try:
        return reasons_of(vote, submitted)
    except Rejected:
        return {}


def _reason(votes: list[tuple[Vote, dict[int, Reason]]], job: Job) -> tuple[Reason | None, tuple[bytes, ...]]:
    """Returns the reason most named for the verdict, and the roots of the evidence of those that named it."""
    return most_given(
        [
            (reasons[job.job], vote.evidence_root)
            for vote, reasons in votes
            if job.job in reasons and verdict_in(vote.accept, vote.fraud, job.job).name.lower() == job.verdict
        ]
    )
