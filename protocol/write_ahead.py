"""SQLite databases that one process writes while others read: those with a write-ahead log."""

from __future__ import annotations

import sqlite3
import time

POLL_SECONDS = 0.01


def use_write_ahead_log(connection: sqlite3.Connection, busy_seconds: float = 5.0) -> None:
    """Gives a database a write-ahead log, which it then keeps; waits while another process writes without one.

    SQLite itself waits for readers only: of two processes that open a new database at once, it refuses one immediately.

    Raises:
        sqlite3.OperationalError: the database is still locked after ``busy_seconds``, or cannot be written.
    """
    ends = time.monotonic() + busy_seconds
    while True:
        try:
            # A subclass may raise errors of its own, which carry no code.
            sqlite3.Connection.execute(connection, "PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= ends:
                raise
        time.sleep(POLL_SECONDS)
