"""Faults of databases: locked, refused at commit, and the process killed in between."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from tests.simulation.faults import Faults, Killed


@contextmanager
def failing_databases(faults: Faults) -> Iterator[None]:
    """Every database of this process fails now and then, as ``faults`` has it."""

    def at_statement(*_: Any) -> None:
        if faults.strikes("killed at a statement"):
            raise Killed
        if faults.strikes("database locked"):
            raise OperationalError("", {}, sqlite3.OperationalError("database is locked"))

    def at_commit(*_: Any) -> None:
        if faults.strikes("killed at a commit"):
            raise Killed
        if faults.strikes("commit refused"):
            raise OperationalError("", {}, sqlite3.OperationalError("disk I/O error"))

    event.listen(Engine, "before_cursor_execute", at_statement)
    event.listen(Engine, "commit", at_commit)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", at_statement)
        event.remove(Engine, "commit", at_commit)
