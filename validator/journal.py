"""Journal of votes, written before they are sent, so that a kill at any point neither loses nor doubles a vote.

    judge ──> journal (vote, salt; evidence on disk) ──> commit ──> reveal ──> publish evidence

The first vote written for a round, attempt and beacon is final: judging again after a crash returns it, so there is
never a commitment to a second vote, and a commitment that was sent can always be revealed. The beacon is part of the
key because a reorganised round is another round.
"""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import Misconfigured, Unavailable
from protocol.files import write_atomically
from protocol.wire.votes import Vote
from protocol.write_ahead import use_write_ahead_log

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
    """Key of a vote: round, attempt, and the beacon under which the round was opened."""

    round: int
    attempt: int
    beacon: bytes

    @property
    def name(self) -> str:
        """Short unique name for idempotency keys."""
        return f"{self.round}/{self.attempt}/{self.beacon[:8].hex()}"


@dataclass(frozen=True, slots=True)
class JournalledVote:
    """A vote and the 32-byte salt of its commitment, as first written."""

    key: VoteKey
    vote: Vote
    salt: bytes
    published: bool


class VoteJournal:
    """Votes of one node, in one directory. Not thread-safe."""

    def __init__(self, directory: Path) -> None:
        """Opens or creates the journal; raises ``Misconfigured`` if the directory cannot be written."""
        self._evidence = directory / "evidence"
        try:
            self._evidence.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(directory / "votes.sqlite", isolation_level=None)
            use_write_ahead_log(self._db)
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise Misconfigured(f"the vote journal in {directory} cannot be written: {error}") from error

    def record(self, key: VoteKey, vote: Vote, evidence: bytes) -> JournalledVote:
        """Writes ``vote`` with a fresh salt and its evidence durably, and returns the first vote written for ``key``.

        Raises:
            Unavailable: the disk failed; the vote must not be sent.
        """
        if (written := self.find(key)) is not None:
            return written
        try:
            if evidence:
                write_atomically(self._evidence / f"{vote.evidence_root.hex()}.json", evidence)
            words = (
                str(vote.accept),
                str(vote.fraud),
                vote.reasons,
                vote.evidence_root,
                secrets.token_bytes(32),
                int(not evidence),
            )
            self._db.execute("INSERT OR IGNORE INTO votes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*_row(key), *words))
        except (OSError, sqlite3.Error) as error:
            raise Unavailable(f"the vote cannot be journalled: {error}") from error
        written = self.find(key)
        assert written is not None
        return written

    def find(self, key: VoteKey) -> JournalledVote | None:
        """Returns the vote written for ``key``, or None."""
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
        """Returns the votes whose evidence has not reached the coordinator, oldest first."""
        rows = self._db.execute(
            "SELECT round, attempt, beacon FROM votes WHERE published = 0 ORDER BY rowid"
        ).fetchall()
        found = [self.find(VoteKey(int(number), attempt, beacon)) for number, attempt, beacon in rows]
        return [vote for vote in found if vote is not None]

    def mark_published(self, key: VoteKey) -> None:
        """Marks the evidence as received by the coordinator."""
        self._db.execute("UPDATE votes SET published = 1 WHERE round = ? AND attempt = ? AND beacon = ?", _row(key))

    def evidence(self, root: bytes) -> bytes | None:
        """Returns the signed bundle with this root, or None."""
        path = self._evidence / f"{root.hex()}.json"
        return path.read_bytes() if path.is_file() else None

    def close(self) -> None:
        """Closes the database."""
        self._db.close()


def _row(key: VoteKey) -> tuple[str, int, bytes]:
    return str(key.round), key.attempt, key.beacon
