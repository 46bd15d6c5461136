"""Revisions of the coordinator's tables: on an empty database, on one made before them, and by processes at once."""

from __future__ import annotations

import multiprocessing
import sqlite3
from contextlib import closing
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, text
from sqlmodel import SQLModel

from coordinator.migrations import newest
from coordinator.migrations.versions.r0001_first_tables import TABLES
from coordinator.store import Store, look_at
from coordinator.tables import RulesRow
from protocol.errors import Misconfigured
from tests.postgresql import new_database


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'coordinator.db'}"
    return new_database(request.getfixturevalue("postgresql"))


def test_an_empty_database_gets_the_tables_that_this_version_reads_and_writes(database: str) -> None:
    for _ in range(2):  # a look changes nothing
        assert look_at(database) == f"at revision none; the start of a process brings it to {', '.join(newest())}"
    with closing(Store(database)) as store:
        assert store.migrated == f"at revision {', '.join(newest())}, made anew"
    with closing(Store(database)) as again:
        assert again.migrated == look_at(database) == f"at revision {', '.join(newest())}"
    engine = create_engine(database)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, SQLModel.metadata) == []
    engine.dispose()


def test_a_database_made_before_revisions_is_taken_over_with_its_rows(database: str) -> None:
    engine = create_engine(database)
    TABLES.create_all(engine)
    with engine.begin() as connection:
        connection.execute(TABLES.tables["rules"].insert().values(hash=b"\x01" * 32, body=b"{}"))
    with closing(Store(database)) as store:
        assert store.migrated.endswith("upgraded from before 0001")
        with store.reading() as session:
            assert session.get_one(RulesRow, b"\x01" * 32).body == b"{}"
    with engine.connect() as connection:  # the code of that time still finds no other columns in its tables
        for table in TABLES.sorted_tables:
            assert connection.execute(table.select()).keys() == list(table.columns.keys())
            assert connection.execute(text(f"SELECT * FROM {table.name}")).keys() == table.columns.keys()
    engine.dispose()


def test_a_database_of_another_time_without_revision_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    engine = create_engine(f"sqlite:///{path}")
    TABLES.create_all(engine)
    engine.dispose()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("ALTER TABLE nodes ADD COLUMN colour TEXT")
        before = list(other.execute("SELECT sql FROM sqlite_master"))
        with pytest.raises(Misconfigured, match="its table 'nodes' has other columns"):
            Store(f"sqlite:///{path}")
        assert list(other.execute("SELECT sql FROM sqlite_master")) == before


def test_a_database_of_a_newer_version_is_refused_in_one_sentence(database: str) -> None:
    Store(database).close()
    engine = create_engine(database)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO alembic_version VALUES ('9999')"))
    with pytest.raises(Misconfigured, match=r"^the coordinator's database is at revision 9999, this version .* update"):
        Store(database)
    engine.dispose()


def test_columns_of_a_later_revision_do_not_stop_this_version(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    Store(f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path, isolation_level=None)) as later:
        later.execute("ALTER TABLE rules ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue'")
    with closing(Store(f"sqlite:///{path}")) as store, store.writing() as session:
        session.add(RulesRow(hash=b"\x01" * 32, body=b"{}"))


def started(database: str, together: Barrier, said: Queue[str]) -> None:
    """A process that opens its store at the same moment as another."""
    together.wait(60)
    try:
        with closing(Store(database)) as store:
            said.put(store.migrated)
    except Exception as error:
        said.put(repr(error))
        raise


def test_processes_that_start_at_once_wait_for_the_one_that_migrates(database: str) -> None:
    apart = multiprocessing.get_context("spawn")
    said, together = apart.Queue(), apart.Barrier(2)
    both = [apart.Process(target=started, args=(database, together, said)) for _ in range(2)]
    for each in both:
        each.start()
    told = sorted(said.get(timeout=120) for _ in both)
    for each in both:
        each.join(60)
    at = f"at revision {', '.join(newest())}"
    assert told == [at, f"{at}, made anew"]
