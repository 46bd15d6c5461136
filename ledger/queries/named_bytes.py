"""Bytes that the chain names by a hash: artifacts, evidence and rules, and whose key must have signed the evidence."""

from __future__ import annotations

import json
from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, literal_column, select, tuple_

from ledger.facts import Job, Node, RunTerms, Seat, key_of
from ledger.store.index import EVENT
from ledger.store.rows import fact_of, find_fact
from ledger.store.tables import TABLES
from protocol.chain.events import BondWithdrawn, KeyRevoked, KeyRotated, NodeRegistered, VoteRevealed

SIGNERS = 8
"""Seats, the oldest, whose votes name one bundle and whose keys may have signed it; an honest bundle has one seat."""
LOSING = (KeyRotated.__name__, KeyRevoked.__name__, BondWithdrawn.__name__)
"""Events by which a node loses its key."""

_place = tuple_(EVENT.c.block_number, EVENT.c.log_index)


def names_artifact(connection: Connection, root: bytes) -> bool:
    """Returns True if a submitted job has this artifact."""
    return _any(connection, TABLES[Job].c.root == root)


def names_rules(connection: Connection, rules_hash: bytes) -> bool:
    """Returns True if a run's terms have these rules."""
    return _any(connection, TABLES[RunTerms].c.rules_hash == rules_hash)


def signers_of(connection: Connection, root: bytes) -> tuple[str, ...]:
    """Returns the keys of which one must have signed the evidence with this root; none if no vote names it."""
    seats = TABLES[Seat]
    wanted = select(seats).where(seats.c.evidence_root == root, seats.c.state == "revealed")
    rows = connection.execute(wanted.order_by(seats.c.round, seats.c.attempt, seats.c.juror).limit(SIGNERS))
    return tuple(dict.fromkeys(voting_keys(connection, [fact_of(Seat, row) for row in rows]).values()))


def voting_keys(connection: Connection, seats: Iterable[Seat]) -> dict[tuple[int | str, ...], str]:
    """Returns the key that each juror had when it revealed its vote, by the key of the seat."""
    revealed = {key_of(seat): seat for seat in seats}
    wanted = select(EVENT.c.round, EVENT.c.block_number, EVENT.c.log_index, EVENT.c.payload)
    numbers = {seat.round for seat in revealed.values()}
    voted = wanted.where(EVENT.c.round.in_(numbers), EVENT.c.name == VoteRevealed.__name__)
    found = dict[tuple[int | str, ...], str]()
    for row in connection.execute(voted):
        vote = json.loads(row.payload)
        seat = revealed.get((row.round, int(vote["attempt"]), int(vote["juror"])))
        if seat and (key := _key_at(connection, seat.juror, (row.block_number, row.log_index))):
            found[key_of(seat)] = key
    return {place: found[place] for place in revealed if place in found}


def _key_at(connection: Connection, node: int, place: tuple[int, int]) -> str:
    """Returns the key of a node as the events up to a place in the chain have left it, or the last it had."""
    of_node = EVENT.c.payload.contains(f'"node":"{node}"')
    block = place[0]
    later = (EVENT.c.block_number >= block) & (_place > tuple_(*place))
    if not _any(connection, EVENT.c.name.in_(LOSING) & later & of_node):
        held = find_fact(connection, Node, node)
        if held is not None and not held.revoked and not held.withdrawn:
            return held.key
    for kind in (KeyRotated, NodeRegistered):
        given = select(EVENT.c.payload).where(EVENT.c.name == kind.__name__, EVENT.c.block_number <= block, of_node)
        newest = given.where(_place < tuple_(*place)).order_by(EVENT.c.block_number.desc(), EVENT.c.log_index.desc())
        if (payload := connection.execute(newest.limit(1)).scalar()) is not None:
            return str(json.loads(payload)["key"])
    return ""


def _any(connection: Connection, condition: ColumnElement[bool]) -> bool:
    return connection.execute(select(literal_column("1")).where(condition).limit(1)).first() is not None
