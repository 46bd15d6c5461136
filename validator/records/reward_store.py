"""Rewards on disk: those that trainers published, those of a juror's own samples, and the secret of its noise.

secret      32 bytes, drawn once
published   rewards of a version's jobs as its trainer states them, by run; they only raise an alarm
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
from protocol.write_ahead import use_write_ahead_log
from validator.records.rewards import SampledGroup

_SCHEMA = """
CREATE TABLE IF NOT EXISTS secret (id INTEGER PRIMARY KEY CHECK (id = 0), bytes BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS published (
    run INTEGER NOT NULL, version INTEGER NOT NULL, root BLOB NOT NULL, file BLOB NOT NULL,
    PRIMARY KEY (run, version, root)
) STRICT;
CREATE TABLE IF NOT EXISTS samples (
    round TEXT NOT NULL, beacon BLOB NOT NULL, job INTEGER NOT NULL, groups TEXT NOT NULL,
    PRIMARY KEY (round, beacon, job)
) STRICT;
"""

KEPT_VERSIONS = 256
"""Versions of a run whose published rewards are kept."""

log = structlog.get_logger()


class RewardStore:
    """The tables above, in a database of ``directory``. Used from one thread."""

    def __init__(self, directory: Path | None) -> None:
        """Opens or makes the database; None keeps nothing beyond this process."""
        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            place = ":memory:" if directory is None else directory / "rewards.sqlite"
            self._db = sqlite3.connect(place, isolation_level=None)
            use_write_ahead_log(self._db)
            self._db.executescript(_SCHEMA)
            self._db.execute("INSERT OR IGNORE INTO secret VALUES (0, ?)", (secrets.token_bytes(32),))
            self.secret: bytes
            (self.secret,) = self._db.execute("SELECT bytes FROM secret").fetchone()
        except (OSError, sqlite3.Error) as error:
            raise Misconfigured(f"cannot write rewards to {directory}: {error}") from error

    def published(self, run: int, version: int, root: bytes) -> Rewards | None:
        """Returns the rewards that a version of ``run`` came with, if they are kept; ``root`` is of its manifest."""
        query = "SELECT file FROM published WHERE run = ? AND version = ? AND root = ?"
        try:
            row = self._db.execute(query, (run, version, root)).fetchone()
            return None if row is None else parse_rewards(row[0])
        except (Rejected, sqlite3.Error) as error:  # fetched again
            log.warning("rewards_not_read", error=str(error))
            return None

    def keep_published(self, run: int, version: int, root: bytes, rewards: Rewards) -> None:
        """Keeps the rewards of a version, and of each run those of the newest ``KEPT_VERSIONS``."""
        self._keep("INSERT OR REPLACE INTO published VALUES (?, ?, ?, ?)", (run, version, root, rewards.canonical))
        self._keep("DELETE FROM published WHERE run = ? AND version <= ?", (run, version - KEPT_VERSIONS))

    def samples(self, round_: int, beacon: bytes) -> dict[int, tuple[SampledGroup, ...]]:
        """Returns the sampled groups of a round's jobs, by job."""
        query = "SELECT job, groups FROM samples WHERE round = ? AND beacon = ?"
        try:
            rows = self._db.execute(query, (str(round_), beacon)).fetchall()
        except sqlite3.Error as error:  # sampled again
            log.warning("samples_not_read", error=str(error))
            return {}
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
