"""A database that another process writes at the moment gets its write-ahead log after that."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from protocol.write_ahead import use_write_ahead_log


def connected(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False))


def test_it_waits_for_another_that_writes(tmp_path: Path) -> None:
    with connected(tmp_path / "new.sqlite") as writing, connected(tmp_path / "new.sqlite") as opening:
        writing.execute("BEGIN IMMEDIATE")
        writing.execute("CREATE TABLE t (x)")
        with pytest.raises(sqlite3.OperationalError, match="locked"):  # although a connection waits five seconds
            opening.execute("PRAGMA journal_mode=WAL")
        later = threading.Timer(0.3, writing.execute, ["COMMIT"])
        later.start()
        use_write_ahead_log(opening)
        later.join()
        assert opening.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_it_gives_up_in_time(tmp_path: Path) -> None:
    with connected(tmp_path / "new.sqlite") as writing, connected(tmp_path / "new.sqlite") as opening:
        writing.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            use_write_ahead_log(opening, 0.2)
        assert time.monotonic() - began < 5


def test_a_database_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with connected(tmp_path / "old.sqlite") as made:
        made.execute("CREATE TABLE t (x)")
    reading = sqlite3.connect(f"file:{tmp_path / 'old.sqlite'}?mode=ro", uri=True)
    with closing(reading), pytest.raises(sqlite3.OperationalError, match="readonly"):
        use_write_ahead_log(reading, 60)
