"""Rewards on disk: those that trainers published, those of a juror's own samples, and the secret of its noise.

secret      32 bytes, drawn once
published   rewards of a job as the trainer states them, by run and manifest root; they only raise an alarm
samples     own and sampled rewards of each group of a settled job, by round, beacon and job
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import structlog

from protocol.errors import Misconfigured, Rejected
from protocol.wire.rewards import Rewards, parse_rewards
from validator.records.rewards import SampledGroup

_SCHEMA = """
CREATE TABLE IF NOT EXISTS secret (id INTEGER PRIMARY KEY CHECK (id = 0), bytes BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS published (root BLOB PRIMARY KEY, file BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS samples (
    round TEXT NOT NULL, beacon BLOB NOT NULL, job INTEGER NOT NULL, groups TEXT NOT NULL,
    PRIMARY KEY (round, beacon, job)
) STRICT;
"""

log = structlog.get_logger()


class RewardStore:
    """The tables above, in a database of ``directory``. Used from one thread."""

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(directory / "rewards.sqlite", isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.executescript(_SCHEMA)
            self._db.execute("INSERT OR IGNORE INTO secret VALUES (0, ?)", (secrets.token_bytes(32),))
            self.secret: bytes
            (self.secret,) = self._db.execute("SELECT bytes FROM secret").fetchone()
        except (OSError, sqlite3.Error) as error:
            raise Misconfigured(f"cannot write rewards to {directory}: {error}") from error

    def published(self, root: bytes) -> Rewards | None:
        """Returns the rewards that the version with this manifest root was published with, if they are kept."""
        row = self._db.execute("SELECT file FROM published WHERE root = ?", (root,)).fetchone()
        try:
            return None if row is None else parse_rewards(row[0])
        except Rejected as error:  # fetched again
            log.warning("rewards_not_read", error=str(error))
            return None

    def keep_published(self, root: bytes, rewards: Rewards) -> None:
        """Keeps the rewards of a version."""
        self._keep("INSERT OR REPLACE INTO published VALUES (?, ?)", (root, rewards.canonical))

    def samples(self, round_: int, beacon: bytes) -> dict[int, tuple[SampledGroup, ...]]:
        """Returns the sampled groups of a round's jobs, by job."""
        query = "SELECT job, groups FROM samples WHERE round = ? AND beacon = ?"
        rows = self._db.execute(query, (str(round_), beacon)).fetchall()
        return {
            job: tuple(SampledGroup(tuple(own), tuple(sampled)) for own, sampled in json.loads(groups))
            for job, groups in rows
        }

    def keep_samples(self, round_: int, beacon: bytes, job: int, groups: Sequence[SampledGroup]) -> None:
        """Keeps the sampled groups of one job."""
        told = json.dumps([(group.own, group.sampled) for group in groups])
        self._keep("INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?)", (str(round_), beacon, job, told))

    def close(self) -> None:
        """Closes the database."""
        self._db.close()

    def _keep(self, statement: str, row: tuple[object, ...]) -> None:
        try:
            self._db.execute(statement, row)
        except sqlite3.Error as error:  # what is known stays in memory, and is made again after a restart
            log.warning("rewards_not_kept", error=str(error))
