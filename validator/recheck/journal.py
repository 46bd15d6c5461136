"""Journal of a recheck: its secret, the jobs checked, the jurors compared, and the deposits made. One SQLite file."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from protocol.errors import Misconfigured

DAY_SECONDS = 86_400.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS secret (value BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS checked (
    round TEXT NOT NULL, job INTEGER NOT NULL, beacon BLOB NOT NULL, node INTEGER NOT NULL,
    stands TEXT NOT NULL, found TEXT NOT NULL, reason TEXT NOT NULL, outcome TEXT NOT NULL,
    PRIMARY KEY (round, beacon, job)
) STRICT;
CREATE TABLE IF NOT EXISTS compared (
    round TEXT NOT NULL, job INTEGER NOT NULL, beacon BLOB NOT NULL, juror INTEGER NOT NULL, shown TEXT NOT NULL,
    equal INTEGER NOT NULL, near INTEGER NOT NULL, apart INTEGER NOT NULL, in_doubt INTEGER NOT NULL,
    PRIMARY KEY (round, beacon, job, juror)
) STRICT;
CREATE TABLE IF NOT EXISTS deposits (
    round TEXT NOT NULL, job INTEGER NOT NULL, beacon BLOB NOT NULL, at REAL NOT NULL, amount TEXT NOT NULL,
    PRIMARY KEY (round, beacon, job)
) STRICT
"""


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """One job: the verdict that stands, the one found here with its reason, and what came of it."""

    round: int
    job: int
    beacon: bytes
    node: int
    stands: str
    found: str
    reason: str
    outcome: str


@dataclass(frozen=True, slots=True)
class ComparedJuror:
    """One juror's bundle on one checked job.

    shown               conclusion on the juror's work, in a sentence
    equal, near, apart  number of rollouts by the likeness of their fingerprint to this machine's
    in_doubt            true if the bundle is missing, contradicted, or not of a prefill by the juror
    """

    round: int
    job: int
    beacon: bytes
    juror: int
    shown: str
    equal: int = 0
    near: int = 0
    apart: int = 0
    in_doubt: bool = False


class RecheckJournal:
    """Entries on everything checked so far. Used from one thread."""

    def __init__(self, directory: Path) -> None:
        """Opens or creates the journal; raises ``Misconfigured`` if the directory cannot be written."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(directory / "recheck.sqlite", isolation_level=None)
            self._db.executescript(_SCHEMA)
            if self._db.execute("SELECT value FROM secret").fetchone() is None:
                self._db.execute("INSERT INTO secret VALUES (?)", (secrets.token_bytes(32),))
            (self.secret,) = self._db.execute("SELECT value FROM secret").fetchone()
        except (OSError, sqlite3.Error) as error:
            raise Misconfigured(f"cannot write the journal of checked jobs in {directory}: {error}") from error

    def has(self, round_: int, beacon: bytes, job: int) -> bool:
        """Returns whether a job was checked."""
        place = (str(round_), beacon, job)
        found = self._db.execute("SELECT 1 FROM checked WHERE round = ? AND beacon = ? AND job = ?", place)
        return found.fetchone() is not None

    def write(self, entry: CheckedJob | ComparedJuror) -> None:
        """Keeps an entry in place of an earlier one of the same job, or of the same job and juror."""
        table = "checked" if isinstance(entry, CheckedJob) else "compared"
        round_, *rest = astuple(entry)
        marks = ", ".join("?" * (len(rest) + 1))
        self._db.execute(f"REPLACE INTO {table} VALUES ({marks})", (str(round_), *rest))

    def jobs(self) -> Iterator[CheckedJob]:
        """Yields the jobs checked, newest first."""
        for round_, *rest in self._db.execute("SELECT * FROM checked ORDER BY rowid DESC"):
            yield CheckedJob(int(round_), *rest)

    def jurors(self) -> Iterator[ComparedJuror]:
        """Yields the jurors compared on each job checked, newest first."""
        for round_, *rest in self._db.execute("SELECT * FROM compared ORDER BY rowid DESC"):
            entry = ComparedJuror(int(round_), *rest)
            yield replace(entry, in_doubt=bool(entry.in_doubt))

    def lock_deposit(self, round_: int, beacon: bytes, job: int, at: float, amount: int) -> None:
        """Counts a deposit before it is sent; the same appeal again counts once."""
        self._db.execute(
            "INSERT OR IGNORE INTO deposits VALUES (?, ?, ?, ?, ?)", (str(round_), job, beacon, at, str(amount))
        )

    def spent(self, now: float, but: tuple[int, bytes, int] | None = None) -> int:
        """Returns the deposits of the day before ``now`` (unix seconds), without that of the appeal ``but``."""
        rows = self._db.execute("SELECT round, beacon, job, at, amount FROM deposits")
        return sum(
            int(amount)
            for round_, beacon, job, at, amount in rows
            if now - at < DAY_SECONDS and (int(round_), beacon, job) != but
        )

    def close(self) -> None:
        """Closes the database."""
        self._db.close()
