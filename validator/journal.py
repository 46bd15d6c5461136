"""Votes on disk before they are on chain, so that a kill at any point neither loses nor doubles one.

    judge ──> journal (vote, salt; evidence on disk) ──> commit ──> reveal ──> publish evidence

The first vote written for a round, attempt and beacon stands for ever: whoever judges again after a crash gets that one
back, so no second commitment to another vote can exist, and a commitment that was sent can always be revealed. The
beacon is part of the key because a reorganised round is another round.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import Misconfigured, Unavailable
from protocol.wire.votes import Vote

_SCHEMA = """
CREATE TABLE IF NOT EXISTS votes (
    round TEXT NOT NULL, attempt INTEGER NOT NULL, beacon BLOB NOT NULL,
    accept TEXT NOT NULL, fraud TEXT NOT NULL, reasons BLOB NOT NULL, evidence_root BLOB NOT NULL, salt BLOB NOT NULL,
    published INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (round, attempt, beacon)
) STRICT
"""


@dataclass(frozen=True, slots=True)
class VoteKey:
    """Which vote is meant: the round, the attempt at it, and the beacon it was opened under."""

    round: int
    attempt: int
    beacon: bytes

    @property
    def name(self) -> str:
        """A short unique name, for idempotency keys."""
        return f"{self.round}/{self.attempt}/{self.beacon[:8].hex()}"


@dataclass(frozen=True, slots=True)
class JournalledVote:
    """A vote and the 32-byte salt of its commitment, as they were first written."""

    key: VoteKey
    vote: Vote
    salt: bytes
    published: bool


class VoteJournal:
    """The votes of one node, in one directory. Not safe to share between threads."""

    def __init__(self, directory: Path) -> None:
        """Opens or creates the journal; raises ``Misconfigured`` where the directory cannot be written."""
        self._evidence = directory / "evidence"
        try:
            self._evidence.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(directory / "votes.sqlite", isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise Misconfigured(f"the vote journal in {directory} cannot be written: {error}") from error

    def record(self, key: VoteKey, vote: Vote, evidence: bytes) -> JournalledVote:
        """Writes ``vote`` with a fresh salt and its evidence, durably, and returns what stands: the first one written.

        Raises ``Unavailable`` where the disk refuses; nothing may be sent then.
        """
        if (written := self.find(key)) is not None:
            return written
        try:
            if evidence:
                self._write_evidence(vote.evidence_root, evidence)
            words = (str(vote.accept), str(vote.fraud), vote.reasons, vote.evidence_root, _salt(), int(not evidence))
            self._db.execute("INSERT OR IGNORE INTO votes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*_row(key), *words))
        except (OSError, sqlite3.Error) as error:
            raise Unavailable(f"the vote cannot be journalled: {error}") from error
        written = self.find(key)
        assert written is not None
        return written

    def find(self, key: VoteKey) -> JournalledVote | None:
        """Returns the vote that stands for ``key``, if one was ever written."""
        row = self._db.execute(
            "SELECT accept, fraud, reasons, evidence_root, salt, published FROM votes"
            " WHERE round = ? AND attempt = ? AND beacon = ?",
            _row(key),
        ).fetchone()
        if row is None:
            return None
        accept, fraud, reasons, evidence_root, salt, published = row
        return JournalledVote(key, Vote(int(accept), int(fraud), reasons, evidence_root), salt, bool(published))

    def unpublished(self) -> list[JournalledVote]:
        """Returns the votes whose evidence has not reached the coordinator yet, oldest first."""
        rows = self._db.execute(
            "SELECT round, attempt, beacon FROM votes WHERE published = 0 ORDER BY rowid"
        ).fetchall()
        found = [self.find(VoteKey(int(number), attempt, beacon)) for number, attempt, beacon in rows]
        return [vote for vote in found if vote is not None]

    def mark_published(self, key: VoteKey) -> None:
        """Notes that the evidence has reached the coordinator."""
        self._db.execute("UPDATE votes SET published = 1 WHERE round = ? AND attempt = ? AND beacon = ?", _row(key))

    def evidence(self, root: bytes) -> bytes | None:
        """Returns the signed bundle with this root, if it was written."""
        path = self._evidence / f"{root.hex()}.json"
        return path.read_bytes() if path.is_file() else None

    def close(self) -> None:
        """Closes the database."""
        self._db.close()

    def _write_evidence(self, root: bytes, data: bytes) -> None:
        path = self._evidence / f"{root.hex()}.json"
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)


def _row(key: VoteKey) -> tuple[str, int, bytes]:
    return str(key.round), key.attempt, key.beacon


def _salt() -> bytes:
    return secrets.token_bytes(32)
