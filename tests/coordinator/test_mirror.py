"""The mirror on a chain that is reorganised, and rebuilt from nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlmodel import select

from coordinator.driver.wiring import DriverProcess, keep_rules
from coordinator.mirror.fold import fold
from coordinator.mirror.market import Market
from coordinator.mirror.mirror import Mirror
from coordinator.mirror.undoing import undo
from coordinator.store import Store
from coordinator.tables import MIRROR, AnnouncementRow, CursorRow, MemberRow, RunRow
from protocol.chain.events import Event, Log, NodeJoined, NodeLeft
from protocol.chain.reading.client import Chain
from protocol.chain.reading.cursor import Cursor as Position
from protocol.chain.writing import calls
from protocol.errors import Misconfigured, Unavailable
from protocol.wire.reasons import Reason
from tests.conftest import Anvil
from tests.coordinator.swarm import JOBS, PRICE, RULES, Swarm
from tests.postgresql import new_database

Rows = dict[str, list[dict[str, object]]]


def rows(store: Store) -> Rows:
    """Everything mirrored, table by table, the cursor's own history left out."""
    with store.reading() as session:
        return {
            table.__name__: sorted((row.model_dump() for row in session.exec(select(table))), key=repr)
            for table in MIRROR
            if table is not CursorRow
        }


def test_a_mirror_rebuilt_from_nothing_has_the_same_rows_in_either_database(
    swarm: Swarm, driver: DriverProcess, api: str, tmp_path: Path, postgresql: str
) -> None:
    swarm.first_verdict(driver.tick, {3: Reason.SHAPE})
    followed = Store(swarm.settings().database)
    for again in (f"sqlite:///{tmp_path / 'again.db'}", new_database(postgresql)):
        rebuilt = Store(again)
        keep_rules(rebuilt, RULES)
        Mirror(swarm.chain, rebuilt).follow()
        assert rows(followed) == rows(rebuilt)
        assert any(row["neglect"] > 0 for row in rows(rebuilt)["NodeRow"])
        rebuilt.close()
    followed.close()


def test_what_a_reorganisation_undid_is_gone_from_the_mirror(
    swarm: Swarm, driver: DriverProcess, api: str, tmp_path: Path, postgresql: str
) -> None:
    stores = [Store(url) for url in (f"sqlite:///{tmp_path / 'mirror.db'}", new_database(postgresql))]
    mirrors = [Mirror(swarm.chain, store) for store in stores]
    assert all(not mirror.follow().rounds for mirror in mirrors)
    before = rows(stores[0])
    driver.tick()
    swarm.beat()
    driver.tick()
    assert all(len(mirror.follow().rounds) == 2 for mirror in mirrors)
    swarm.anvil.rpc.call("anvil_reorg", 2, [])
    for mirror, store in zip(mirrors, stores, strict=True):
        assert not mirror.follow().rounds
        assert rows(store) == before
        assert mirror.market.nodes[swarm.workers[0].node].in_flight == 0
        store.close()


def test_every_step_is_undone_to_what_stood_before_it(
    swarm: Swarm, driver: DriverProcess, api: str, tmp_path: Path, postgresql: str
) -> None:
    def work() -> None:
        for worker in swarm.workers:
            swarm.work(worker, swarm.client(worker).assignments(worker.node)[0])

    def judge() -> None:
        swarm.vote(1, {job: Reason.SHAPE if job == 3 else Reason.ACCEPTED for job in range(JOBS)})

    stores = [Store(url) for url in (f"sqlite:///{tmp_path / 'mirror.db'}", new_database(postgresql))]
    stood: list[list[tuple[Position, Rows]]] = [[] for _ in stores]
    mirrors = [Mirror(swarm.chain, store) for store in stores]
    market = driver.tick
    for happens in (market, swarm.beat, market, work, market, judge, market):
        happens()
        for mirror, store, of_store in zip(mirrors, stores, stood, strict=True):
            mirror.follow()
            of_store.append((position(store), rows(store)))
    for store, of_store in zip(stores, stood, strict=True):
        assert len({repr(before) for _, before in of_store}) > 3
        for place, before in reversed(of_store):
            with store.writing() as session:
                undo(session, place)
            assert (position(store), rows(store)) == (place, before)
        store.close()


def position(store: Store) -> Position:
    with store.reading() as session:
        return Position.from_json(session.exec(select(CursorRow)).one().position)


def at(event: Event, block: int) -> Log:
    return Log(block, b"\1" * 32, b"\2" * 32, 0, 1_700_000_000 + block, event)


def test_a_node_that_joined_twice_and_left_between_two_looks_is_not_written() -> None:
    market = Market()
    for block, rules in enumerate((b"\1" * 32, b"\2" * 32)):
        fold(market, at(NodeJoined(1, 7, rules), block))
    fold(market, at(NodeLeft(1, 7), 2))
    rows, removed = market.take_changes()
    assert rows == []
    assert [(row.run, row.node) for row in removed if isinstance(row, MemberRow)] == [(1, 7)]


def test_what_came_and_went_between_two_looks_is_no_row_to_delete(chain: Chain, anvil: Anvil, tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'mirror.db'}")
    mirror = Mirror(chain, store)
    mirror.follow().remove(AnnouncementRow(run=1, effective_at=5, terms="{}"))
    anvil.rpc.call("evm_mine")
    mirror.follow()
    assert rows(store)["AnnouncementRow"] == []
    store.close()


def test_terms_that_could_not_be_written_when_their_time_came_are_written_by_the_next_look(
    swarm: Swarm, tmp_path: Path
) -> None:
    path = tmp_path / "mirror.db"
    store = Store(f"sqlite:///{path}")
    mirror = Mirror(swarm.chain, store)
    terms = replace(swarm.chain.latest().run(swarm.run).terms, rules_hash=b"\x09" * 32, price_per_unit=PRICE + 1)
    swarm.send(swarm.requester, calls.announce(swarm.chain.deployment, swarm.run, terms))
    then = mirror.follow().announcements[swarm.run].effective_at
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="database does not answer"):
            mirror.take_effect(then)
    mirror.follow()
    mirror.take_effect(then)
    with store.reading() as session:
        assert session.get_one(RunRow, swarm.run).price_per_unit == PRICE + 1
    assert rows(store)["AnnouncementRow"] == []
    store.close()


def test_the_database_of_another_revision_is_named_at_once_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "mirror.db"
    for _ in range(2):
        Store(f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        older.execute(f"ALTER TABLE {RunRow.__tablename__} DROP COLUMN price_per_unit")
    with pytest.raises(Misconfigured, match=r"another revision of Assize.*'runs'.*delete it"):
        Store(f"sqlite:///{path}")


def test_threads_that_write_to_postgresql_do_not_wait_for_one_another(postgresql: str) -> None:
    store = Store(new_database(postgresql))
    with store.writing() as first, store.writing() as second:
        for session in (first, second):
            session.exec(select(RunRow)).all()
    store.close()
