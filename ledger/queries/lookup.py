"""Lookups: pages of facts, and everything about one round, run, owner or checkpoint.

Pages go on after the key of their last fact, so that a row added meanwhile shifts nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Connection, Select, select, tuple_

from ledger import facts
from ledger.book import Kind
from ledger.store.database import read_position
from ledger.store.index import EVENT
from ledger.store.rows import fact_of, find_fact
from ledger.store.tables import TABLES


@dataclass(frozen=True, slots=True)
class At:
    """The block up to which an answer holds, and the one up to which no reorganisation can change it any more."""

    block_number: int
    block_hash: str
    final_block: int


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One raw event; ``payload`` is its canonical JSON, integers as decimal strings."""

    block_number: int
    log_index: int
    block_hash: str
    tx_hash: str
    timestamp: int
    name: str
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RoundStory:
    """All that happened in one round, each part in the order of the chain."""

    round: facts.Round
    submissions: tuple[facts.Submission, ...]
    jobs: tuple[facts.Job, ...]
    committees: tuple[facts.Committee, ...]
    seats: tuple[facts.Seat, ...]
    payments: tuple[facts.CreditEntry, ...]
    slashes: tuple[facts.Slash, ...]
    consumptions: tuple[facts.Consumption, ...]
    appeals: tuple[facts.Appeal, ...]
    taints: tuple[facts.Taint, ...]


@dataclass(frozen=True, slots=True)
class RunStory:
    """A run, the terms it had and announced, the nodes that joined it and its checkpoints."""

    run: facts.Run
    terms: tuple[facts.RunTerms, ...]
    members: tuple[facts.Membership, ...]
    checkpoints: tuple[facts.Checkpoint, ...]


@dataclass(frozen=True, slots=True)
class CreditStory:
    """An owner's credits, nodes and slashes."""

    credit: facts.Credit
    nodes: tuple[facts.Node, ...]
    slashes: tuple[facts.Slash, ...]


@dataclass(frozen=True, slots=True)
class NodeStory:
    """A node, the runs that it has joined, its slashes, and its record as a validator, None of a worker."""

    node: facts.Node
    members: tuple[facts.Membership, ...]
    slashes: tuple[facts.Slash, ...]
    service: facts.Service | None


@dataclass(frozen=True, slots=True)
class CheckpointStory:
    """A checkpoint, the jobs it was trained on, and those overturned since on which it stands."""

    checkpoint: facts.Checkpoint
    consumptions: tuple[facts.Consumption, ...]
    taints: tuple[facts.Taint, ...]


@dataclass(frozen=True, slots=True)
class TreasuryStory:
    """The pot of slashed bonds, where it goes, and what went there."""

    admin: facts.Admin
    treasury: facts.Treasury
    sweeps: tuple[facts.Sweep, ...]


def at(connection: Connection) -> At:
    """Returns where the database stands."""
    position = read_position(connection)
    return At(position.block_number, "0x" + position.block_hash.hex(), position.cursor.oldest)


def page(
    connection: Connection, kind: type[Kind], after: tuple[Any, ...] | None, limit: int | None, **only: Any
) -> tuple[Kind, ...]:
    """Returns at most ``limit`` facts with the values ``only``, in the order of their keys, after the key ``after``."""
    table = TABLES[kind]
    key = [table.c[name] for name in kind.KEY]
    wanted = select(table).where(*(table.c[name] == value for name, value in only.items())).order_by(*key).limit(limit)
    if after is not None:
        wanted = wanted.where(tuple_(*key) > tuple_(*after))
    return tuple(fact_of(kind, row) for row in connection.execute(wanted))


def newest(
    connection: Connection, kind: type[Kind], before: tuple[Any, ...] | None, limit: int, **only: Any
) -> tuple[Kind, ...]:
    """Returns at most ``limit`` facts with the values ``only``, the greatest keys first, before the key ``before``."""
    table = TABLES[kind]
    key = [table.c[name] for name in kind.KEY]
    wanted = select(table).where(*(table.c[name] == value for name, value in only.items()))
    if before is not None:
        wanted = wanted.where(tuple_(*key) < tuple_(*before))
    in_order = wanted.order_by(*(column.desc() for column in key)).limit(limit)
    return tuple(fact_of(kind, row) for row in connection.execute(in_order))


def every(connection: Connection, kind: type[Kind], **only: Any) -> tuple[Kind, ...]:
    """Returns all facts with the values ``only``, in the order of their keys."""
    return page(connection, kind, None, None, **only)


def terms_at(connection: Connection, run: int, second: int) -> facts.RunTerms:
    """Returns the terms of a run that hold at a Unix second; before it opened, those that it opened with."""
    terms = TABLES[facts.RunTerms]
    of_run = select(terms).where(terms.c.run == run).order_by(terms.c.number.desc()).limit(1)
    began = of_run.where(~terms.c.replaced, terms.c.effective_at <= second)
    row = connection.execute(began).first() or connection.execute(of_run.where(terms.c.number == 0)).one()
    return fact_of(facts.RunTerms, row)


def events(
    connection: Connection,
    after: tuple[Any, ...] | None,
    limit: int,
    name: str | None = None,
    round_: int | None = None,
) -> tuple[EventRecord, ...]:
    """Returns at most ``limit`` raw events after the place (block number, log index), by name and round if given."""
    wanted = select(EVENT).order_by(EVENT.c.block_number, EVENT.c.log_index).limit(limit)
    if round_ is not None:
        wanted = wanted.where(EVENT.c.round == round_)
    if name is not None:
        wanted = wanted.where(EVENT.c.name == name)
    if after is not None:
        wanted = wanted.where(tuple_(EVENT.c.block_number, EVENT.c.log_index) > tuple_(*after))
    return _records(connection, wanted)


def events_in(connection: Connection, block: int, tx_hash: str) -> tuple[EventRecord, ...]:
    """Returns the raw events of one transaction of a block."""
    wanted = select(EVENT).where(EVENT.c.block_number == block, EVENT.c.tx_hash == tx_hash)
    return _records(connection, wanted.order_by(EVENT.c.log_index))


def _records(connection: Connection, wanted: Select[Any]) -> tuple[EventRecord, ...]:
    names = [field.name for field in fields(EventRecord)]
    rows = ({name: row._mapping[name] for name in names} for row in connection.execute(wanted))
    return tuple(EventRecord(**row | {"payload": json.loads(row["payload"])}) for row in rows)


def round_story(connection: Connection, round_: int) -> RoundStory | None:
    """Returns the story of one round, or None where there is none of this id."""
    fact = find_fact(connection, facts.Round, round_)
    if fact is None:
        return None
    return RoundStory(
        round=fact,
        submissions=every(connection, facts.Submission, round=round_),
        jobs=every(connection, facts.Job, round=round_),
        committees=every(connection, facts.Committee, round=round_),
        seats=every(connection, facts.Seat, round=round_),
        payments=every(connection, facts.CreditEntry, round=round_),
        slashes=every(connection, facts.Slash, round=round_),
        consumptions=every(connection, facts.Consumption, round=round_),
        appeals=every(connection, facts.Appeal, round=round_),
        taints=every(connection, facts.Taint, round=round_),
    )


def run_story(connection: Connection, run: int) -> RunStory | None:
    """Returns one run with its members and checkpoints, or None."""
    fact = find_fact(connection, facts.Run, run)
    if fact is None:
        return None
    return RunStory(
        run=fact,
        terms=every(connection, facts.RunTerms, run=run),
        members=every(connection, facts.Membership, run=run),
        checkpoints=every(connection, facts.Checkpoint, run=run),
    )


def credit_story(connection: Connection, owner: str) -> CreditStory | None:
    """Returns what one owner holds and has at stake, or None where the chain never spoke of it."""
    nodes = every(connection, facts.Node, owner=owner)
    credit = find_fact(connection, facts.Credit, owner)
    if credit is None and not nodes:
        return None
    return CreditStory(credit or facts.Credit(owner), nodes, every(connection, facts.Slash, owner=owner))


def node_story(connection: Connection, node: int) -> NodeStory | None:
    """Returns one node with its memberships and slashes, or None."""
    fact = find_fact(connection, facts.Node, node)
    if fact is None:
        return None
    return NodeStory(
        node=fact,
        members=every(connection, facts.Membership, node=node),
        slashes=every(connection, facts.Slash, node=node),
        service=find_fact(connection, facts.Service, node),
    )


def checkpoint_story(connection: Connection, run: int, version: int) -> CheckpointStory | None:
    """Returns one checkpoint and what it consumed, or None."""
    fact = find_fact(connection, facts.Checkpoint, run, version)
    if fact is None:
        return None
    taints = tuple(taint for taint in every(connection, facts.Taint, run=run) if taint.version <= version)
    return CheckpointStory(fact, every(connection, facts.Consumption, run=run, version=version), taints)


def treasury_story(connection: Connection) -> TreasuryStory:
    """Returns what was slashed and what became of it."""
    admin = find_fact(connection, facts.Admin, facts.THE_ONE) or facts.Admin()
    treasury = find_fact(connection, facts.Treasury, facts.THE_ONE) or facts.Treasury()
    return TreasuryStory(admin, treasury, every(connection, facts.Sweep))


def place_of(item: Any) -> tuple[Any, ...]:
    """Returns the key after which the next page begins."""
    names = ("block_number", "log_index") if isinstance(item, EventRecord) else item.KEY
    return tuple(getattr(item, name) for name in names)
